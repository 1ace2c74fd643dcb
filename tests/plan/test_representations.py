"""How a representation is named, kept in keys and registered, and mistakes about it as one line."""

from pathlib import Path
from typing import Literal

import pytest

from tandem.config.representations import (
    REPRESENTATIONS,
    Representation,
    register_representation,
)
from tandem.errors import UserError
from tandem.plan.plan import Plan
from tandem.plan.searches import encode_both_sides

ROOT = Path(__file__).parents[2]


@pytest.fixture
def planner(configured):
    """`planner(**models)`: of the default with a sparse encoder `splade`, and more models."""

    def make(**models):
        splade = {"like": "de_bm25neg", "representation": "sparse"}
        return Plan(configured("models", {"splade": splade, **models}), ROOT).planner

    return make


def test_a_name_alone_has_the_defaults_and_single_is_in_no_key(planner):
    spelled = {"like": "splade", "representation": {"type": "sparse", "pooling": "max"}}
    plan = planner(spelled=spelled)
    splade = plan.model("splade", "here")
    assert splade.params.representation == REPRESENTATIONS["sparse"]()
    # not those of the encoder's cosines
    assert (splade.params.normalize, splade.params.temperature) == (False, 1.0)
    assert plan.model("spelled", "here") is splade
    assert "representation" not in plan.model("de_bm25neg", "here").values


@pytest.mark.parametrize(
    ("representation", "line"),
    [
        ("many", 'models.x.representation is "many"; allowed: single, .*sparse'),
        ({"type": "many"}, "models.x.representation is .*; allowed: single, .*sparse"),
        ([], "models.x.representation is .*; allowed: "),
        ({"type": "sparse", "tops": 8}, "models.x.representation.tops is not a known key; .* top"),
        ({"type": "sparse", "top": 0}, "models.x.representation.top is 0; allowed: ≥ 1"),
        ({"type": "sparse", "pooling": "mean"}, "representation.pooling is .*allowed: max, sum"),
    ],
)
def test_mistakes(planner, representation, line):
    with pytest.raises(UserError, match=line):
        planner(x={"like": "de_bm25neg", "representation": representation})


def test_text_of_a_command_line_is_a_number(planner):
    few = {"like": "splade", "representation": {"type": "sparse", "top": "64"}}
    assert planner(few=few).model("few", "here").params.representation.top == 64


def test_what_needs_one_vector_a_text_says_so(planner):
    plan = planner()
    with pytest.raises(
        UserError, match="here: splade is of representation sparse; this needs single vectors"
    ):
        encode_both_sides(plan.ctx, "embeddings", "splade", "test", "here", "pydocs")


class Nameless(Representation):
    """Options without a name of their own."""


class Mine(Representation):
    """Options that a plugin adds."""

    type: Literal["mine"] = "mine"
    width: int = 3


def test_options_are_added_once_and_under_a_name(planner):
    with pytest.raises(UserError, match="Nameless: its type is not a Literal"):
        register_representation(Nameless)
    with pytest.raises(UserError, match="representation sparse is registered twice"):
        register_representation(REPRESENTATIONS["sparse"])
    register_representation(Mine)
    try:
        mine = {"like": "de_bm25neg", "representation": {"type": "mine", "width": 4}}
        assert planner(x=mine).settings.models["x"].representation == Mine(width=4)
    finally:
        del REPRESENTATIONS["mine"]
    with pytest.raises(UserError, match="allowed: single, .*sparse"):
        planner(x={"like": "de_bm25neg", "representation": "mine"})
