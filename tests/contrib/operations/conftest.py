"""Finished stages of made-up content under their real keys, and a small table over them."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tandem.cli import run
from tandem.config.settings import Execution
from tandem.contrib.operations.gc import plan_everything
from tandem.extras.targets import Configuration, list_stages_of_all
from tandem.plan.graph import Stage
from tandem.report.results import Cell, FilledColumn, FilledRow, Lineage, Table
from tandem.store.artifact import MANIFEST, Artifact, open_artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing


class UncheckedJob(Job):
    """A job whose parameters need not be those of its kind: a few are enough to tell artifacts apart."""

    def __post_init__(self) -> None:
        """Leave everything as it is."""


@dataclass
class Project:
    """Makes artifacts below `results/`, whose keys are those that planning gives."""

    root: Path

    def make(self, stage, files=None, **facts) -> Artifact:
        """Write a stage's artifact; its inputs must be there."""
        folder = self.root / stage.folder
        inputs = {
            role: open_artifact(self.root / source.folder)
            for role, source in stage.upstream.items()
        }
        with writing(
            UncheckedJob(stage.kind, folder, stage.values, inputs, Execution(workers=2))
        ) as draft:
            for file, content in (files or {"data.txt": f"{stage.kind} {stage.name}"}).items():
                draft.path(file).write_text(content, encoding="utf-8")
            draft.facts |= facts
        return open_artifact(folder)

    def folder(self, stage) -> Path:
        return self.root / stage.folder

    def manifest(self, stage, **changes):
        """The manifest of a stage, with some of it written anew."""
        path = self.root / stage.manifest
        content = json.loads(path.read_text())
        if changes:
            write_json(path, {**content, **changes})
        return content


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    """An empty project, which is the working folder."""
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


@pytest.fixture
def chain(project):
    """dataset → lucene → bm25 → score, all finished; name → stage."""
    data = Stage("dataset", "toy", "toy", {"source": "beir", "fingerprint": "00"})
    lucene = Stage("lucene", "toy", "default", {"analyzer": "default"}, {"dataset": data})
    params = {"k1": 0.9, "b": 0.4, "split": "test"}
    run = Stage("bm25", "toy", "bm25.test", params, {"dataset": data, "lucene": lucene})
    score = Stage(
        "score",
        "toy",
        "bm25.test",
        {"measures": ["RR@10"], "split": "test"},
        {"dataset": data, "run": run},
    )
    stages = {"dataset": data, "lucene": lucene, "bm25": run, "score": score}
    for stage in stages.values():
        project.make(stage, {"run.trec": "q Q0 d 1 2.0 t\n"} if stage is run else None)
    return stages


@pytest.fixture
def of_plugin(chain, project):
    """The folder of a finished artifact whose kind only a plugin declares that is not loaded, beside the chain."""
    folder = project.root / "results/toy/shortest_first" / chain["bm25"].key
    folder.parent.mkdir()
    project.folder(chain["bm25"]).rename(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    write_json(folder / MANIFEST, {**manifest, "kind": "shortest_first"})
    project.make(chain["bm25"], {"run.trec": "q Q0 d 1 2.0 t\n"})
    return folder


def table_of(*rows) -> Table:
    """A table of (system, a score stage of each seed …): RR@10 = 12.34; printed values have one decimal."""
    filled = []
    for system, *scores in rows:
        runs = [score.upstream["run"] for score in scores]
        lineages = [
            Lineage(
                score.key, run.key, run.folder, column="", dataset="toy", split="test", seed=seed
            )
            for seed, (score, run) in enumerate(zip(scores, runs, strict=True))
        ]
        keys = [run.key for run in runs]
        cell = Cell(
            "RR@10", 36.0, 12.34, 10.0, 14.0, None, None, stages=keys, dataset="toy", split="test"
        )
        filled.append(FilledRow(system, "", "", keys[0], runs[0].folder, [cell], lineage=lineages))
    column = FilledColumn("RR@10", "MRR@10", "MRR@10 (RR@10)", "", "", "", ["toy test, 20 queries"])
    return Table("Tiny", None, None, 1, "", [column], filled)


@pytest.fixture
def write_table(project):
    """`write_table(name, (system, score stage of each seed …), …)`: the JSON that `tandem table` writes."""

    def write(name, *rows, views="results"):
        path = project.root / views / "tables" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(table_of(*rows).to_json())
        return path

    return write


@pytest.fixture
def run_command(capsys):
    """`run_command(command, *words)`: exit status and lines of a command."""

    def call(*words):
        capsys.readouterr()
        status = run([str(word) for word in words])
        return status, capsys.readouterr().out.splitlines()

    return call


@pytest.fixture
def configured_toy(project):
    """A configuration with BM25's table of a collection of one passage; the stages of `rule all` are finished."""
    folder = project.root / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d", "title": "", "text": "otters eat crabs"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "what eats crabs"}\n')
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    config = {
        "dataset": "toy",
        "datasets": {"toy": {"source": "beir", "path": str(folder)}},
        "tables": ["baseline"],
    }
    (project.root / "toy.yaml").write_text(yaml.safe_dump(config))
    configuration = Configuration([Path("toy.yaml")])
    stages = list_stages_of_all(plan_everything(configuration))
    for stage in stages:
        project.make(stage)
    return stages
