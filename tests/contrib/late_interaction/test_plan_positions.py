"""Queries that are filled up to more tokens than the encoder takes are refused while planning."""

import pytest

from tandem import ROOT
from tandem.errors import UserError
from tandem.plan.plan import Plan


@pytest.fixture
def plan(configured):
    """`plan(query_tokens, **keys)`: a ColBERT on an encoder whose entry says that it has 512 positions."""

    def make(query_tokens, **keys):
        representation = {"type": "multi", "query_tokens": query_tokens, **keys}
        model = {"like": "de_bm25neg", "representation": representation}
        return Plan(configured("models.colbert", model), ROOT).planner.model("colbert", "here")

    return make


def test_more_tokens_than_positions_are_one_line(plan):
    with pytest.raises(UserError) as error:
        plan(513)
    assert str(error.value) == (
        "models.colbert.representation.query_tokens is 513, but the encoder takes 512; allowed: ≤ 512"
    )


@pytest.mark.parametrize("query_tokens", [512, None])
def test_as_many_as_positions_and_queries_of_their_own_length_are_planned(plan, query_tokens):
    stage = plan(query_tokens)
    assert stage.values["representation"]["query_tokens"] == query_tokens
