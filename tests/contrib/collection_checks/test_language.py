"""Guesses of script and language, and which of them do not fit."""

import pytest

from tandem.extras.language import (
    BY_WORD,
    STOP_WORDS,
    TextSample,
    describe_misfits,
    find_vocabulary_script,
    identify_language,
    identify_script,
)

ENGLISH = "What is the difference between a list and a tuple, and which of them should be used for the keys?"
CHINESE = "这种药物对儿童有什么副作用，应该怎样服用？"
YORUBA = "Kí ni ìyàtọ̀ tó wà láàrín ìlú Èkó àti Ìbàdàn ní ilẹ̀ Yorùbá"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (ENGLISH, "en"),
        ("Wie heißt die Hauptstadt und was ist das für ein Fluss, der durch sie fließt?", "de"),
        ("Quelle est la capitale du pays et quels sont les fleuves qui passent par elle ?", "fr"),
        (CHINESE, "zh"),
        ("東京はどこにありますか", "ja"),
        ("서울은 어디에 있습니까", "ko"),
        (YORUBA, "latin"),
        ("Что такое пассаж", "cyrillic"),
        ("sort list python", ""),
        ("1234 !?", ""),
    ],
)
def test_languages_by_script_and_stop_words(text, language):
    assert identify_language(text) == language


def test_a_tie_is_decided_by_the_order_of_the_languages():
    assert all(
        languages == sorted(languages, key=list(STOP_WORDS).index) for languages in BY_WORD.values()
    )


def test_scripts_and_shares():
    assert (
        identify_script(ENGLISH),
        identify_script(CHINESE),
        identify_script("東京はどこ"),
        identify_script("42"),
    ) == ("LATIN", "CJK", "HIRAGANA", "")
    sample = TextSample()
    sample.add([ENGLISH, ENGLISH, ENGLISH, CHINESE, "42"])
    assert sample.facts() == {
        "scripts": {"latin": 0.75, "cjk": 0.25},
        "languages": {"en": 0.75, "zh": 0.25},
    }


def test_a_sample_is_the_same_whatever_the_batches():
    texts = [CHINESE if i % 3 else ENGLISH for i in range(9000)]
    samples = TextSample(), TextSample()
    samples[0].add(texts)
    for start in range(0, 9000, 7):
        samples[1].add(texts[start : start + 7])
    assert samples[0].facts() == samples[1].facts() == {
        "scripts": {"cjk": 0.667, "latin": 0.333}, "languages": {"zh": 0.667, "en": 0.333},
    }  # fmt: skip


def test_what_fits_and_what_does_not():
    # short queries without stop words
    assert describe_misfits("en", {"en": 0.85, "latin": 0.15}) == ""
    assert describe_misfits("en", {"en": 0.5, "zh": 0.41, "latin": 0.09}) == (
        "41% zh, 9% latin with few common words of en"
    )
    # another language, or nouns alone
    assert describe_misfits("en", {"latin": 0.9, "en": 0.1}) == (
        "90% latin with few common words of en"
    )
    assert describe_misfits("zh", {"zh": 0.99, "en": 0.01}) == ""
    # a script that several languages have is any one's of them
    assert describe_misfits("uk", {"cyrillic": 0.9, "en": 0.1}) == ""
    assert describe_misfits("ru", {"en": 1.0}) == describe_misfits("hi", {"en": 1.0}) == "100% en"
    assert describe_misfits("ar", {"arabic": 0.4, "latin": 0.6}) == "60% latin"
    assert describe_misfits("fa", {"cyrillic": 0.3, "arabic": 0.7}) == "30% cyrillic"
    # nobody knows
    assert describe_misfits("da", {"latin": 1.0}) == ""
    assert describe_misfits("sw", {"latin": 1.0}) == describe_misfits("en", {}) == ""
    assert find_vocabulary_script(["the", "of", "##ing", "中", "42", "river", "north"]) == "latin"
    assert find_vocabulary_script(["the", "中国", "река"]) is None
