"""A representation of a researcher's own file: trained, stored, searched, asked, and re-ranked by in a graph's jobs."""

import csv
import json
import os
import sys

import pytest
import tiny_project
import yaml
from tiny_project import LAYOUT, run_command, snakemake, tiny_config, write_beir

from tandem.store.files import sha256

MINE = '''
from typing import Literal

from tandem.config.representations import register_representation, representation
from tandem.contrib.late_interaction.options import Multi
from tandem.contrib.late_interaction.plan import search_tokens
from tandem.contrib.late_interaction.token_vectors import TokenVectors
from tandem.plan.context import search


class Mine(Multi):
    """Late interaction under another name."""

    type: Literal["mine"] = "mine"


@representation("mine")
class MineVectors(TokenVectors):
    """What a model of this representation is."""


register_representation(Mine)
search("mine")(search_tokens)
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory, encoder_folder, documents):
    """A finished table of one model of the file's representation and one of the package's, alike otherwise."""
    folder = tmp_path_factory.mktemp("representation")
    (folder / "mine.py").write_text(MINE)
    write_beir(folder / "beir", documents)
    runs = ("theirs", "own", "bm25+theirs", "bm25+own")
    rows = [{"system": run, "run": run} for run in runs]
    (folder / "tiny.yaml").write_text(
        yaml.safe_dump({"title": "Mine", "columns": LAYOUT["columns"], "rows": rows})
    )
    config = tiny_config(folder, encoder_folder) | {
        "plugins": [str(folder / "mine.py")],
        "tables": [str(folder / "tiny.yaml")],
    }
    for name, kind in (("theirs", "multi"), ("own", "mine")):
        config["models"][name] = {
            "like": "de_bm25neg",
            "representation": {"type": kind, "dim": 8},
        }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    # in a process of its own: what the file registers is there for all of a process' later tests
    environment = os.environ | tiny_project.variables_of_stages()
    status, output = run_command(snakemake(folder, ["tiny"]), env=environment)
    assert status == 0, output
    return folder


def test_its_runs_are_those_of_the_representation_that_it_renames(project):
    with (project / "results/tables/tiny.csv").open() as file:
        rows = list(csv.DictReader(file))
    values = {
        name: [row["value"] for row in rows if row["system"] == name] for name in ("own", "theirs")
    }
    assert values["own"] == values["theirs"]
    for kind, name in (("maxsim", "{}.test"), ("rerank", "bm25+{}.test")):
        own, theirs = (
            {
                sha256(path)
                for path in project.glob(f"results/tiny/{kind}/{name.format(of)}-*/*.npy")
            }
            for of in ("own", "theirs")
        )
        assert own == theirs


def test_every_job_behind_the_model_loads_the_file(project):
    manifests = [json.loads(path.read_text()) for path in project.glob("results/*/*/*/stage.json")]
    loading = {each["kind"] for each in manifests if each["execution"].get("plugins")}
    assert loading >= {"model", "token_vectors", "maxsim", "rerank"}


def test_it_answers_new_queries(project):
    found = []
    for name in ("own", "theirs"):
        words = ("search", name, "otter", "config.yaml", "--json")
        status, output = run_command([sys.executable, "-m", "tandem", *words], cwd=project)
        assert status == 0, output
        answer = next(line for line in output.splitlines() if line.startswith("{"))
        passages = json.loads(answer)["passages"]
        found.append([(passage["doc_id"], passage["score"]) for passage in passages])
    assert found[0] == found[1]
    assert len(found[0]) > 1
