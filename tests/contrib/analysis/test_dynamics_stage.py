"""Score distributions over steps: the stage's numbers against scores computed text by text."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from listed import listed_rows

from tandem.contrib.analysis.dynamics import (
    COMPARED,
    compare_scores,
    list_points,
    run,
    sample_lists,
)
from tandem.extras.validation.validation_sets import draw_apart
from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.tokens import Tokens
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_json
from tandem.training.instances import draw_list
from tandem.training.lists import read_lists

SCORING = {"precision": "fp32", "batch_tokens": 2048}


@pytest.fixture(scope="module")
def inputs(dataset, tokens, drawn, joint_model, make_model, results, dual_model, cross_model):
    """A joint model after four steps, its checkpoint after two, and what it started from."""
    before = make_model(
        results / "model" / "joint.1-00000000d1", ("dual", "cross"), seed=9, temperature=0.5
    )
    after = [
        Artifact(
            model.folder,
            model.manifest.model_copy(update={"facts": {**model.manifest.facts, "steps": steps}}),
        )
        for model, steps in ((joint_model, 4), (before, 2))
    ]
    return {
        "dataset": dataset, "candidates": drawn, "tokens": tokens, "cross_tokens": tokens,
        "point.0": after[1], "point.1": after[0], "retriever": dual_model, "reranker": cross_model,
    }  # fmt: skip


@pytest.fixture
def job(make_job, inputs, tmp_path):
    """`job(**more)`: the stage's job with these inputs instead; None leaves one out."""

    def make(queries=4, positives=1, list_size=4, set_apart=None, **more):
        sources = {
            role: artifact for role, artifact in {**inputs, **more}.items() if artifact is not None
        }
        params = {"queries": queries, "list_size": list_size, "positives": positives, "seed": 5}
        params |= {"set_apart": set_apart, **SCORING, "encode": SCORING}
        return make_job("dynamics", tmp_path / "joint-00000000d2", params, sources, {"workers": 1})

    return make


def rows_of(job):
    run(job)
    return pq.read_table(open_artifact(job.out).path("dynamics.parquet")).to_pylist()


@torch.no_grad()
def test_each_number_is_that_of_the_models(job, inputs, tokens):
    stage = job()
    rows, sampled, texts = rows_of(stage), sample_lists(stage), Tokens.open(tokens)
    assert [row["step"] for row in rows] == [0] * 4 + [2] * 4 + [4] * 4
    starts = np.concatenate([[0], sampled.ends])
    for at, (step, dual_of, cross_of) in enumerate([
        (0, "retriever", "reranker"), (2, "point.0", "point.0"), (4, "point.1", "point.1")
    ]):  # fmt: skip
        dual = DualEncoder.load(inputs[dual_of].folder / "dual").eval()
        cross = CrossEncoder.load(inputs[cross_of].folder / "cross").eval()
        for number, query in enumerate(sampled.ids):
            own = slice(starts[number], starts[number + 1])
            query_rows, passages = (
                sampled.queries[own],
                [texts.passages[p] for p in sampled.passages[own]],
            )
            q = dual.encode("query", [texts.queries[query_rows[0]]], texts.template, "fp32")
            p = dual.encode("passage", passages, texts.template, "fp32")
            de = (p @ q[0] / dual.temperature).double().numpy()
            ce = (
                cross([texts.queries[a] for a in query_rows], passages, texts.template, "fp32")
                .double()
                .numpy()
            )
            row, expected = (
                rows[4 * at + number],
                dict(zip(COMPARED, compare_scores(de, ce), strict=True)),
            )
            assert (row["step"], row["query_id"]) == (step, query)
            # vectors are kept in fp16: three digits
            assert [row[name] for name in expected] == pytest.approx(
                list(expected.values()), rel=5e-3, abs=2e-3
            )


def test_lists_are_those_that_the_training_draws_first(job, drawn):
    sampled = sample_lists(job(queries=3))
    assert len(sampled.ids) == 3
    table = listed_rows(drawn)
    for query, passages in zip(
        sampled.ids, np.split(sampled.passages, sampled.ends[:-1]), strict=True
    ):
        own = [row for row in table if row["query_id"] == query and row["list"] == "undenoised"]
        assert len(passages) == 4
        assert passages[0] == own[0]["passage_row"]
        assert set(passages[1:]) < {row["passage_row"] for row in own[1:]}


def test_lists_have_the_trainings_positives(job, drawn):
    once, twice = sample_lists(job(queries=3)), sample_lists(job(queries=3, positives=2))
    assert once.ids == twice.ids
    table = listed_rows(drawn)
    for query, passages in zip(twice.ids, np.split(twice.passages, twice.ends[:-1]), strict=True):
        own = [row for row in table if row["query_id"] == query and row["list"] == "undenoised"]
        positives = {row["passage_row"] for row in own if row["label"]}
        assert len(positives & set(passages.tolist())) == min(2, len(positives))


def test_queries_that_the_training_sets_apart_are_no_sample(job, drawn):
    lists = read_lists(drawn.path("candidates.parquet"))
    apart = draw_apart(lists, 3, seed=5)  # as `job` has it
    assert len(apart)
    every, trained = sample_lists(job(queries=1000)), sample_lists(job(queries=1000, set_apart=3))
    assert {*apart} < {*every.queries}
    assert {*trained.queries} == {*every.queries} - {*apart}
    # a list is drawn by its number among those that are trained on
    left = lists.select(np.flatnonzero(~np.isin(lists.queries, apart)))
    last = draw_list(left, len(left) - 2, 4, 5, 0)  # the first of the last query's two
    assert set(left.passages[last]) == set(trained.passages[trained.queries == left.queries[-1]])


def test_lists_are_as_long_as_the_data_have_decided(job, inputs):
    model = inputs["point.0"]
    facts = {**model.manifest.facts, "sizes": {"list_size": 3, "positives": 1}}
    sized = Artifact(model.folder, model.manifest.model_copy(update={"facts": facts}))
    sampled = sample_lists(job(list_size=None, **{"point.0": sized}))
    assert np.diff(sampled.ends, prepend=0).tolist() == [3] * 4


def test_a_start_that_was_not_trained_is_left_out(job, encoder):
    assert {row["step"] for row in rows_of(job(queries=2, retriever=encoder))} == {2, 4}


@pytest.mark.parametrize(("chosen", "steps"), [(1, [0, 1, 2]), (0, [0, 2])])
def test_a_model_that_dev_has_chosen_stands_at_its_step(job, inputs, tmp_path, chosen, steps):
    """Its training went on for four steps; where the start was kept, that is the start."""
    model = inputs["point.1"]
    folder = shutil.copytree(model.folder, tmp_path / "joint-00000000d3")
    write_json(folder / "model.json", {"objective": "joint", "best": [0.5, chosen]})
    points = list_points(job(**{"point.1": Artifact(folder, model.manifest)}))
    assert [step for step, _, _ in points] == steps
    assert {own.folder for step, *parts in points for own in parts if step == chosen} == {folder}
