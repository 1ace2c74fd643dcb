"""What a dataset made of another takes over, where that one is made of another itself."""

import pytest

from tandem import ROOT
from tandem.config.loading import load_settings
from tandem.config.merging import of_searched

PARTS = {"source": "domains", "only": ["law"]}


@pytest.fixture
def entries(configured):
    """`entries(datasets, searched)`: the datasets of a configuration, `whole` among them, as plans see them."""

    def make(datasets, searched):
        whole = {"source": "beir", "language": "de"}
        config = configured() | {"datasets": {"whole": whole} | datasets, "dataset": searched}
        return of_searched(load_settings(config, ROOT).datasets, searched)

    return make


def test_what_stands_between_is_taken_over(entries):
    own = {"ignore_identical_ids": True, "analyzer": "krovetz", "measures": ["P@5"]}
    datasets = {
        "tax": PARTS | {"of": "law", "analyzer": "porter"},
        "law": PARTS | {"of": "whole", "score_split": "train"} | own,
        "cut": {"source": "windows", "of": "law"},
        "of_cut": PARTS | {"of": "cut"},
    }
    made = entries(datasets, "law")
    tax, cut, of_cut = (made[name] for name in ("tax", "cut", "of_cut"))
    assert (tax.ignore_identical_ids, tax.analyzer, tax.language) == (True, "porter", "de")
    assert (tax.measures, tax.score_split) == (("P@5",), "train")
    assert (cut.analyzer, cut.score_split, cut.measures) == ("krovetz", "train", None)
    assert (of_cut.analyzer, of_cut.measures) == ("krovetz", None)


def test_a_dataset_made_of_one_of_the_searched_dataset_follows_it(entries):
    datasets = {
        "law": PARTS | {"of": "whole", "analyzer": "krovetz"},
        "sentences": {"source": "cropped_sentences", "of": None},
        "some": PARTS | {"of": "sentences"},
    }
    made = entries(datasets, "law")
    assert [(made[name].language, made[name].analyzer) for name in ("sentences", "some")] == [
        ("de", "krovetz"), ("de", "krovetz")
    ]  # fmt: skip
    made = entries(datasets, "whole")
    assert (made["some"].language, made["some"].analyzer) == ("de", "default")
