"""The guess of a wrong result's type, rule by rule, and the weights it goes by."""

import math

import pytest

from tandem.contrib.analysis.wrong_results import (
    ENTITY,
    FALSE_NEGATIVE,
    MODIFIER,
    NUMERAL,
    OTHER,
    OVERLAP,
    SHORT,
    SYNTACTIC,
    TYPES,
    TYPO,
    WrongPair,
    guess_type,
    is_reordered,
    measure_jaccard,
)
from tandem.data.collection import Collection
from tandem.extras.words import Rarity, list_edits, split_into_terms

WEIGHTS = {"taobao": 5.0, "authentication": 3.0, "name": 1.0}


def pair(query, passage, weights=WEIGHTS, **more):
    """A pair of texts."""
    return WrongPair(split_into_terms(query), split_into_terms(passage), weights=weights, **more)


@pytest.mark.parametrize(
    ("query", "passage", "weights", "expected", "why"),
    [
        # the examples of Table 10, in English
        ("authentication name at Taobao", "the name authentication of Alipay", WEIGHTS, ENTITY, "no taobao"),
        ("nice songs in 2016", "the nice songs of 2017", {"songs": 2.0}, NUMERAL, "asks for 2016, tells 2017"),
        # tells no other number than the query
        ("python 3 version 8", "python 3", {"version": 3.0, "python": 2.0}, ENTITY, "no version"),
        ("nice songs in 2016", "nice songs", {"songs": 2.0}, OTHER, "all words"),
        ("lack of b12", "lack of 3 things", {"b12": 2.0}, ENTITY, "no b12"),
        ("authentication name at Taobao", "authentication at Taobao", WEIGHTS, MODIFIER, "taobao, but not name"),
        (
            "wow mail sent", "log in to wow and leave", {"wow": 4.0, "mail": 3.0, "sent": 2.0}, OVERLAP,
            "wow, but neither mail nor sent",
        ),
        (
            "from Taipei to Ruifang", "from Ruifang to Taipei by train", {"taipei": 3.0, "ruifang": 4.0}, SYNTACTIC,
            "all words, mostly the other way round",
        ),
        ("from Taipei to Ruifang", "Taipei to Ruifang by train", {"taipei": 3.0, "ruifang": 4.0}, OTHER, "all words"),
        ("what is it", "what it is", {}, OTHER, "the query has no rare word"),
    ],
)  # fmt: skip
def test_the_first_rule_that_holds(query, passage, weights, expected, why):
    assert guess_type(pair(query, passage, weights)) == (expected, why)


def test_a_repeated_positive_is_a_false_negative_before_anything_else():
    # 3 of 5 words are shared: exactly the threshold
    positive = [{"a", "b", "c", "d"}]
    assert measure_jaccard({"a", "b", "c", "e"}, positive[0]) == 3 / 5
    texts = pair("taobao 2016", "a b c e", positives=positive)
    assert guess_type(texts) == (FALSE_NEGATIVE, "nearly the words of a labelled positive")
    assert (
        guess_type(pair("taobao 2016", "a b e f", {"taobao": 5.0}, positives=positive))[0] == ENTITY
    )


def test_a_misspelt_word_is_told_before_a_missing_one():
    texts = pair("ipone taobao", "an iphone", {"taobao": 5.0}, misspelt={"ipone": "iphone"})
    assert guess_type(texts) == (TYPO, "ipone for iphone?")


def test_half_of_the_weight_is_most_of_the_query():
    weights = {"wow": 4.0, "mail": 3.0, "sent": 1.0}
    assert guess_type(pair("wow mail sent", "wow", weights))[0] == MODIFIER
    assert guess_type(pair("wow mail sent", "wow", {**weights, "sent": 1.1}))[0] == OVERLAP


def test_order_is_that_of_the_first_mentions():
    weights = dict.fromkeys("abc", 1.0)
    assert not is_reordered(pair("a b c", "a b c a", weights))
    assert is_reordered(pair("a b c", "c a b", weights))  # two of three pairs
    assert not is_reordered(pair("a b c", "b a c", weights))  # one of three


def test_types_are_the_paper_s_and_each_has_a_short_name():
    assert len(TYPES) == 8
    assert list(dict.fromkeys(TYPES.values())) == [
        "Salient Phrase Mismatch", "Syntactic mismatch", "Other Challenges", "Others"
    ]  # fmt: skip
    assert set(SHORT.values()) == set(TYPES)


def test_edits_by_hand():
    assert list_edits("ab") >= {"a", "b", "ba", "xb", "ax", "xab", "axb", "abx"}
    assert not list_edits("cats") & {"cats", "catss", "cat"}
    # 2 deletions, 1 swap, 50 replacements, 76 insertions ("aab" and "abb" each two ways), less the plural "abs"
    assert len(list_edits("ab")) == 2 + 1 + 50 + 76 - 1


def test_weights_and_misspellings_of_the_tiny_corpus(dataset):
    rarity = Rarity(Collection(dataset), ["what does the Hedghog eat", "an otter"])
    # of 60 passages three speak of the otter; "the" stands in all, "what" in none
    assert rarity.weigh(["the", "otter", "what"]) == {
        "otter": pytest.approx(math.log(1 + 57.5 / 3.5))
    }
    assert rarity.correct(["hedghog", "what", "otter"]) == {}
    assert Rarity(Collection(dataset), ["the badgr"]).correct(["the", "badgr"]) == {
        "badgr": "badger"
    }


def test_unspaced_text_is_compared_by_pairs_of_characters():
    texts = WrongPair(
        split_into_terms("台北去瑞芳"),
        split_into_terms("从瑞芳回台北"),
        weights={"台北": 2.0, "瑞芳": 2.0},
    )
    assert guess_type(texts)[0] == SYNTACTIC
