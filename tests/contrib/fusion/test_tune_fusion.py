"""Tuning: the grid's values are those of ir-measures, its best is chosen, and `score` finds the same value."""

import csv
import json

import ir_measures
import numpy as np
import pytest
from trec import iter_trec

from tandem.contrib.fusion import fuse
from tandem.contrib.fusion.options import FuseParams
from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.evaluation import scores as scoring
from tandem.evaluation.scores import read_score_summary
from tandem.store.artifact import open_artifact

WEIGHTED = {
    "method": "weighted",
    "normalize": "z_score",
    "depth": 15,
    "split": "dev",
    "measure": "nDCG@10",
    "step": 0.1,
}
RRF = {"method": "rrf", "k": [60.0, 0.0, 10.0], "depth": 15, "split": "dev", "measure": "RR@10"}


@pytest.fixture
def dataset(make_dataset, documents, tmp_path):
    """The tiny collection, where each dev query is also a passage."""
    names = dict.fromkeys(doc.partition("-")[0] for doc, _, _ in documents)
    queries = [(f"dev-{name}", "", "?") for name in names]
    return make_dataset(tmp_path / "dataset" / "asked-0123456789", [*documents, *queries])


@pytest.fixture
def runs(release, random_hits):
    """A good run of dev and a poor one, each without the results of some queries."""
    good = []
    for number, (query, docs, scores) in enumerate(random_hits("dev", 5)):
        if number % 2:
            relevant, scores[0] = f"{query.removeprefix('dev-')}-1", 5.5
            docs = [relevant, *(doc for doc in docs if doc != relevant)][:12]
        good.append((query, docs, scores))
    return [release(good[:-1], "dev"), release(random_hits("dev", 6)[2:], "dev")]


@pytest.fixture
def tune(make_job, dataset, tmp_path):
    """`tune(params, *runs)`: the artifact."""

    def make(params, *runs):
        inputs = {"dataset": dataset, **{f"run.{at}": artifact for at, artifact in enumerate(runs)}}
        out = tmp_path / "tune_fusion" / f"t{len(list(tmp_path.glob('tune_fusion/*')))}-0123456789"
        fuse.run_fusion_tuning(make_job("tune_fusion", out, params, inputs))
        return open_artifact(out, "tune_fusion")

    return make


@pytest.mark.parametrize("params", [RRF, WEIGHTED], ids=["rrf", "weighted"])
def test_where_no_run_finds_anything_the_first_setting_is_taken_with_a_warning(
    tune, release, params
):
    artifact = tune(params, release([], "dev"), release([], "dev"))
    chosen = json.loads(artifact.path("chosen.json").read_text())
    assert chosen == ({"k": 60.0} if params is RRF else {"weights": [0.5, 0.5]})
    [line] = artifact.manifest.facts["warnings"]
    assert "on dev is 0 for all settings" in line


@pytest.fixture
def measured(make_job, dataset, tmp_path):
    """`measured(params, *runs)`: the fused run of the stage `fuse`, its mean by `score` and by ir-measures itself."""

    def make(params, *runs):
        inputs = {"dataset": dataset, **{f"run.{at}": artifact for at, artifact in enumerate(runs)}}
        number = len(list(tmp_path.glob("fuse/*")))
        own = {name: value for name, value in params.items() if name in FuseParams.model_fields}
        job = make_job("fuse", tmp_path / "fuse" / f"f{number}-0123456789", own, inputs)
        fuse.run(job)
        fused, name = open_artifact(job.out), params["measure"]
        settings = {"measures": [name], "split": params["split"]}
        if params.get("ignore_identical_ids"):
            settings["ignore_identical_ids"] = True
        score = make_job(
            "score",
            tmp_path / "score" / f"s{number}-0123456789",
            settings,
            {"dataset": dataset, "run": fused},
        )
        scoring.run(score)
        ranked = {
            query: {doc: float(-rank) for rank, doc in enumerate(docs)}
            for query, docs, _ in iter_trec(fused.path("run.trec"))
        }
        qrels, measure = Collection(dataset).qrels(params["split"]), ir_measures.parse_measure(name)
        ours = read_score_summary(open_artifact(score.out)).mean[name]
        theirs = sum(
            metric.value for metric in ir_measures.iter_calc([measure], qrels, ranked)
        ) / len(qrels)
        return ours, theirs

    return make


