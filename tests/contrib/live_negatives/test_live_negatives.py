"""Negatives that the query's tower retrieves at every step: which they are, what learns, and a killed training."""

import numpy as np
import pytest
import torch
from comparing import interrupt
from pydantic import ValidationError
from pytest import approx

from tandem.config.losses import supervision
from tandem.config.training import OWN_OBJECTIVES, DualTrain
from tandem.contrib.live_negatives.live import FrozenPassages, Live
from tandem.data.collection import Collection
from tandem.data.rows import index_queries
from tandem.models.dual import load_dual
from tandem.models.tokens import Tokens
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.encode import run as encode
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256
from tandem.training.distributed import SINGLE_PROCESS, World
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch, Positives
from tandem.training.stage import run

DEPTH = 6
TRAIN = {
    "choose": "last",
    "in_batch": False,
    "loss": "lambda_mrr",
    "live_negatives": DEPTH,
    "list_size": 2,
}
ENCODE = {"side": "passages", "split": None, "precision": "fp32", "batch_tokens": 256, "block": 16}
BIG = Budget(1 << 20, 1 << 20)


@pytest.fixture(scope="module", params=[False, True], ids=["two towers", "one tower"])
def start(request, make_model, tmp_path_factory):
    """A trained dual encoder of two towers, or of one."""
    folder = tmp_path_factory.mktemp("start") / "de-0000000041"
    return make_model(folder, ("dual",), seed=4, shared=request.param)


@pytest.fixture(scope="module")
def passages(make_job, start, dataset, tokens, tmp_path_factory):
    """Its vectors of the passages."""
    inputs = {"dataset": dataset, "model": start, "tokens": tokens}
    job = make_job(
        "embeddings", tmp_path_factory.mktemp("vectors") / "de.passages-0000000042", ENCODE, inputs
    )
    encode(job)
    return open_artifact(job.out)


@pytest.fixture
def live(start, passages, dataset, tokens):
    """`live(positives, budget)`: the objective, before any step."""

    def make(positives, budget=BIG):
        model = load_dual(start.folder / "dual")
        model.untie()
        train = DualTrain.model_validate(TRAIN | {"precision": "fp32"})
        frozen = FrozenPassages(passages, dataset, None, 1)
        opened = Tokens.open(tokens)
        return Live(
            model, opened, train, positives, budget, SINGLE_PROCESS, passages=frozen, depth=DEPTH
        )

    return make


@pytest.fixture
def live_job(model_job, start, passages, tmp_path):
    """`live_job(name, **execution)`: a training with live negatives."""

    def make(name, **execution):
        shape = {"shared": False, "pooling": "cls"}
        more = {"start": start, "passages": passages}
        return model_job("dual", tmp_path / f"{name}-0123456789", TRAIN, shape, more, **execution)

    return make


def batch_of(dataset):
    """Two training queries with a passage each that somebody says is relevant."""
    collection = Collection(dataset)
    queries = index_queries(collection).rows(list(collection.queries("train"))[:2])
    return Batch(np.asarray(queries), np.array([[7, 20], [40, 3]]))


def test_negatives_are_what_the_model_ranks_highest_at_this_step(
    live, dataset, passages, start, tokens
):
    batch = batch_of(dataset)
    objective = live(Positives(batch.queries, batch.passages[:, 0]))
    queries = objective.vectors.encode_side("query", batch.queries, Seeds((1, 2))).values().detach()
    vectors = Embeddings(passages, "passages").take(0, 60).astype(np.float32)
    ranking = np.argsort(-(queries.numpy() @ vectors.T), axis=1, kind="stable")
    lists = objective.retrieved(queries, batch)
    for row, positive in enumerate((7, 40)):
        expected = [passage for passage in ranking[row, :DEPTH].tolist() if passage != positive]
        assert lists.passages[row, 0] == positive
        assert [passage for passage in lists.passages[row, 1:].tolist() if passage >= 0] == expected

    with torch.no_grad():  # the query's tower moves, and with it what is retrieved
        for parameter in objective.model.towers["query"].parameters():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    moved = objective.vectors.encode_side("query", batch.queries, Seeds((1, 2))).values().detach()
    assert objective.retrieved(moved, batch).passages.tolist() != lists.passages.tolist()


