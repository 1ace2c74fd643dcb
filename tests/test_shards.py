"""Stages whose rows are split into parts: three shards, one process and a restarted one give the same bytes."""

import json
import shutil
from dataclasses import replace
from itertools import chain

import pytest

from tandem.models import tokenisation
from tandem.negatives import candidates
from tandem.retrieval.lexical import bm25
from tandem.stages import KINDS
from tandem.store.artifact import open_artifact
from tandem.store.job import load, plain, run_shard

STAGES = {"tokens": tokenisation.run, "bm25": bm25.run, "candidates": candidates.run}
JUDGED = {
    "precision": "fp32",
    "batch_tokens": 256,
    "denoise": {"negative_below": 0.6, "calibrate": "dev"},
}
NEW = {"seconds", "finished", "peak_memory_mib", "execution", "machine"}  # in every manifest


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    # of 60 passages and 20 queries
    for kind, rows in {"tokens": 7, "bm25": 3, "candidates": 3}.items():
        monkeypatch.setitem(
            KINDS, kind, replace(KINDS[kind], part=replace(KINDS[kind].part, rows=rows))
        )
    monkeypatch.setattr(candidates, "QUERIES_PER_ROW_GROUP", 4)  # of 17 queries that are drawn for
    # A manifest names what its process has looked up: this, whoever reads the words of a stage.
    load("extras.stage_inputs:StageInputs")


@pytest.fixture
def runs(results, make_job, dataset, tmp_path):
    """BM25's runs of the train and of the dev queries, five passages each, and bm25s' index."""
    job = make_job("bm25s", tmp_path / "bm25s-0000000001", {}, {"dataset": dataset})
    load(KINDS[job.kind].run)(job)
    artifacts = {"bm25s": open_artifact(job.out)}
    for split in ("train", "dev"):
        params = {"split": split, "depth": 5, "k1": 0.9, "b": 0.4}
        inputs = {"dataset": dataset, "bm25s": artifacts["bm25s"]}
        job = make_job("bm25", tmp_path / f"bm25.{split}-0000000002", params, inputs)
        bm25.run(job)
        artifacts[split] = open_artifact(job.out)
    return artifacts


@pytest.fixture(params=["tokens", "bm25", "candidates", "judged"])
def job(request, make_job, make_tokens, dataset, encoder, cross_model, runs, tmp_path):
    """A job of each kind that is made in parts."""
    folder = tmp_path / "tiny"
    if request.param == "tokens":
        params = {"query_length": 16, "passage_length": 24}
        return make_job(
            "tokens",
            folder / "tokens/t-0123456789",
            params,
            {"dataset": dataset, "encoder": encoder},
        )
    if request.param == "bm25":
        return make_job(
            "bm25",
            folder / "bm25/b-0123456789",
            plain(runs["train"].params),
            {"dataset": dataset, "bm25s": runs["bm25s"]},
        )
    # of its own: scored pairs are stored beside it
    tokens = make_tokens(folder / "tokens/tiny-0123456789", dataset)
    inputs = {"dataset": dataset, "run": runs["train"], "tokens": tokens}
    params = {"depth": 5, "negatives": 3, "split": "train", "seed": 1, "queries": 17}
    if request.param == "judged":
        inputs |= {"calibration": runs["dev"], "judge.0": cross_model, "judge_tokens.0": tokens}
        params |= JUDGED
    return make_job("candidates", folder / "candidates/c-0123456789", params, inputs)


def finished(job):
    """What the manifest says, without what is new in each, and the bytes of the files; the artifact is removed."""
    manifest = json.loads((job.out / "stage.json").read_text())
    files = {name: (job.out / name).read_bytes() for name in manifest["files"]}
    assert not (job.out / "work").exists()
    shutil.rmtree(job.out)
    return {name: value for name, value in manifest.items() if name not in NEW}, files


def shard(job, number, make_job, command):
    """What a shard of three says that it has done."""
    own = make_job(job.kind, job.out, plain(job.params), job.inputs, {"shard": number, "shards": 3})
    run_shard(f"{job.kind}-shard", command(own, f"shards/{number}-of-3.json"))
    return json.loads((job.out / f"shards/{number}-of-3.json").read_text())["parts"]


def test_three_shards_change_no_byte(job, make_job, command):
    STAGES[job.kind](job)
    alone = finished(job)
    parts = [shard(job, number, make_job, command) for number in (2, 0, 1)]
    every = [*chain.from_iterable(parts)]
    assert sorted(every) == [*range(len(every))]
    assert min(map(len, parts)) >= 2
    STAGES[job.kind](job)
    assert finished(job) == alone


def test_what_a_killed_stage_has_finished_is_not_made_again_unless_it_is_damaged(
    job, make_job, command
):
    STAGES[job.kind](job)
    alone = finished(job)
    first, second, *_ = shard(job, 1, make_job, command)
    marks = {number: job.out / f"work/{number:05d}.json" for number in (first, second)}
    before = {number: mark.stat().st_mtime_ns for number, mark in marks.items()}
    part = next(
        path for path in sorted((job.out / "work").glob(f"{second:05d}*")) if path.suffix != ".json"
    )
    damaged = next(path for path in ([part] if part.is_file() else sorted(part.iterdir())))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    shard(job, 1, make_job, command)
    after = {number: mark.stat().st_mtime_ns for number, mark in marks.items()}
    assert after[first] == before[first]
    assert after[second] > before[second]
    STAGES[job.kind](job)
    assert finished(job) == alone
