"""Guesses of script and language, and the warnings of stages whose analysis or encoder does not fit the texts."""

import json
import subprocess
import sys

import pytest

from tandem.data.language import Sample, guess, misfits, script, vocabulary_script
from tandem.store.artifact import open_artifact

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
    assert guess(text) == language


def test_scripts_and_shares():
    assert (script(ENGLISH), script(CHINESE), script("東京はどこ"), script("42")) == ("LATIN", "CJK", "HIRAGANA", "")
    sample = Sample()
    sample.add([ENGLISH, ENGLISH, ENGLISH, CHINESE, "42"])
    assert sample.facts() == {"scripts": {"latin": 0.75, "cjk": 0.25}, "languages": {"en": 0.75, "zh": 0.25}}


def test_what_fits_and_what_does_not():
    assert misfits("en", {"en": 0.85, "latin": 0.15}) == ""  # short queries without stop words
    assert misfits("en", {"en": 0.5, "zh": 0.41, "latin": 0.09}) == "41% zh, 9% latin"
    assert misfits("en", {"latin": 0.9, "en": 0.1}) == "90% latin"
    assert misfits("zh", {"zh": 0.99, "en": 0.01}) == ""
    assert misfits("sw", {"latin": 1.0}) == misfits("en", {}) == ""  # nobody knows
    assert vocabulary_script(["the", "of", "##ing", "中", "42", "river", "north"]) == "latin"
    assert vocabulary_script(["the", "中国", "река"]) is None


@pytest.fixture
def tandem(tmp_path):
    """`tandem(*words)`: status and output of a stage."""

    def run(*words):
        done = subprocess.run([sys.executable, "-m", "tandem", *map(str, words)], capture_output=True, text=True)
        return done.returncode, (done.stdout + done.stderr).splitlines()

    return run


def test_english_analysis_and_an_english_encoder_on_chinese_are_warnings(beir, tandem, encoder, tmp_path):
    (beir / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"d{i}", "text": f"{CHINESE}{i}"}) + "\n" for i in (1, 2))
    )
    dataset, index, tokens = (tmp_path / kind / "mine-0123456789" for kind in ("dataset", "bm25s", "tokens"))
    params = ["--params.source", "beir", "--run.path", beir]
    assert tandem("dataset", *params, "--out", dataset / "stage.json")[0] == 0
    texts = open_artifact(dataset).manifest.facts["texts"]
    assert texts["passages"] == {"scripts": {"cjk": 1.0}, "languages": {"zh": 1.0}}
    status, lines = tandem("bm25s", "--in.dataset", dataset, "--out", index / "stage.json")
    warning = (
        "the passages are analysed as en, but look like 100% zh: say the dataset's language, and perhaps its analyzer"
    )
    assert (status, f"bm25s mine-0123456789 · warning: {warning}") == (0, lines[-1])
    assert open_artifact(index).manifest.facts["warnings"] == [warning]
    inputs = ["--in.dataset", dataset, "--in.encoder", encoder.folder]
    lengths = ["--params.query_length", "8", "--params.passage_length", "8"]
    status, lines = tandem("tokens", *lengths, *inputs, "--out", tokens / "stage.json")
    warning = "the encoder's vocabulary is latin, but the passages are 100% cjk: choose another encoder"
    assert (status, f"tokens mine-0123456789 · warning: {warning}") == (0, lines[-1])
    assert open_artifact(tokens).manifest.facts["warnings"] == [warning]
