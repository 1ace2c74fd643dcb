"""The tutorial and the how-to pages, followed to the letter in a copy of the checkout with a tiny encoder."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from building import build_in
from doc_pages import HOW_TO, RECORDED, ROOT, TUTORIAL, blocks

from tandem.cluster.threads import WAITING
from tandem.extras.running.warm_server import serve_warm
from tandem.models.saving import DualShape, describe_encoder

# all that configurations ask for
MAKES = re.compile(r"^tandem run ([\w. ]+\.yaml)(?: baseline)?$", re.MULTILINE)
PARTS = ("Snakefile", "config", "envs", "examples", "profiles", "slurm", "workflow")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, encoder_folder):
    """A copy of the checkout whose default starts from the tiny encoder and trains for four steps."""
    folder = tmp_path_factory.mktemp("checkout")
    for part in PARTS:
        if (ROOT / part).is_dir() and not (ROOT / part).is_symlink():
            shutil.copytree(
                ROOT / part,
                folder / part,
                symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        else:
            shutil.copy(ROOT / part, folder / part, follow_symlinks=False)
    default = folder / "config/config.yaml"
    config = yaml.safe_load(default.read_text())
    encoder = shutil.copytree(encoder_folder, folder / "encoder")
    describe_encoder(encoder, 32, DualShape(True, "mean", True, 0.05))
    config |= {
        "encoder": str(encoder),
        "lengths": {"query": 16, "passage": 24},
        "execution": {"threads": 1},
    }
    for model in config["models"].values():
        model["train"]["steps"] = 4
    default.write_text(yaml.safe_dump(config))
    usual = {"source": "folder", "path": str(encoder)}  # of `tandem init`
    (folder / "config/encoders/minilm.yaml").write_text(yaml.safe_dump({"minilm": usual}))
    return folder


@pytest.fixture(scope="module")
def environment(checkout):
    """The environment of the pages' commands: the copy's library, and servers that are warm for all of their runs."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    decided = {"GOMP_SPINCOUNT": WAITING["GOMP_SPINCOUNT"]}
    own = {**os.environ, **decided, "PATH": path, "PYTHONPATH": f"{checkout}/workflow"}
    with serve_warm(own) as address:
        yield own | address


def follow(page: Path, folder: Path, environment: dict[str, str]) -> str:
    """Write a page's files and run its commands; what they print."""
    output = ""
    for block in blocks(page):
        if block.reason or block.language == RECORDED:
            continue
        if block.title:
            (folder / block.title).write_text(block.body)
            continue
        for files in MAKES.findall(block.body):
            build_in(folder, "all", *files.split(), root=folder)
        command = ["bash", "-euo", "pipefail", "-c", block.body]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{block.body}\n{done.stdout}\n{done.stderr}"
        output += done.stdout + done.stderr
    return output


@pytest.fixture(scope="module")
def tutorial(checkout, environment):
    """What the pages of the tutorial print, by name, followed one after the other."""
    return {page.stem: follow(page, checkout, environment) for page in TUTORIAL}


def systems(folder, name, table):
    return [
        row["system"]
        for row in csv.DictReader((folder / f"results/{name}/tables/{table}.csv").open())
        if row["value"]
    ]


def test_own_data_becomes_a_table_a_report_and_a_search(tutorial, checkout):
    assert list(dict.fromkeys(systems(checkout, "mine", "summary"))) == [
        "BM25",
        "Encoder, untrained",
        "DE w/ BM25 Neg",
        "CE w/ BM25 Neg",
        "CE w/ DE Neg",
        "RocketQAv2 (retriever)",
        "RocketQAv2 (re-ranker)",
    ]
    page = tutorial["own_data"]
    assert (
        "data: examples/animals, format beir: 60 passages, queries: train 20, dev 20, test 20"
        in page
    )
    assert (checkout / "results/mine/audits.html").is_file()
    assert f"report  {checkout}/results/mine/report.html" in page
    assert "search rocketqav2.retriever+rocketqav2.reranker · 60 passages" in page
    assert (checkout / "my-search/passages.faiss").is_file()


# Lines of results and of the machine begin alike; the rest is another encoder's, another folder's, another machine's.
OWN = ("best", "gain", "p", "hurt", "report", "machine:", "1", "2")
UNITS = "|".join(("d", "h", "min", "s", "ms", "B", "kB", "MB", "GB"))


def without_numbers(line):
    """A line's words, every number or quantity as #; of a line of `OWN` the first word."""
    words = re.sub(r"\d[\d,.]*\d|\d", "#", " ".join(line.split()))
    words = re.sub(rf"#(?: (?:{UNITS})\b)?(?: #(?: (?:{UNITS})\b)?)*", "#", words)
    return line.split()[0] if line.split()[0] in OWN else words


def test_what_the_pages_record_is_what_is_printed(tutorial):
    recorded = [
        (page.stem, line)
        for page in TUTORIAL
        for block in blocks(page)
        if block.language == RECORDED
        for line in block.body.splitlines()
        if line.strip() and not line.startswith(" " * 6)  # a passage that a search finds
    ]
    assert len(recorded) > 30
    printed = {
        name: set(map(without_numbers, filter(str.strip, text.splitlines())))
        for name, text in tutorial.items()
    }
    assert [line for name, line in recorded if without_numbers(line) not in printed[name]] == []


def test_own_recipe_starts_from_the_first_round_and_takes_its_negatives(tutorial, checkout):
    assert set(systems(checkout, "mine+recipe", "recipe_table")) == {"First round", "Second round"}
    (second,) = checkout.glob("results/mine/model/second-*/stage.json")
    upstream = " ".join(json.loads(second.read_text())["upstream"].values())
    assert "mine/model/de_bm25neg-" in upstream
    assert "mine/candidates/de_bm25neg-" in upstream
    # `tandem why` names what differs
    assert "train.budget_minutes is 2.0, was 5.0" in tutorial["own_recipe"]


def test_own_loss_trains_with_its_option(tutorial, checkout):
    (focal,) = checkout.glob("results/mine/model/focal-*/stage.json")
    train = json.loads(focal.read_text())["params"]["train"]
    assert (train["loss"], train["loss_options"]) == ("focal", {"gamma": 1.5})
    assert "1 passed" in tutorial["own_loss"]
    assert "Two losses" in (checkout / "results/mine+loss/report.html").read_text()


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_a_how_to_page_works_as_written(page, checkout, environment):
    if all(block.reason for block in blocks(page)):
        pytest.skip("the page says of each of its commands why it is not run")
    assert follow(page, checkout, environment)
