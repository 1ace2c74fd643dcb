"""A researcher's own file through the graph: all that it registers, and its place in keys."""

import csv
import json
import os
import shutil
import subprocess
import sys
import tarfile

import pytest
import tiny_project
import yaml
from building import build_in
from tiny_project import ROOT, run_command, snakemake

EXAMPLE = ROOT / "examples/plugin"
LAYOUT = {
    "title": "Mine",
    "columns": [{"measure": "RR@10"}],
    "rows": [
        {"system": "BM25", "run": "bm25"},
        {"system": "Short first", "first_stage": "BM25", "run": "brief"},
        {"system": "Words", "first_stage": "BM25", "run": "bm25+words"},
        {"system": "Mine", "run": "mine"},
    ],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory, encoder_folder):
    folder = tmp_path_factory.mktemp("plugin")
    example = (EXAMPLE / "my_ideas.py").read_text()
    shared = example.replace(
        "params=ShortestFirst)", "params=ShortestFirst, shard=share, train=share)"
    )
    assert shared != example
    begin = "def run_shortest_first("
    (folder / "my_ideas.py").write_text(
        shared.replace(begin, f"def share(job):\n    return {{}}\n\n\n{begin}")
    )
    config = yaml.safe_load((EXAMPLE / "config.yaml").read_text())
    config["plugins"] = [str(folder / "my_ideas.py")]
    config["datasets"]["mine"]["path"] = str(EXAMPLE)
    (folder / "mine.yaml").write_text(yaml.safe_dump(LAYOUT))
    config |= {
        "execution": {"shards": 2},
        "encoder": str(encoder_folder),
        "recipes": [],
        "tables": [str(folder / "mine.yaml")],
    }
    config |= {
        "lengths": {"query": 16, "passage": 24},
        "encode": {"block": 16, "precision": "fp32"},
    }
    null = {"de_bm25neg": None, "ce_bm25neg": None, "ce_deneg": None, "rocketqav2": None}
    config["models"] = {**null, **config["models"]}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    build_in(folder, "all", "config.yaml")
    # these Snakemake makes, each in a process of its own
    for kind in ("shortest_first", "rerank", "score"):
        shutil.rmtree(folder / "results/mine" / kind)
    code, output = run_command(
        snakemake(folder, ["mine"]), env=os.environ | tiny_project.variables_of_stages()
    )
    assert code == 0, output
    assert "rule shortest_first:" in output
    assert output.count("rule shortest_first_shard:") == 2
    assert "rule shortest_first_train:" in output  # before its shards
    assert "rule rerank:" in output
    return folder


def manifests(folder, kind):
    return [
        json.loads(path.read_text())
        for path in sorted(folder.glob(f"results/mine/{kind}/*/stage.json"))
    ]


def test_the_example_runs_as_its_first_lines_say(tmp_path):
    folder = shutil.copytree(EXAMPLE, tmp_path / "plugin")
    code, output = run_command(snakemake(folder, ["-n"]), cwd=folder)
    assert code == 0, output


def test_all_that_the_file_registers_is_used(project):
    rows = list(csv.DictReader((project / "results/tables/mine.csv").open()))
    assert [row["system"] for row in rows] == ["BM25", "Short first", "Words", "Mine"]
    (model,) = manifests(project, "model")
    assert model["params"]["train"]["loss"] == "softplus_margin"
    assert [manifest["params"]["source"] for manifest in manifests(project, "candidates")] == [
        "neighbours"
    ]
    assert [manifest["params"]["weight"] for manifest in manifests(project, "shortest_first")] == [
        0.1
    ]
    (reranked,) = manifests(project, "rerank")
    assert (reranked["params"]["scorer"], reranked["params"]["options"]) == (
        "shared_words",
        {"weight": 2.0},
    )


# kinds of stages that use the plugin
USED = {"dataset", "candidates", "model", "shortest_first", "rerank"}


def test_only_what_uses_the_plugin_has_it_in_its_key(project):
    with_plugin = {
        kind: [name.split("@")[0] for name in manifest["params"].get("plugins", [])]
        == ["my_ideas.py"]
        for kind in (*USED, "bm25", "tokens", "embeddings", "score")
        for manifest in manifests(project, kind)
    }
    assert with_plugin == {kind: kind in USED for kind in with_plugin}


def test_another_source_of_the_plugin_makes_other_keys(project, tmp_path):
    folder = shutil.copytree(project, tmp_path / "copy")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["plugins"] = [str(folder / "my_ideas.py")]
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    code, output = run_command(snakemake(folder, ["-n", "mine"]))
    assert code == 0, output
    assert "Nothing to be done" in output
    with (folder / "my_ideas.py").open("a") as file:
        file.write("\n# a remark\n")
    code, output = run_command(snakemake(folder, ["-n", "-p"]))
    assert code == 0, output
    commands = [
        line.split("python -P -m tandem ")[1]
        for line in output.splitlines()
        if "python -P -m tandem " in line
    ]
    assert {command.split()[0] for command in commands if "--run.plugins" in command} >= USED


def test_a_bundle_brings_the_plugin(project, tmp_path):
    bundle = [
        sys.executable,
        "-m",
        "tandem",
        "bundle",
        "mine",
        "config.yaml",
        "--out",
        str(tmp_path / "mine.tar.gz"),
    ]
    code, output = run_command(bundle, cwd=project)
    assert code == 0, output
    with tarfile.open(tmp_path / "mine.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / "mine"
    assert (unpacked / "plugins/my_ideas.py").read_bytes() == (project / "my_ideas.py").read_bytes()
    assert yaml.safe_load((unpacked / "config.yaml").read_text())["plugins"] == [
        "../plugins/my_ideas.py"
    ]
    # what the plan names is there: its keys are these
    shutil.copytree(project / "results", unpacked / "again/results")
    model = next(project.glob("results/mine/model/*/stage.json")).relative_to(project)
    line = snakemake(unpacked / "again", ["-n", str(model)])
    line[line.index("--configfile") + 1] = str(unpacked / "config.yaml")
    code, output = run_command(line, cwd=unpacked)
    assert code == 0, output
    assert "no such stage" not in output


MISTAKES = [
    ({"plugins": ["gone.py"]}, "plugins: gone.py does not exist"),
    ({"runs": {"brief": {"stage": "shortest", "of": "bm25"}}}, "runs.brief.stage: shortest"),
    (
        {"runs": {"brief": {"stage": "shortest_first", "of": "bm25", "params": {"weight": 0}}}},
        "runs.brief.params.weight",
    ),
    ({"datasets": {"mine": {"source": "questions_csv"}}}, "datasets.mine.table is missing"),
]
PLAN = """
import json, sys
from pathlib import Path
from tandem.config.merging import gathered, merged
from tandem.errors import UserError
from tandem.extras.plan import FullPlan

root = Path(sys.argv[1])
for config in json.load(sys.stdin):
    try:
        FullPlan(merged(gathered([], root), config), root).check("all")
        print()
    except UserError as error:
        print(error)
"""


def test_a_mistake_is_one_line(project):
    config = yaml.safe_load((project / "config.yaml").read_text())
    configs = json.dumps([config, *(config | change for change, _ in MISTAKES)])
    words = [sys.executable, "-c", PLAN, str(ROOT)]
    done = subprocess.run(words, input=configs, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    right, *lines = done.stdout.splitlines()
    assert right == ""
    for line, (_, begin) in zip(lines, MISTAKES, strict=True):
        assert line.startswith(begin)
