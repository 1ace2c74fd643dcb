"""Sizes that follow from the data, the encoder and a budget of minutes: worked out by hand."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pytest import approx
from tiny_training import objective

from tandem.config.loading import load_settings
from tandem.config.training import CrossTrain, DualTrain
from tandem.contrib.budgets.data_sizes import WEIGHTS_OF_THE_RATES, fit_sizes
from tandem.errors import UserError
from tandem.extras.training_budgets import OPERATIONS_PER_SECOND
from tandem.extras.training_operations import count_layer_weights, count_step_operations
from tandem.models.hub import load_encoder
from tandem.training.lists import Lists


def lists(queries, positives, negatives=10):
    """So many lists of so many positives and negatives."""
    each = positives + negatives
    offsets = np.arange(0, queries * each + 1, each)
    counts = np.full(queries, positives)
    return Lists(np.arange(queries) % 20, offsets, counts, np.arange(queries * each) % 60)


def minutes(learner, drawn, passages):
    """The budget that pays for so many passages in lists of two."""
    train = CrossTrain(queries_per_batch=1, list_size=2)
    operations = count_step_operations(learner.models, learner.tokens, drawn, train)
    return passages / 2 * operations / OPERATIONS_PER_SECOND / 60


@pytest.mark.parametrize(
    ("passages", "size"),
    # twice 200 positives: 400 visits
    [(400, 2), (799, 2), (1000, 2), (1201, 3), (2001, 5), (9000, 8)],
)
def test_lists_are_as_long_as_the_budget_allows_with_two_visits_of_every_positive(passages, size):
    learner, drawn = objective("cross"), lists(100, 2)
    train = CrossTrain(
        sizes="data", budget_minutes=minutes(learner, drawn, passages), list_size=7, lr=1.0
    )
    sized = fit_sizes("cross", learner.models, learner.tokens, drawn, train)
    assert (sized.list_size, sized.queries_per_batch) == (size, 32 // size)


@pytest.mark.parametrize(("positives", "size"), [(1, 4), (2, 5)])  # of three negatives
def test_lists_are_no_longer_than_there_are_negatives(positives, size):
    learner, drawn = objective("cross"), lists(100, 2, negatives=3)
    train = CrossTrain(sizes="data", budget_minutes=1e6, list_size=8, positives=positives)
    sized = fit_sizes("cross", learner.models, learner.tokens, drawn, train)
    assert (sized.list_size, sized.queries_per_batch) == (size, 32 // size)


def test_a_cross_encoders_single_pairs_are_32_a_step():
    learner, drawn = objective("cross"), lists(100, 2)
    train = CrossTrain(sizes="data", budget_minutes=1e6, instance="row")
    sized = fit_sizes("cross", learner.models, learner.tokens, drawn, train)
    assert (sized.list_size, sized.queries_per_batch) == (8, 32)


def test_a_dual_encoder_has_32_queries_a_step_and_no_more_positives_than_fit():
    learner, drawn = objective("dual"), lists(100, 5)
    train = DualTrain(sizes="data", budget_minutes=1e-9, list_size=8, positives=3)
    sized = fit_sizes("dual", learner.models, learner.tokens, drawn, train)
    assert (sized.queries_per_batch, sized.list_size, sized.positives) == (32, 2, 1)


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert", "qwen3", "t5"])
def test_weights_count_once_for_each_layer_that_a_passage_goes_through(family, family_folder):
    encoder = load_encoder(family_folder(family)).eval()
    used = []
    for name, module in encoder.named_modules():
        own = sum(weights.numel() for weights in module.parameters(recurse=False))
        if own and "embeddings" not in name and not isinstance(module, torch.nn.Embedding):
            module.register_forward_hook(lambda *_, own=own: used.append(own))
    ids = torch.tensor([[5, 9, 7, 3]])
    with torch.inference_mode():
        encoder(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert count_layer_weights(encoder) == sum(used)


def test_the_learning_rate_falls_with_the_root_of_steps_and_weights(monkeypatch):
    learner, drawn = objective("cross"), lists(10_000, 1)
    # lists of 2, 16 a step: 1,601 steps
    train = CrossTrain(sizes="data", budget_minutes=minutes(learner, drawn, 51_250))
    own = count_layer_weights(learner.models["cross"])
    assert own < WEIGHTS_OF_THE_RATES
    assert fit_sizes("cross", learner.models, learner.tokens, drawn, train).lr == approx(
        1.5e-4 * math.sqrt(400 / 1601), rel=0.05
    )
    monkeypatch.setattr("tandem.contrib.budgets.data_sizes.WEIGHTS_OF_THE_RATES", own / 4)
    assert fit_sizes("cross", learner.models, learner.tokens, drawn, train).lr == approx(
        1.5e-4 / 4, rel=0.05
    )
    few = train.model_copy(update={"budget_minutes": minutes(learner, drawn, 320)})
    # ten steps: weights alone
    assert fit_sizes("cross", learner.models, learner.tokens, drawn, few).lr == approx(1.5e-4 / 2)


def test_the_learning_rate_falls_with_the_visits_of_positives_and_not_of_lists():
    # 2,000 lists of 3 positives, 32 a step, 20 epochs: 1,250 steps by list, 3,750 by positive
    learner, drawn = objective("dual"), lists(2000, 3)
    for kind, steps in (("query", 1250), ("positive", 3750)):
        train = DualTrain(sizes="data", budget_minutes=1e6, instance=kind)
        rate = fit_sizes("dual", learner.models, learner.tokens, drawn, train).lr
        assert rate == approx(1e-4 * math.sqrt(400 / steps), rel=0.02)


def test_a_pair_costs_what_is_left_of_it():
    learner, drawn = objective("cross"), lists(20, 1)
    train = CrossTrain(queries_per_batch=4, list_size=3)
    queries, passages = drawn.pair_rows(0, len(drawn.passages))
    # the 3 are [CLS] and twice [SEP]
    sizes = learner.tokens.queries.lengths(queries) + learner.tokens.passages.lengths(passages) + 3
    short = replace(learner.tokens, template=replace(learner.tokens.template, longest_pair=15))
    whole, cut = (
        count_step_operations(learner.models, read, drawn, train)
        for read in (learner.tokens, short)
    )
    assert cut / whole == approx(np.minimum(sizes, 15).mean() / sizes.mean())
    assert cut < whole


def count_operations(name, drawn, **train):
    """The operations of a step of an objective over tiny BERTs."""
    learner = objective(name, **train)
    return count_step_operations(learner.models, learner.tokens, drawn, learner.train)


@pytest.mark.parametrize("name", ["cross", "joint"])
def test_in_batch_each_list_has_a_positive_of_each_other_query_too(name):
    sizes = {"queries_per_batch": 5, "list_size": 3}
    drawn = lists(20, 1)
    longer = count_operations(name, drawn, in_batch=True, **sizes)
    assert longer == approx(count_operations(name, drawn, queries_per_batch=5, list_size=7))
    # four lists have no more than three others, whatever a batch has
    few = lists(4, 1)
    longer = count_operations(name, few, in_batch=True, **sizes)
    assert longer == approx(count_operations(name, few, queries_per_batch=5, list_size=6))


def test_a_static_teacher_has_no_backward_pass():
    learner, drawn = objective("joint", list_size=3, queries_per_batch=4), lists(20, 1)
    query = learner.tokens.queries.lengths(drawn.queries).mean()
    passage = learner.tokens.passages.lengths(drawn.passages).mean()
    # both BERTs are of the same size; a text has two special tokens, a pair three
    single, pairs = 3 * (passage + 2) + query + 2, 3 * (passage + query + 3)
    weights = count_layer_weights(learner.models["cross"].encoder)
    dynamic = count_operations("joint", drawn, list_size=3, queries_per_batch=4)
    static = count_operations("joint", drawn, list_size=3, queries_per_batch=4, teacher="static")
    head = 33 * pairs  # 32 weights and a bias
    assert dynamic == approx(4 * (6 * weights * (single + pairs) + 6 * head))
    assert static == approx(4 * (6 * weights * single + 2 * weights * pairs + 2 * head))


def test_without_a_budget_nothing_follows(configured):
    config = configured("models.ce_deneg.train", {"sizes": "data"})
    with pytest.raises(
        UserError, match=r"models.ce_deneg.train.sizes is data, but there is no budget_minutes"
    ):
        load_settings(config, Path(__file__).parents[3])
