"""What an input of characters costs, by hand: in encoding, and in the steps of a training."""

import pytest
from pytest import approx

from tandem import ROOT
from tandem.config.settings import ExecutionSettings
from tandem.extras.estimate.model_costs import estimate_embeddings, estimate_training
from tandem.extras.estimate.resources import Setting, Volumes
from tandem.plan.plan import Plan
from tandem.plan.sizes import EncoderShape

# 12 filters, 10 characters a word: 2 · (10 · 3 · (1 · 4 + 2 · 8) + 2 · 12² + 12 · 32)
OF_WORD = 2 * (600 + 288 + 384)
LETTERS = {
    "source": "characters", "start": "minilm", "character_size": 3, "filters": [[1, 4], [2, 8]], "highway_layers": 1,
}  # fmt: skip
SHAPE = EncoderShape(2, 32, 64, 100)


@pytest.fixture
def setting():
    size = Volumes(1000, {"train": 50, "test": 7, "dev": 20}, {"passage": 60.0, "query": 8.0})
    return Setting(lambda _: size, lambda _: SHAPE, ExecutionSettings())


@pytest.fixture
def plan(configured):
    """`plan(encoder)`: the run of a dual encoder that starts from it, after six steps without a validation."""

    def make(encoder):
        config = configured("encoders", {"letters": LETTERS})
        train = {"steps": 6, "queries_per_batch": 4, "list_size": 2, "choose": "last"}
        config["models"]["pupil"] = {"like": "de_bm25neg", "init": encoder, "train": train}
        return Plan(config, ROOT).planner.run("pupil", "test", "here")

    return make


def test_each_token_that_is_encoded_is_made_of_its_characters(plan, setting):
    passages = plan("letters").upstream["passages"]
    work = estimate_embeddings(passages, setting)
    ((_, tokens),) = work.rows
    assert work.operations == approx(SHAPE.forward(1000, tokens / 1000) + tokens * OF_WORD)


def test_each_token_of_a_step_is_made_of_its_characters_forward_and_backward(plan, setting):
    model, usual = (
        plan(name).upstream["passages"].upstream["model"] for name in ("letters", "minilm")
    )
    query, passage = setting.lengths(model.upstream["tokens"])
    # four queries and their two passages, with two special tokens each; a backward pass costs two forward ones
    tokens = 4 * (query + 2 + 2 * (passage + 2))
    added = (
        estimate_training(model, setting).operations - estimate_training(usual, setting).operations
    )
    assert added == approx(6 * 3 * tokens * OF_WORD)
