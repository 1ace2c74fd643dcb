"""A Snakefile of somebody's own that uses Tandem's rules as a module, with a configuration that it gives."""

import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
import yaml
from tiny_project import LAYOUT, ROOT, commit_all, jobs, run_here, tiny_config, write_beir

from tandem.store.files import sha256

OWN = """
configfile: "settings.yaml"


rule all:
    input: "best.txt", "lines.txt"{targets}


module tandem:
    snakefile: {snakefile}
    config: config["retrieval"]{more}


use rule * from tandem as tandem_*


rule best:
    input: "results/tables/tiny.csv"
    output: "best.txt"
    shell: "sed -n 2p {{input}} > {{output}}"


rule lines:
    input: tandem.find_run("{system}")
    output: "lines.txt"
    shell: "wc -l < $(dirname {{input:q}})/run.trec > {{output}}"


rule weights:
    input: tandem.find_model("{model}")
    output: "weights.txt"
    shell: "sha256sum $(dirname {{input:q}})/dual/shared/model.safetensors > {{output}}"
"""
WORDS = ("--rerun-triggers", "mtime", "params", "--cores", "2")


@pytest.fixture
def own(tmp_path, encoder_folder, documents):
    """`own(layout, …)`: a folder with the tiny collection, a Snakefile and its configuration."""

    def make(
        layout,
        more="",
        system="bm25",
        model="de_bm25neg",
        targets="",
        snakefile=f"{str(ROOT / 'Snakefile')!r}",
    ):
        folder = tmp_path / "own flow"
        (folder / "layout").mkdir(parents=True)
        write_beir(tmp_path / "beir", documents)
        (folder / "layout/tiny.yaml").write_text(yaml.safe_dump(layout))
        config = tiny_config(tmp_path, encoder_folder) | {"tables": ["layout/tiny.yaml"]}
        (folder / "settings.yaml").write_text(yaml.safe_dump({"retrieval": config, "own": 1}))
        names = {"more": more, "system": system, "model": model, "targets": targets}
        (folder / "Snakefile").write_text(OWN.format(snakefile=snakefile, **names))
        return folder

    return make


def run(folder, *flags):
    """Status and output of Snakemake, as somebody types it in the folder."""
    with chdir(folder):
        return run_here([sys.executable, "-m", "snakemake", *WORDS, *flags])


def test_from_the_files_to_a_rule_of_its_own(own):
    folder = own(LAYOUT | {"rows": LAYOUT["rows"][:1]})
    status, output = run(folder)
    assert status == 0, output
    ran = jobs(output)
    kinds = {f"tandem_{kind}": 1 for kind in ("dataset", "lucene", "bm25", "score", "table")}
    assert ran == kinds | {"best": 1, "lines": 1, "all": 1}
    assert (folder / "best.txt").read_text().startswith("BM25,")
    (trec,) = folder.glob("results/tiny/bm25/bm25.test-*/run.trec")
    assert int((folder / "lines.txt").read_text()) == len(trec.read_text().splitlines())


def test_it_makes_the_artifacts_that_tandem_makes(own, tiny_dag):
    folder = own(LAYOUT, targets=', "weights.txt"')
    shutil.copytree(tiny_dag.folder / "results", folder / "results")
    shutil.rmtree(folder / "results/tables")
    status, output = run(folder)
    assert status == 0, output
    assert jobs(output) == {"tandem_table": 1, "best": 1, "lines": 1, "weights": 1, "all": 1}
    (weights,) = tiny_dag.folder.glob(
        "results/tiny/model/de_bm25neg-*/dual/shared/model.safetensors"
    )
    assert (folder / "weights.txt").read_text().split()[0] == sha256(weights)
    table = Path("results/tables/tiny.csv")
    assert (folder / table).read_bytes() == (tiny_dag.folder / table).read_bytes()


@pytest.fixture
def repository(tmp_path):
    """A repository with the Snakefile alone, as a module names a file of it; rules come with the library."""
    folder = tmp_path / "repository"
    (folder / "workflow").mkdir(parents=True)
    for name in ("Snakefile", "workflow/Snakefile"):
        shutil.copy(ROOT / name, folder / name)
    commit_all(folder)
    return folder


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not there")
def test_the_snakefile_may_come_from_a_repository(own, repository):
    """As the catalogue of Snakemake's workflows has it: `workflow/Snakefile` at a tag."""
    layout = LAYOUT | {"rows": LAYOUT["rows"][:1]}
    folder = own(
        layout, snakefile=f"gitfile({str(repository)!r}, path='workflow/Snakefile', ref='HEAD')"
    )
    status, output = run(folder, "tandem_tiny")
    assert status == 0, output
    assert (folder / "results/tables/tiny.csv").is_file()
    status, output = run(folder, "tandem_tiny", "--report", "own.html")
    assert status == 0, output
    assert "WARNING" not in output
    assert "tiny.html" in (folder / "own.html").read_text()

    without = "import sys; sys.modules['tandem'] = None; from snakemake.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", without, *WORDS], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "pip install tandem-retrieval" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("key", "value", "own_words", "line"),
    [
        ("seeed", 1, {}, "seeed"),
        ("dataset", "tiny", {"more": '\n    prefix: "elsewhere"'}, "prefix and replace_prefix"),
        ("dataset", "tiny", {"system": "bm52"}, "did you mean bm25?"),
        ("dataset", "tiny", {"model": "de_bm25neq"}, "did you mean de_bm25neg?"),
    ],
)
def test_a_mistake_is_the_last_line(key, value, own_words, line, own):
    folder = own(LAYOUT, **own_words)
    settings = yaml.safe_load((folder / "settings.yaml").read_text())
    settings["retrieval"][key] = value
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    status, output = run(folder)
    assert status == 1
    assert line in output.splitlines()[-1]
    assert not (folder / "results").exists()
