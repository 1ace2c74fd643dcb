"""Values of a configuration reach the jobs as they are, whatever a shell would make of them."""

import copy
import csv
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tiny_project import run_here, write_qrels_folder

from tandem.extras.plan import FullPlan
from tandem.stages.base import flatten, format_value

ROOT = Path(__file__).parents[2]
NASTY = [
    "; touch pwned", "$(touch pwned)", "`touch pwned`", "' touch pwned '", '" ; touch pwned ; "', "a\ntouch pwned\n",
    "\\", "{output}", "{wildcards.key}", "{{", "*", "~", "$HOME", "a && touch pwned", "> pwned", "#", "!!", "é 文",
]  # fmt: skip
FOLDER = "; $(touch pwned) ' \" `touch pwned` \n {key} é"


@pytest.mark.parametrize("nasty", NASTY)
def test_a_shell_reads_the_values_back(configured, tmp_path, nasty):
    folder, run = tmp_path / "data" / nasty, tmp_path / "runs" / nasty
    write_qrels_folder(folder, "one", ("train", "dev", "test"))
    run.parent.mkdir()
    run.write_text("query Q0 passage 1 2.5 run\n")
    config = configured()
    config["datasets"] = {"mine": {"source": "beir", "path": str(folder)}}
    config |= {"dataset": "mine", "encoder": "start"}
    config["encoders"] = {
        "start": {"source": "hub", "name": f"org/{nasty}", "revision": nasty, "pooling": "cls"}
    }
    config["runs"] = {"told": {"paths": {"test": str(run)}}}
    config["systems"] = ["told"]
    plan = FullPlan(copy.deepcopy(config), ROOT)
    stages = list(plan.stages.values())
    lines = [f"printf '%s\\0' {stage.args} {stage.how}" for stage in stages]
    script = tmp_path / "script.sh"  # as a word of a command line it would be too long
    script.write_text("\n".join(["set -euo pipefail", *lines]))
    read = subprocess.run(["bash", str(script)], capture_output=True, check=True)
    expected = []
    for stage in stages:
        options = [
            (f"--params.{path}", format_value(value))
            for path, value in flatten(stage.values).items()
        ]
        options += [(f"--in.{role}", source.folder) for role, source in stage.upstream.items()]
        expected += [word for pair in sorted(options) for word in pair]
        how = sorted(
            (f"--run.{name}", format_value(value)) for name, value in stage.execution.items()
        )
        expected += [word for pair in how for word in pair]
    assert read.stdout.decode().split("\0")[:-1] == expected
    assert sum(nasty in word for word in expected) >= 3


def test_snakemake_reads_data_from_a_folder_with_such_a_name(tiny_dag, planned_manifest, tmp_path):
    folder = tmp_path / FOLDER
    shutil.copytree(tiny_dag.folder / "beir", folder)
    config = yaml.safe_load((tiny_dag.folder / "config.yaml").read_text())
    config["datasets"]["tiny"]["path"] = str(folder)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    line = tiny_dag.line(planned_manifest)
    line[line.index("--directory") + 1] = str(tmp_path)
    line[line.index("--configfile") + 1] = str(tmp_path / "config.yaml")
    status, output = run_here(line)
    assert status == 0, output
    manifest = json.loads((tmp_path / planned_manifest).read_text())
    assert manifest["execution"]["path"] == str(folder)
    assert not list(tmp_path.rglob("pwned"))


def test_labels_of_a_table_stay_text_in_shell_and_html(tiny_dag, tmp_path):
    copied = shutil.copytree(tiny_dag.folder, tmp_path / "copy")
    label = "<script>alert(1)</script>; $(touch pwned) ' \" {output}"
    layout = {
        "title": label,
        "columns": [{"measure": "RR@10"}],
        "rows": [{"system": label, "run": "bm25"}],
    }
    (copied / "nasty.yaml").write_text(yaml.safe_dump(layout))
    line = tiny_dag.line(
        "results/tables/nasty.csv", "--config", f"tables=[{copied / 'nasty.yaml'}]"
    )
    line[line.index("--directory") + 1] = str(copied)
    status, output = run_here(line)
    assert status == 0, output
    with (copied / "results/tables/nasty.csv").open() as file:
        assert next(csv.DictReader(file))["system"] == label
    page = (copied / "results/tables/nasty.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not list(tmp_path.rglob("pwned"))


@pytest.fixture(scope="module")
def planned_manifest(tiny_dag):
    """The manifest of the tiny collection."""
    (path,) = tiny_dag.folder.glob("results/tiny/dataset/*/stage.json")
    return str(path.relative_to(tiny_dag.folder))
