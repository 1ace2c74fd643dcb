"""A bundle is unpacked elsewhere, and the commands that its README says make the table's numbers again."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from tiny_project import write_beir

from tandem import ROOT

LAYOUT = {
    "title": "Words",
    "baseline": {"system": "BM25"},
    "columns": [{"measure": "RR@10"}, {"measure": "nDCG@10"}],
    "rows": [{"system": "BM25", "run": "bm25"}],
}


@pytest.fixture
def project(tmp_path, documents):
    """A folder with a collection, a layout of one's own and the configuration, all told by relative paths."""
    write_beir(tmp_path / "project/beir", documents)
    (tmp_path / "project/words.yaml").write_text(yaml.safe_dump(LAYOUT))
    config = {
        "dataset": "tiny",
        "datasets": {"tiny": {"source": "beir", "path": "beir"}},
        "tables": ["words.yaml"],
        "bm25": {"engine": "bm25s"},
        "depth": {"train": 50, "dev": 20, "test": 20},
    }
    (tmp_path / "project/config.yaml").write_text(yaml.safe_dump(config))
    return tmp_path / "project"


def test_the_readmes_commands_make_the_same_numbers(project, tmp_path, snakemake_in):
    code, output = snakemake_in(project)("results/tables/words.csv")
    assert code == 0, output
    bundle = [
        sys.executable,
        "-m",
        "tandem",
        "bundle",
        "words",
        "config.yaml",
        "--out",
        str(tmp_path / "words.tar.gz"),
    ]
    done = subprocess.run(bundle, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "words.tar.gz") as archive:
        archive.extractall(tmp_path / "away", filter="data")
    away = tmp_path / "away/words"
    readme = (away / "README.md").read_text()
    assert "dataset tiny-" in readme
    assert str(project / "beir") in readme
    (commands,) = re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)
    assert len(commands.splitlines()) == 2
    environment = {
        **os.environ,
        "TANDEM": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["sh", "-ec", commands], cwd=away, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "the same numbers"
    table = (away / "again/results/tables/words.csv").read_text()
    assert table == (project / "results/tables/words.csv").read_text()
    assert len({line.split(",")[6] for line in table.splitlines()[1:]}) > 1
    verify = [sys.executable, "-m", "tandem", "verify", "."]
    done = subprocess.run(verify, cwd=away, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
