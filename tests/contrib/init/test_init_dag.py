"""What `tandem init` writes runs as it is: on generated collections, and as a dry run on real ones."""

import csv
import os
import shutil
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from building import build_in
from tiny_project import jobs, run_command, run_here, snakemake, write_beir

from tandem.models.saving import DualShape, describe_encoder


def init(folder: Path, *words: str, **environment: str) -> str:
    """Run `tandem init mine` in a folder; what it prints. Libraries read an environment when they are imported."""
    line = [sys.executable, "-m", "tandem", "init", "mine", "--data", *words]
    if environment:
        status, output = run_command(
            line, cwd=folder, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | environment
        )
    else:
        with chdir(folder):
            status, output = run_here(line)
    assert status == 0, output
    return output


@pytest.fixture
def described(encoder_folder, tmp_path):
    """The tiny encoder as sentence-transformers saves one: its files say how vectors are made."""
    folder = shutil.copytree(encoder_folder, tmp_path / "encoder")
    describe_encoder(folder, 32, DualShape(True, "mean", True, 0.05))
    return folder


def test_a_collection_with_a_test_split_alone_runs_to_its_report(tmp_path, described, documents):
    write_beir(tmp_path / "data", documents, splits=("test",))
    init(tmp_path, "data", "--encoder", str(described))
    build_in(tmp_path, "summary", "mine.yaml")
    status, output = run_here(snakemake(tmp_path, ("--quiet", "rules"), ("mine.yaml",)))
    assert status == 0, output
    (path,) = tmp_path.rglob("tables/summary.csv")
    with path.open() as file:
        assert {row["system"] for row in csv.DictReader(file) if row["value"]} == {
            "BM25",
            "Encoder, untrained",
        }
    assert len(list(tmp_path.rglob("report.html"))) == 1


def test_a_collection_with_training_queries_is_planned_with_every_system(
    tmp_path, described, documents
):
    """The tutorial is one that is run."""
    write_beir(tmp_path / "data", documents)
    init(tmp_path, "data", "--encoder", str(described))
    status, output = run_here(snakemake(tmp_path, ("-n",), ("mine.yaml",)))
    assert status == 0, output
    assert jobs(output)["score"] == 8


@pytest.mark.parametrize(
    ("name", "source", "scores"),
    [
        ("scifact", "beir", 8),
        ("xquad-zh-en", "beir", 2),
        ("cn-med-im", "beir", 8),
        ("rocketqa-samples", "rocketqa_tsv", 8),
    ],
)
def test_real_collections_are_planned(tmp_path, real, name, source, scores):
    page = init(tmp_path, str(real(name)))
    assert f"format {source}: " in page
    status, output = run_here(snakemake(tmp_path, ("-n",), ("mine.yaml",)))
    assert status == 0, output
    assert jobs(output)["score"] == scores


def test_a_collection_of_ir_datasets_is_planned(tmp_path, real):
    shutil.copytree(real("ir_datasets_home"), tmp_path / "home")
    home = {"IR_DATASETS_HOME": str(tmp_path / "home"), "IR_DATASETS_SMALL_FILE_SIZE": "0"}
    page = init(tmp_path, "ir_datasets:cranfield", **home)
    assert "format ir_datasets: 1,400 passages, queries: test 225" in page
    status, output = run_here(snakemake(tmp_path, ("-n",), ("mine.yaml",)))
    assert status == 0, output
    assert jobs(output)["score"] == 2


def test_questions_without_passages_are_one_line(tmp_path, real, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, output = run_here(
        [sys.executable, "-m", "tandem", "init", "mine", "--data", real("qa-dpr-nq")]
    )
    assert status == 1
    assert output.startswith("tandem init: --data ")
    assert len(output.splitlines()) == 1
    assert not list(tmp_path.iterdir())
