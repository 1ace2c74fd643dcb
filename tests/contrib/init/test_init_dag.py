"""What `tandem init` writes runs as it is: on generated collections, and as a dry run on real ones."""

import csv
import os
import shutil
import sys
from contextlib import chdir
from pathlib import Path

import pytest
import tiny_project
import yaml
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


FAQ = """
from typing import Literal

from tandem.config.datasets import Dataset
from tandem.data.dataset_files import DatasetFiles
from tandem.data.reading import read_records
from tandem.data.sources import Source, dataset_format


class FaqEntry(Dataset):
    source: Literal["faq"]


@dataset_format("faq")
class Faq(Source):
    def __init__(self, job, entry: FaqEntry) -> None:
        super().__init__(job, entry)
        path = DatasetFiles(job).find("faq.jsonl")
        self.lines = [line for _, line in read_records(path)]
        self.places = {"corpus": str(path), "queries": str(path)}

    @classmethod
    def recognise(cls, listing):
        return {} if "faq.jsonl" in listing.names else None

    def read_corpus(self):
        return ((line["id"], "", line["answer"]) for line in self.lines)

    def read_queries(self):
        return ((line["id"], line["question"], "test") for line in self.lines)

    def read_qrels(self):
        return ((line["id"], line["id"], 1, "test") for line in self.lines)
"""
QUESTION = (
    '{"id": "a", "question": "what do otters eat?", "answer": "Otters eat crabs and fish."}\n'
)


@pytest.fixture
def faq(tmp_path):
    """A working folder with a collection in a format that only a plugin reads."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/faq.jsonl").write_text(QUESTION)
    return tmp_path


def test_the_plugin_of_a_format_is_named(faq):
    """Both commands run in processes of their own: what the file registers is there for all of a process."""
    (faq / "faq.py").write_text(FAQ)
    environment = os.environ | tiny_project.variables_of_stages()
    words = ["init", "mine", "--data", "data", "--run.plugins", '["faq.py"]']
    status, output = run_command([sys.executable, "-m", "tandem", *words], cwd=faq, env=environment)
    assert status == 0, output
    assert "format faq: 1 passages, queries: test 1\n" in output
    assert yaml.safe_load((faq / "mine.yaml").read_text())["plugins"] == ["faq.py"]
    line = snakemake(faq, ("-n", "baseline"), ("mine.yaml",))
    status, output = run_command(line, cwd=faq, env=environment)
    assert status == 0, output
    assert jobs(output)["dataset"] == 1


def test_an_installed_plugin_s_format_is_recognised_and_a_broken_plugin_is_a_warning(faq):
    site = faq / "site"
    for name, source in (("bees", FAQ), ("wasps", "1 / 0\n")):
        metadata = site / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[tandem.plugins]\n{name} = {name}\n")
        (site / f"{name}.py").write_text(source)
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    page = init(faq, "data", PYTHONPATH=path)
    assert "format faq: 1 passages, queries: test 1\n" in page
    assert "warning: plugins: wasps:1: ZeroDivisionError: division by zero\n" in page
    assert yaml.safe_load((faq / "mine.yaml").read_text())["plugins"] == ["bees"]


def test_questions_without_passages_are_one_line(tmp_path, real, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, output = run_here(
        [sys.executable, "-m", "tandem", "init", "mine", "--data", real("qa-dpr-nq")]
    )
    assert status == 1
    assert output.startswith("tandem init: --data ")
    assert len(output.splitlines()) == 1
    assert not list(tmp_path.iterdir())
