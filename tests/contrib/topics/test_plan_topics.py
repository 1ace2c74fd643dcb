"""Whose vectors are clustered."""

import pytest

from tandem import ROOT
from tandem.errors import UserError
from tandem.plan.plan import Plan


@pytest.fixture
def train_by_topic(configured):
    """`train_by_topic(**candidates)`: the stage of a dual encoder whose batches are of one topic."""

    def plan(**candidates):
        train = {"topics": {"by": "encoder", "clusters": 2}}
        lists = {"from": "bm25", **candidates}
        entry = {"like": "de_bm25neg", "candidates": lists, "train": train}
        return Plan(configured("models.pupil", entry), ROOT).planner.model("pupil", "here")

    return plan


@pytest.mark.parametrize("split", ["train", "dev"])
def test_topics_are_of_the_queries_that_have_lists(train_by_topic, split):
    clusters = train_by_topic(split=split).upstream["topics"]
    assert clusters.upstream["queries"].values["split"] == split


def test_lists_of_several_splits_have_no_topics(train_by_topic):
    with pytest.raises(UserError, match=r"pupil\.candidates\.also\.0\.split is dev"):
        train_by_topic(also=[{"from": "bm25", "split": "dev"}])
