"""The scores in a dataset's own training lists teach as they stand there; lists that cannot are refused."""

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pytest import approx

from tandem.config.training import DualTrain
from tandem.contrib.distillation import given_scores, teacher
from tandem.data.given import run_given
from tandem.data.tables import LISTS_SCHEMA
from tandem.errors import UserError
from tandem.negatives import candidates
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import writing
from tandem.training.instances import Instances, iter_batches
from tandem.training.lists import read_lists
from tandem.training.objectives import start_list_loss

PASSAGES = [(doc, "", f"passage {doc}") for doc in "abcd"]
QUERIES = [("q", "query one", "train"), ("r", "query two", "train"), ("t", "another", "test")]
QRELS = [("q", "a", 1, "train"), ("r", "d", 1, "train"), ("t", "a", 1, "test")]
# softmax(ln 2, 0, 0) = (1/2, 1/4, 1/4); softmax(0, ln 3) = (1/4, 3/4); what is of another split is not read
SCORED = [
    ("q", "a", 1, math.log(2)), ("q", "b", 0, 0.0), ("q", "c", 0, 0.0),
    ("r", "d", 1, 0.0), ("r", "a", 0, math.log(3)), ("t", "a", 1, None),
]  # fmt: skip


@pytest.fixture
def scored(make_job, make_collection, tmp_path):
    """`scored(rows)`: the collection, with these rows as its training lists."""

    def make(rows):
        plain = make_collection(tmp_path / "plain-0123456789", PASSAGES, QUERIES, QRELS)
        job = make_job(
            "dataset", tmp_path / "dataset" / "scored-0123456789", {"source": "written by a test"}
        )
        with writing(job) as draft:
            for name in ("corpus", "queries", "qrels"):
                pq.write_table(
                    pq.read_table(plain.path(f"{name}.parquet")), draft.path(f"{name}.parquet")
                )
            lists = pa.table([list(column) for column in zip(*rows, strict=True)], LISTS_SCHEMA)
            pq.write_table(lists, draft.path("lists.parquet"))
            write_json(draft.path("statistics.json"), {})
        return open_artifact(job.out)

    return make


@pytest.fixture
def read_scores(make_job, tmp_path):
    """`read_scores(dataset, **params)`: the stage's artifact."""

    def make(dataset, **params):
        job = make_job(
            "given_scores", tmp_path / "given_scores-0123456789", params, {"dataset": dataset}
        )
        given_scores.run(job)
        return open_artifact(job.out)

    return make


@pytest.fixture
def taught(scored, read_scores, make_job, make_tokens, tmp_path):
    """The batch of both training queries' own lists, with the scores that stand in them."""
    dataset = scored(SCORED)
    inputs = {
        "dataset": dataset,
        "tokens": make_tokens(tmp_path / "tokens" / "tiny-0123456789", dataset),
    }
    given = make_job("given", tmp_path / "given-0123456789", {}, inputs)
    run_given(given)
    params = {"first_rank": 1, "depth": 2, "negatives": None, "split": "train", "seed": 1}
    drawn = make_job(
        "candidates",
        tmp_path / "candidates-0123456789",
        params,
        inputs | {"run": open_artifact(given.out)},
    )
    candidates.run(drawn)
    lists = open_artifact(drawn.out)
    inputs |= {"candidates": lists, "run": read_scores(dataset)}
    job = make_job("teacher", tmp_path / "teacher-0123456789", {}, inputs)
    teacher.run(job)
    scores = open_artifact(job.out)
    assert scores.manifest.facts["missing"] == 0
    opened = read_lists(lists.path("candidates.parquet"), scores.path("scores.npy"))
    return next(iter_batches(Instances(opened, 3), 2, seed=1, visits=2))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        # KL from uniform scores: of three passages, and of two
        (
            "kl",
            0.5 * math.log(3 / 2) + 0.5 * math.log(3 / 4)
            + 0.25 * math.log(1 / 2) + 0.75 * math.log(3 / 2),
        ),
        # of q the pairs (a, b) and (a, c), since b and c are equal; of r the pair (a, d)
        ("ranknet", 2 * math.log(2)),
    ],
)  # fmt: skip
def test_given_scores_teach_their_distribution_by_hand(taught, loss, expected):
    distil = {"loss": loss, "supervision": 0}
    list_loss = start_list_loss(DualTrain.model_validate({"distil": distil}))
    zeros = torch.zeros(taught.passages.shape, dtype=torch.float64)
    mask = torch.from_numpy(taught.passages >= 0)
    assert mask.sum() == 5
    assert list_loss(zeros, mask, zeros, taught)["distil"].item() == approx(expected, rel=1e-6)


def change(row, score):
    """The lists with another score in a row."""
    return [*SCORED[:row], (*SCORED[row][:3], score), *SCORED[row + 1 :]]


@pytest.mark.parametrize(
    ("rows", "params", "line"),
    [
        (
            [(*row[:3], None) for row in SCORED],
            {},
            "of the 5 passages in lists of split train none has a score; name another teacher",
        ),
        (change(1, None), {}, "of the 5 passages in lists of split train 1 have no score"),
        (change(1, math.inf), {}, "1 have a score that is not a finite number; mend these"),
        (change(1, math.nan), {}, "1 have a score that is not a finite number; mend these"),
        (
            change(4, 1.0),
            {"as_logits": True},
            "all have a score from 0 to 1, a probability, but distil.loss reads logits",
        ),
    ],
)
def test_lists_that_cannot_teach_are_one_line(scored, read_scores, tmp_path, rows, params, line):
    with pytest.raises(UserError) as error:
        read_scores(scored(rows), **params)
    (message,) = str(error.value).splitlines()
    assert "scored-0123456789/lists.parquet: " in message
    assert line in message
    assert not list(tmp_path.rglob("run.parquet"))


def test_logits_and_scores_of_another_loss_are_read(scored, read_scores):
    assert read_scores(scored(SCORED), as_logits=True).manifest.facts["queries"] == 2


def test_a_dataset_without_lists_is_one_line(make_collection, read_scores, tmp_path):
    plain = make_collection(tmp_path / "plain-0123456789", PASSAGES, QUERIES, QRELS)
    with pytest.raises(UserError, match="plain-0123456789: has no training lists of its own"):
        read_scores(plain)
