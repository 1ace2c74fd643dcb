"""Keys that name entries, found by their types, and what of a section is left as a stage's parameters."""

from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from tandem.config.base import Section
from tandem.config.datasets import CutDocuments
from tandem.config.models import JointModel
from tandem.config.references import (
    CrossEncoderRefs,
    DatasetRef,
    Input,
    Parameters,
    RunRef,
    excluded,
    inherited_notes,
    names_in,
    parameters_of,
)
from tandem.config.training import CrossTrain, DualTrain


class Judging(Section):
    """A section within another one."""

    by: CrossEncoderRefs = Field(description="judges")
    below: float = Field(0.1, description="a threshold")


class Lists(Section):
    """Names of every form, and values."""

    from_: RunRef = Field("bm25", alias="from", description="one run")
    of: tuple[DatasetRef, ...] = Field((), strict=False, description="datasets")
    weights: Annotated[float | None, Input()] = Field(None, description="of what is named")
    judging: Judging | None = Field(None, description="judging")
    depth: int = Field(50, description="a value")


FULL = {"from": "dense", "of": ["a", "b"], "weights": 2.0, "judging": {"by": "ce"}, "depth": 7}


def test_names_are_found_by_their_types_with_their_paths_and_roles():
    names = list(names_in(Lists.model_validate(FULL), "lists"))
    assert [(name.path, name.names, name.role, name.is_list) for name in names] == [
        ("lists.from", ("dense",), "run", False),
        ("lists.of", ("a", "b"), "of", True),
        ("lists.judging.by", ("ce",), "judge", True),
    ]
    assert names[2].section == Judging(by=("ce",))


def test_what_is_not_set_names_nothing():
    assert [name.path for name in names_in(Lists(), "lists")] == ["lists.from"]


def test_parameters_are_what_is_left_in_inner_sections_too():
    parameters = parameters_of(Lists)
    assert parameters.model_validate({"judging": {}, "depth": 7}).model_dump() == {
        "judging": {"below": 0.1},
        "depth": 7,
    }
    assert Lists.model_validate(FULL).model_dump(exclude=excluded(Lists)) == {
        "judging": {"below": 0.1},
        "depth": 7,
    }


@pytest.mark.parametrize("key", ["from", "of", "weights"])
def test_an_input_is_not_a_parameter(key):
    with pytest.raises(ValidationError, match=key):
        parameters_of(Lists).model_validate({key: FULL[key]})


def test_functions_take_options_and_parameters_alike():
    assert isinstance(parameters_of(DualTrain)(), DualTrain)
    assert Parameters[Lists] is parameters_of(Lists)
    assert parameters_of(CrossTrain) is parameters_of(CrossTrain)


def test_checks_of_the_options_are_checks_of_the_parameters():
    with pytest.raises(ValidationError, match="list_size"):
        parameters_of(CrossTrain)(positives=3, list_size=3)


def test_a_section_without_inputs_is_its_own_parameters():
    assert parameters_of(Section) is Section


def test_training_lists_are_a_stage_of_their_own():
    config = {
        "objective": "joint",
        "init": {"retriever": "de", "reranker": "ce"},
        "candidates": {"from": "bm25"},
    }
    names = names_in(JointModel.model_validate(config), "models.m")
    assert {name.path: name.reference.objectives for name in names} == {
        "models.m.init.retriever": ("dual", "joint"),
        "models.m.init.reranker": ("cross", "joint"),
    }


def test_a_class_of_parameters_may_inherit_from_options():
    @parameters_of
    class Params(Lists):
        seed: int = 3

    assert set(Params.model_fields) == {"judging", "depth", "seed"}
    assert Params(depth=2).seed == 3


def test_notes_about_a_dataset_are_no_parameters_and_are_taken_over_by_what_is_made_of_it():
    notes = set(inherited_notes(CutDocuments))
    assert {"licence", "language", "relevance"} <= notes < excluded(CutDocuments).keys()
    assert excluded(CutDocuments).keys() - notes == {"path", "files", "checksum", "of", "factor"}
    assert {"normalize", "train_queries"} <= parameters_of(CutDocuments).model_fields.keys()