def grid(artifact):
    """The rows of grid.csv: numbers by column."""
    with artifact.path("grid.csv").open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_the_chosen_weights_are_the_best_of_the_grid(tune, measured, runs):
    tuned = tune(WEIGHTED, *runs)
    rows = grid(tuned)
    assert len(rows) == 11
    values = []
    for row in rows:
        weights = [row["weights.0"], row["weights.1"]]
        ours, theirs = measured({**WEIGHTED, "weights": weights}, *runs)
        assert row["nDCG@10"] == pytest.approx(ours, abs=1e-14) == pytest.approx(theirs, abs=1e-12)
        values.append(theirs)
    assert max(values) > min(values) + 0.05
    chosen = json.loads(tuned.path("chosen.json").read_text())
    best = int(np.argmax(values))
    assert chosen == {"weights": [rows[best]["weights.0"], rows[best]["weights.1"]]}
    assert chosen["weights"] != [0.5, 0.5]
    assert (
        tuned.manifest.facts["chosen"],
        tuned.manifest.facts["settings"],
        tuned.manifest.facts["queries"],
    ) == (
        chosen,
        11,
        20,
    )
    assert tuned.manifest.facts["value"] == pytest.approx(values[best])


def test_the_constant_of_reciprocal_ranks_is_tuned_likewise(tune, measured, runs):
    tuned = tune(RRF, *runs)
    rows = grid(tuned)
    assert [row["k"] for row in rows] == [60, 0, 10]
    values = [measured({**RRF, "k": row["k"]}, *runs)[1] for row in rows]
    assert [row["RR@10"] for row in rows] == pytest.approx(values)
    assert json.loads(tuned.path("chosen.json").read_text()) == {
        "k": rows[int(np.argmax(values))]["k"]
    }


def test_of_equally_good_weights_the_most_even_are_chosen(tune, runs):
    tuned = tune(WEIGHTED | {"step": 0.25}, runs[0], runs[0], runs[0])
    assert len({round(row["nDCG@10"], 12) for row in grid(tuned)}) == 1
    assert tuned.manifest.facts["chosen"] == {"weights": [0.5, 0.25, 0.25]}


def test_a_measure_without_a_cutoff_sees_the_whole_list(tune, measured, runs):
    tuned = tune(WEIGHTED | {"measure": "AP", "step": 0.5}, *runs)
    for row in grid(tuned):
        weights = [row["weights.0"], row["weights.1"]]
        assert row["AP"] == pytest.approx(
            measured({**WEIGHTED, "measure": "AP", "weights": weights}, *runs)[0]
        )


def test_a_querys_own_id_is_left_out_where_the_dataset_says_so(
    tune, measured, release, random_hits
):
    lists = [
        (query, [query, *docs], [99.0, *scores]) for query, docs, scores in random_hits("dev", 5)
    ]
    runs = [release(lists, "dev"), release(random_hits("dev", 6), "dev")]
    params = WEIGHTED | {"measure": "RR@3", "ignore_identical_ids": True, "step": 0.5}
    for row in grid(tune(params, *runs)):
        weights = [row["weights.0"], row["weights.1"]]
        assert row["RR@3"] == pytest.approx(measured({**params, "weights": weights}, *runs)[0])
    assert grid(tune(params, *runs)) != grid(tune({**params, "ignore_identical_ids": False}, *runs))


def test_queries_are_measured_in_groups_to_the_same_bytes(tune, runs, monkeypatch):
    whole = tune(WEIGHTED, *runs).manifest.files
    monkeypatch.setattr(fuse, "QUERIES_PER_CHUNK", 7)
    assert tune(WEIGHTED, *runs).manifest.files == whole


def test_mistakes_leave_nothing_behind(tune, release, random_hits, runs, tmp_path):
    with pytest.raises(UserError, match="nope is not a measure"):
        tune(WEIGHTED | {"measure": "nope"}, *runs)
    with pytest.raises(UserError, match="is a run of split test, but split is dev"):
        tune(WEIGHTED, runs[0], release(random_hits("test", 1)))
    assert not list(tmp_path.glob("tune_fusion/*/stage.json"))
