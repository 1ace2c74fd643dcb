"""DeepCT's regression of term recall: targets, loss and gradient by hand, and a model that learns it."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import torch
from pytest import approx
from tiny_training import train_params, unicoil

from tandem.models.dual import load_dual
from tandem.models.ragged import Ragged
from tandem.models.saving import StaticQueries
from tandem.models.tokens import Template, Tokens
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch, Positives
from tandem.training.objectives.terms import TermRecall
from tandem.training.stage import read_training_lists, run, split_lists
from tandem.training.validation import NumberedCollection

PASSAGES = [[5, 6, 5, 7], [8]]
QUERIES = [[5, 9], [5, 6], [8, 8]]
RELEVANT = Positives(np.array([0, 1, 2]), np.array([0, 0, 1]))
BATCH = Batch(np.array([0, 2]), np.array([[0, 1], [1, -1]]))


def term_recall(model, relevant=RELEVANT, passages=PASSAGES, titles=None):
    """The objective over texts, those above; `titles` are how many tokens of each passage are its title."""
    template = Template(((2,), (3,)), ((2,), (3,), (3,)), (0, 0, 0, 1, 1), 0, titles is not None)
    texts = [Ragged.of([np.array(row) for row in rows]) for rows in (passages, QUERIES)]
    tokens = Tokens(replace(texts[0], titles=titles and np.array(titles)), texts[1], template)
    return TermRecall(
        model, tokens, train_params("unicoil", loss="term_recall"), relevant, Budget()
    )


def test_recall_loss_and_gradient_by_hand():
    model = unicoil()
    linear = model.layers("passage")[0].linear
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.constant_(linear.bias, 0.5)
    objective = term_recall(model)
    # Both of the first passage's queries have 5, one has 6, none 7.
    assert objective.recall(0).tolist() == [1.0, 0.5, 1.0, 0.0]
    assert objective.recall(1).tolist() == [1.0]
    # Every token is 0.5: (0.25 + 0 + 0.25 + 0.25) / 4 and 0.25, halved; d/db: (2 · (-0.5 + 0 - 0.5 + 0.5) / 4 - 1) / 2
    assert objective.backward(BATCH, Seeds((1, 2)))["loss"] == approx(0.21875)
    assert linear.bias.grad.item() == approx(-0.625)
    assert model.layers("query")[0].linear.bias.grad is None


def test_the_separator_of_a_title_is_no_term():
    model = unicoil()
    torch.nn.init.zeros_(model.layers("passage")[0].linear.weight)
    torch.nn.init.constant_(model.layers("passage")[0].linear.bias, 0.5)
    objective = term_recall(model, passages=[[5, 3, 6, 5, 7], [3, 8]], titles=[1, 0])
    assert objective.backward(BATCH, Seeds((1, 2)))["loss"] == approx(0.21875)  # as above


def test_terms_of_queries_that_are_validated_on_are_no_targets(quick_job, dataset):
    assert term_recall(unicoil(), RELEVANT.without(np.array([1]))).recall(0).tolist() == [
        1.0,
        0.0,
        1.0,
        0.0,
    ]
    job = quick_job("dual", train={"choose": "dev"})
    del job.inputs["validation"]  # a tenth of the training queries is set apart
    data, drawn = NumberedCollection.of(dataset), read_training_lists(job)
    known = data.list_positives(drawn)
    lists, learned, validation = split_lists(job, drawn, known, data)
    apart = validation.batch.queries
    assert len(apart) == len(known.look_up(apart)[1]) == 2
    assert len(learned.look_up(apart)[1]) == 0
    assert learned.look_up(lists.queries)[1].tolist() == known.look_up(lists.queries)[1].tolist()


def test_weights_below_0_learn_too():
    model = unicoil()
    linear = model.layers("passage")[0].linear
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.constant_(linear.bias, -1.0)
    term_recall(model).backward(BATCH, Seeds((1, 2)))
    assert linear.bias.grad.item() == approx((2 * (-2 - 1.5 - 2 - 1) / 4 - 4) / 2)


def test_a_model_learns_it(quick_job):
    shape = {
        "representation": {"type": "unicoil", "queries": "tokens"},
        "pooling": "max",
        "normalize": False,
    }
    train = {"loss": "term_recall", "steps": 20, "lr": 1e-2, "choose": "dev", "validate_every": 10}
    job = quick_job("dual", train=train, shape=shape)
    run(job)
    log = pq.read_table(job.out / "log.parquet").to_pylist()
    losses = [row["value"] for row in log if row["name"] == "loss"]
    assert np.mean(losses[-5:]) < 0.5 * losses[0]
    assert "- `term_recall`: (1/n)" in (job.out / "dual/README.md").read_text()
    model = load_dual(job.out / "dual")
    assert isinstance(model.towers["query"], StaticQueries)
    assert not list(model.towers["query"].parameters())