def test_the_loss_by_hand_and_a_gradient_of_the_query_s_tower_alone(
    live, dataset, gradients, passages
):
    batch = batch_of(dataset)
    objective = live(Positives(batch.queries, batch.passages[:, 0]))
    queries = objective.vectors.encode_side("query", batch.queries, Seeds((1, 2))).values().detach()
    lists = objective.retrieved(queries, batch)
    vectors = torch.from_numpy(Embeddings(passages, "passages").take(0, 60).astype(np.float32))
    losses = []
    for row in range(2):
        standing = [passage for passage in lists.passages[row].tolist() if passage >= 0]
        scores = (vectors[standing] @ queries[row])[None]
        losses.append(
            float(supervision["lambda_mrr"](scores, torch.ones_like(scores, dtype=torch.bool)))
        )
    values, learned = gradients(objective, batch)
    assert values == {"loss": approx(sum(losses) / 2, rel=1e-5)}
    assert learned
    assert all("towers.query" in name for name in learned)

    # every query alone, vectors cached
    small, in_parts = gradients(live(objective.positives, Budget(8, 8)), batch)
    assert small == approx(values, rel=1e-5)
    for name, gradient in learned.items():
        torch.testing.assert_close(in_parts[name], gradient, rtol=1e-4, atol=1e-6)


def test_a_process_without_a_query_of_a_small_batch_adds_nothing(live, dataset):
    batch = batch_of(dataset)
    objective = live(Positives(batch.queries, batch.passages[:, 0]))
    objective.world = World(rank=1, size=2)
    alone = batch.select(slice(0, 1))
    assert not len(objective.world.share(alone).queries)
    assert objective.backward(alone, Seeds((1, 2))) == {"loss": 0.0}


def test_a_known_positive_that_is_retrieved_is_no_negative(live, dataset):
    batch = batch_of(dataset)
    objective = live(Positives(batch.queries, batch.passages[:, 0]))
    queries = objective.vectors.encode_side("query", batch.queries, Seeds((1, 2))).values().detach()
    best = objective.retrieved(queries, batch).passages[:, 1]
    known = Positives(np.tile(batch.queries, 2), np.concatenate([batch.passages[:, 0], best]))
    lists = live(known).retrieved(queries, batch)
    assert not (lists.passages[:, 1:] == best[:, None]).any()


def test_passages_stay_and_a_killed_training_ends_with_the_same_bytes(
    live_job, start, tmp_path, monkeypatch
):
    whole = live_job("undisturbed")
    run(whole)
    job = live_job("killed", checkpoint_seconds=0)
    interrupt(lambda: run(job), 3, monkeypatch)
    run(job)
    weights = [{side: sha256(at / f"dual/{side}/model.safetensors") for side in ("query", "passage")}
               for at in (job.out, whole.out)]  # fmt: skip
    assert weights[0] == weights[1]
    before = load_dual(start.folder / "dual").towers["passage"].state_dict()
    trained = load_dual(job.out / "dual")
    after = trained.towers["passage"].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    query = trained.towers["query"].state_dict()
    start_query = load_dual(start.folder / "dual").towers["query"].state_dict()
    assert any(not torch.equal(start_query[name], query[name]) for name in query)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValidationError, match="in_batch is true, but live_negatives"):
        DualTrain.model_validate({"live_negatives": 200})
    with pytest.raises(ValidationError, match="passage_centric is set, but live_negatives"):
        DualTrain.model_validate({"live_negatives": 200, "in_batch": False, "passage_centric": 0.1})


def test_without_the_package_the_key_is_refused(monkeypatch):
    declared = {key: value for key, value in OWN_OBJECTIVES.items() if key != "live_negatives"}
    monkeypatch.setattr(OWN_OBJECTIVES, "_entries", declared)
    with pytest.raises(ValidationError, match="live_negatives: nothing learns by it"):
        DualTrain.model_validate({"live_negatives": 200, "in_batch": False})
