"""The relevance that a format gives, and labels of its training lists: whole numbers, which are stored in 32 bits."""

from typing import Literal

import pytest

from tandem.config.datasets import Dataset
from tandem.data.collection import Collection
from tandem.data.sources import DatasetJob, Source, dataset_format
from tandem.data.validate import tabulate_judgements
from tandem.errors import UserError

NEEDED = "a whole number of 32 bits is needed"


class GradedEntry(Dataset):
    source: Literal["graded"]
    grade: float


class Graded(Source):
    """One passage with the grade of its entry."""

    def __init__(self, job: DatasetJob, entry: GradedEntry) -> None:
        super().__init__(job, entry)
        self.grade = entry.grade
        self.places = {"corpus": "passage", "queries": "question"}

    def read_corpus(self):
        yield "d", "", "here"

    def read_queries(self):
        yield "q", "where?", "test"

    def read_qrels(self):
        yield "q", "d", self.grade, "test"


@pytest.fixture
def make_graded(make, monkeypatch):
    """`make_graded(grade)`: a dataset of one passage that is judged so."""
    monkeypatch.setattr(dataset_format, "_entries", dataset_format._entries | {"graded": Graded})
    return lambda grade: make("d", {"source": "graded", "grade": grade})


def test_half_a_grade_is_refused_with_its_pair(make_graded):
    with pytest.raises(UserError) as error:
        make_graded(0.5)
    judged = "qrels: split test: the relevance of passage d for query q"
    assert str(error.value) == f"{judged} is 0.5; {NEEDED}"


def test_a_grade_with_a_decimal_point_may_be_whole(make_graded):
    assert Collection(make_graded(2.0)).qrels("test") == {"q": {"d": 2}}


@pytest.mark.parametrize("grade", [1.5, float("nan"), float("inf"), None, True, "1", 2**31])
def test_one_grade_among_many_is_named(grade):
    rows = [("q", "a", 1, "dev"), ("q", "b", grade, "dev"), ("q", "c", -1, "dev")]
    with pytest.raises(UserError) as error:
        tabulate_judgements(rows)
    judged = "qrels: split dev: the relevance of passage b for query q"
    assert str(error.value) == f"{judged} is {grade!r}; {NEEDED}"


class LabelledEntry(Dataset):
    source: Literal["labelled"]
    label: float


class Labelled(Graded):
    """The same passage in a training list, with the label of its entry and a teacher's score."""

    def __init__(self, job: DatasetJob, entry: LabelledEntry) -> None:
        Source.__init__(self, job, entry)
        self.grade = 1
        self.label = entry.label
        self.places = {"corpus": "passage", "queries": "question"}

    def read_lists(self):
        yield "q", "d", self.label, 0.7


@pytest.fixture
def make_labelled(make, monkeypatch):
    """`make_labelled(label)`: a dataset of one passage that stands in a list so."""
    entries = dataset_format._entries | {"labelled": Labelled}
    monkeypatch.setattr(dataset_format, "_entries", entries)
    return lambda label: make("d", {"source": "labelled", "label": label})


@pytest.mark.parametrize("label", [0.7, 1.5, 2.0**31])
def test_a_label_that_is_a_score_is_refused_with_its_pair(make_labelled, label):
    with pytest.raises(UserError) as error:
        make_labelled(label)
    listed = "lists: the label of passage d for query q"
    assert str(error.value) == f"{listed} is {label}; {NEEDED}, a score stands behind the label"


def test_a_label_with_a_decimal_point_may_be_whole(make_labelled):
    [(query, [(doc, label, score)])] = Collection(make_labelled(1.0)).lists()
    assert (query, doc, label, score) == ("q", "d", 1, pytest.approx(0.7))
