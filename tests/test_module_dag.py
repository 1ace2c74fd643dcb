"""A Snakefile of somebody's own that uses Tandem's rules as a module, with a configuration that it gives."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tiny_project import LAYOUT, ROOT, jobs, tiny_config, write_beir

OWN = """
configfile: "settings.yaml"


rule all:
    input: "best.txt"


module tandem:
    snakefile: {snakefile!r}
    config: config["retrieval"]{more}


use rule * from tandem as tandem_*


rule best:
    input: "results/tables/tiny.csv"
    output: "best.txt"
    shell: "sed -n 2p {{input}} > {{output}}"
"""


@pytest.fixture
def own(tmp_path, encoder_folder, documents):
    """`own(layout, more)`: a folder with the tiny collection, a Snakefile and its configuration."""

    def make(layout, more=""):
        folder = tmp_path / "own flow"
        (folder / "layout").mkdir(parents=True)
        write_beir(tmp_path / "beir", documents)
        (folder / "layout/tiny.yaml").write_text(yaml.safe_dump(layout))
        config = tiny_config(tmp_path, encoder_folder) | {"tables": ["layout/tiny.yaml"]}
        (folder / "settings.yaml").write_text(yaml.safe_dump({"retrieval": config, "own": 1}))
        (folder / "Snakefile").write_text(OWN.format(snakefile=str(ROOT / "Snakefile"), more=more))
        return folder

    return make


def run(folder, *flags):
    """Status and output of Snakemake, as somebody types it in the folder."""
    line = [sys.executable, "-m", "snakemake", "--cores", "2", "--rerun-triggers", "mtime", "params", "--", *flags]
    done = subprocess.run(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def test_from_the_files_to_a_rule_of_its_own(own):
    folder = own(LAYOUT | {"rows": LAYOUT["rows"][:1]})
    status, output = run(folder)
    assert status == 0, output
    ran = jobs(output)
    kinds = {f"tandem_{kind}": 1 for kind in ("dataset", "lucene", "bm25", "score", "table")}
    assert ran == kinds | {"best": 1, "all": 1}
    assert (folder / "best.txt").read_text().startswith("BM25,")


def test_it_makes_the_artifacts_that_tandem_makes(own, tiny_dag):
    folder = own(LAYOUT)
    shutil.copytree(tiny_dag.folder / "results", folder / "results")
    shutil.rmtree(folder / "results/tables")
    status, output = run(folder)
    assert status == 0, output
    assert jobs(output) == {"tandem_table": 1, "best": 1, "all": 1}
    table = Path("results/tables/tiny.csv")
    assert (folder / table).read_bytes() == (tiny_dag.folder / table).read_bytes()


@pytest.mark.parametrize(
    ("key", "value", "more", "line"),
    [
        ("seeed", 1, "", "seeed"),
        ("dataset", "tiny", '\n    prefix: "elsewhere"', "prefix and replace_prefix"),
    ],
)
def test_a_mistake_is_the_last_line(key, value, more, line, own):
    folder = own(LAYOUT, more)
    settings = yaml.safe_load((folder / "settings.yaml").read_text())
    settings["retrieval"][key] = value
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    status, output = run(folder)
    assert status == 1
    assert line in output.splitlines()[-1]
    assert not (folder / "results").exists()
