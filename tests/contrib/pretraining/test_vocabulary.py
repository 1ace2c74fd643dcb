"""Stage `vocabulary`: the same pieces in every run, in any script, and an encoder that loads."""

import io
import random
import subprocess
import sys
from contextlib import redirect_stdout

import pytest
import torch
from tiny_project import QUESTIONS, ROOT, passages

from tandem.contrib.pretraining.vocabulary import LEAST, SPECIAL, pieces, run
from tandem.errors import UserError
from tandem.models.hub import load_encoder, load_tokenizer
from tandem.models.published import check_encoder
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256

SHAPE = {"layers": 1, "hidden": 32, "heads": 4, "feed_forward": 64, "positions": 64}
PARAMS = {"vocabulary": 300, "lowercase": True, "seed": 3, **SHAPE}
RANDOM = """
import hashlib, random
from tandem.contrib.pretraining.vocabulary import pieces
draw = random.Random(1)
words = ["".join(draw.choice("abcdefghijäöü漢字語") for _ in range(draw.randint(2, 6))) for _ in range(400)]
texts = [" ".join(draw.choice(words) for _ in range(20)) for _ in range(200)]
print(hashlib.sha256("\\n".join(pieces(lambda: iter(texts), 500, True)).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def make_vocabulary(make_job, dataset, tmp_path_factory):
    """`make_vocabulary(name, **params)`: the artifact of the tiny corpus."""

    def make(name, **params):
        out = tmp_path_factory.mktemp("vocabulary") / f"{name}-0123456789"
        run(make_job("vocabulary", out, PARAMS | params, {"dataset": dataset}))
        return open_artifact(out)

    return make


def test_every_run_writes_the_same_bytes(make_vocabulary):
    first, second = make_vocabulary("one"), make_vocabulary("other")
    files = sorted(path.name for path in (first.folder / "hf").iterdir())
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    for name in files:
        assert sha256(first.folder / "hf" / name) == sha256(second.folder / "hf" / name), name
    assert sha256(make_vocabulary("seed", seed=4).path("hf/model.safetensors")) != sha256(
        first.path("hf/model.safetensors")
    )


def test_the_tiny_encoder_of_all_tests_has_the_pieces_of_its_texts():
    texts = [*(f"{title} {text}" for _, title, text in passages()), *QUESTIONS.values()]
    # what is seen once is a piece here, too
    learned = pieces(lambda: iter(texts * LEAST), 400, lowercase=True)
    assert learned == (ROOT / "tests/tiny_vocabulary.txt").read_text(encoding="utf-8").splitlines()


def test_the_order_of_a_hash_map_does_not_matter():
    """Many pairs are equally frequent here; the library's own trainer gives other pieces in every process."""
    with redirect_stdout(io.StringIO()) as here:
        exec(RANDOM, {})
    there = subprocess.run([sys.executable, "-c", RANDOM], capture_output=True, text=True).stdout
    assert here.getvalue() == there
    assert len(there.strip()) == 64


def test_pieces_by_hand():
    # `ab` is the only pair seen often enough; c is seen once and is not a piece
    assert pieces(lambda: iter(["ab ab", "Abc"]), 20, True) == [*SPECIAL, "##b", "a", "b", "ab"]
    # no more than asked for: one character
    assert pieces(lambda: iter(["ab ab", "Abc", "a"]), 7, True) == [*SPECIAL, "a"]
    # with case, A and a are two
    assert "##b" in pieces(lambda: iter(["ab ab", "Ab Ab"]), 20, False)
    assert {"A", "a"} <= set(pieces(lambda: iter(["ab ab", "Ab Ab"]), 20, False))


def test_at_most_half_are_characters_and_the_frequent_ones_stay():
    draw = random.Random(2)
    letters = [chr(0x4E00 + i) for i in range(300)]
    texts = [" ".join(draw.choices(letters, weights=range(300, 0, -1), k=50)) for _ in range(200)]
    learned = pieces(lambda: iter(texts), 100, True)
    assert len(learned) == len(SPECIAL) + 47
    assert letters[0] in learned
    assert letters[299] not in learned


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("漢字漢字", ["漢", "字", "漢", "字"]),  # each stands alone
        ("हिन्दी", ["हिन्दी"]),  # vowel signs are combining marks
        ("München", ["münchen"]),
        ("don't", ["don", "'", "t"]),
    ],
)
def test_scripts(text, expected, make_job, make_dataset, tmp_path):
    documents = [(str(i), "", "हिन्दी München München don't 漢字 हिन्दी") for i in range(9)]
    data = make_dataset(tmp_path / "dataset-0000000001", documents)
    run(make_job("vocabulary", tmp_path / "v-0123456789", PARAMS, {"dataset": data}))
    assert load_tokenizer(tmp_path / "v-0123456789/hf").tokenize(text) == expected


def test_a_corpus_of_nothing_is_refused(make_job, make_dataset, tmp_path):
    data = make_dataset(tmp_path / "dataset-0000000001", [("1", "", "  "), ("2", "", "a")])
    with pytest.raises(UserError, match="its passages hold no character twice"):
        run(make_job("vocabulary", tmp_path / "v-0123456789", PARAMS, {"dataset": data}))


def test_the_shape_is_as_told_and_any_reader_loads_it(make_vocabulary):
    from transformers import AutoModel, AutoTokenizer

    folder = make_vocabulary("shape", layers=2).folder / "hf"
    check_encoder(folder, "this test")
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert len(model.encoder.layer) == 2
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer("the otter").input_ids[0] == tokenizer.cls_token_id
    assert tokenizer.mask_token_id == SPECIAL.index("[MASK]")


def test_without_layers_it_is_a_bag_that_can_weigh_words(make_vocabulary):
    folder = make_vocabulary("static", layers=0).folder / "hf"
    check_encoder(folder, "this test")
    model = load_encoder(folder).eval()

    def mean(*ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).last_hidden_state.mean(1)[0]

    torch.testing.assert_close(mean(9, 20, 30, 30), mean(30, 9, 30, 20))
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[9] *= 10
    # with BERT's own epsilon the layer norm would undo the weight
    assert mean(9).norm() > 8 * mean(20).norm()
