"""What plugins add without being named: to datasets and trainings, to every job, to tables and the report."""

import csv
import json
import os

import pytest
import tiny_project
import yaml
from tiny_project import Project, run_command

# Its name is also that of a module of the standard library, which other libraries import.
NAME = "statistics.py"
PLUGIN = '''
from contextlib import contextmanager
from pathlib import Path

import ir_measures
from ir_measures import measures, providers
from ir_measures.util import QrelsConverter, RunConverter

from tandem.cluster.progress import register_job_context
from tandem.config.table_layouts import TABLE_FORMATS
from tandem.stages.data import DATASET_OBSERVERS
from tandem.stages.evaluation import MEASURE_PROVIDERS
from tandem.stages.training import OUTCOMES


class Found(measures.Measure):
    """How many passages a query's list has, at most as many as the cutoff."""

    NAME = __name__ = "Found"
    SUPPORTED_PARAMS = {"cutoff": measures.ParamInfo(dtype=int, required=True, desc="ranks that count")}
    is_share = False


class Counting(providers.Evaluator):
    def _iter_calc(self, run):
        for query, found in RunConverter(run).as_dict_of_dict().items():
            for measure in self.measures:
                yield ir_measures.Metric(query, measure, float(min(len(found), measure["cutoff"])))


class Provider(providers.Provider):
    NAME = "mine"
    SUPPORTED_MEASURES = [Found()]

    def _evaluator(self, named, qrels):
        return Counting(named, set(QrelsConverter(qrels).as_dict_of_dict()))


class Letters:
    def __init__(self, queries):
        self.number = 0

    def add(self, ids, titles, texts):
        self.number += sum(map(len, texts))

    def facts(self):
        return {"letters": self.number}

    def notes(self):
        return []


@contextmanager
def count_jobs(words):
    with Path("jobs.txt").open("a") as file:
        file.write(words[0] + "\\n")
    yield


measures.register(Found())
MEASURE_PROVIDERS["mine"] = Provider
DATASET_OBSERVERS["letters"] = Letters
OUTCOMES["mine"] = lambda params, train, log, lists: ({"lists_of_mine": len(lists)}, [])
TABLE_FORMATS[".count"] = lambda table, grids, out: f"{len(table.rows)} rows"
register_job_context("count", count_jobs)
'''
LAYOUT = {
    "title": "Mine",
    "columns": [{"measure": "Found@3"}],
    "rows": [
        {"system": "BM25", "run": "bm25"},
        {"system": "DE", "run": "de_bm25neg"},
    ],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory, encoder_folder, documents):
    folder = tmp_path_factory.mktemp("views")
    project = Project(folder, encoder_folder, documents)
    (folder / NAME).write_text(PLUGIN)
    (folder / "mine.yaml").write_text(yaml.safe_dump(LAYOUT))
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config |= {
        "plugins": [NAME],
        "tables": [str(folder / "mine.yaml")],
        "recipes": ["dureader_retrieval"],
    }
    config["models"] |= {"ce_bm25neg": None, "ce_deneg": None, "rocketqav2": None}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    code, output = run_command(project.line(), env=os.environ | tiny_project.variables_of_stages())
    assert code == 0, output
    return project


def read_manifest(project, kind):
    (path,) = project.folder.glob(f"results/*/{kind}/*/stage.json")
    return json.loads(path.read_text())


def test_a_measure_that_is_no_share_is_shown_as_it_is(project):
    rows = csv.DictReader((project.folder / "results/tables/mine.csv").open())
    assert [row["value"] for row in rows] == ["3.0000", "3.0000"]
    assert "3.00" in (project.folder / "results/report.html").read_text()


def test_a_format_of_tables_is_written(project):
    assert (project.folder / "results/tables/mine.count").read_text() == "2 rows"


def test_what_looks_at_a_dataset_or_a_training_is_in_its_key(project, documents):
    dataset, model = (read_manifest(project, kind) for kind in ("dataset", "model"))
    assert dataset["facts"]["letters"]["letters"] == sum(len(text) for _, _, text in documents)
    assert model["facts"]["lists_of_mine"] == model["facts"]["lists"]
    for manifest in (dataset, model):
        (label,) = manifest["params"]["plugins"]
        assert label.startswith(f"{NAME}@")


def test_a_context_is_every_jobs(project):
    kinds = {path.parts[-3] for path in project.folder.glob("results/*/*/*/stage.json")}
    assert set((project.folder / "jobs.txt").read_text().split()) == kinds
    assert "plugins" not in read_manifest(project, "encoder")["params"]
