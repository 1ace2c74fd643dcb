"""What does not fit an encoder is refused before anything runs, where its sizes are known here."""

import json
import shutil

import pytest
from tiny_project import ROOT

from tandem.errors import UserError
from tandem.extras.plan import FullPlan


@pytest.fixture
def plan(configured, overridden):
    """`plan({a/b: value, …})`: the default with these keys; its encoder has 6 layers, 512 positions, 384 numbers."""
    return lambda keys: FullPlan(overridden(configured(), keys), ROOT)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            {"lengths/passage": 600},
            r"lengths.passage is 600, but minilm takes 512, 2 of them .*allowed: ≤ 510",
        ),
        (
            {"lengths/query": 511, "lengths/passage": 100},
            "lengths.query is 511, but .*allowed: ≤ 510",
        ),
        # 40 + 470 and three special ones
        (
            {"lengths/query": 40, "lengths/passage": 470},
            r"pairs of 513 tokens .*minilm takes 512; .*lengths.pair to 512",
        ),
        ({"lengths/query": 40, "lengths/passage": 490, "lengths/pair": 513}, "pairs of 513 tokens"),
        (
            {"models/ce_bm25neg/train/freeze_layers": 6},
            "models.ce_bm25neg.train.freeze_layers is 6, .* below 6",
        ),
        (
            {"models/de_bm25neg/query_layers": 6, "models/de_bm25neg/shared": False},
            r"models\.de_bm25neg\.query_layers is 6, .* below 6",
        ),
        (
            {"models/de_bm25neg/query_layers": 1},
            r"models\.de_bm25neg\.query_layers is 1, .* set shared: false",
        ),
        (
            {
                "models/de_bm25neg/query_layers": 2,
                "models/de_bm25neg/shared": False,
                "models/de_bm25neg/train/freeze_layers": 2,
            },
            r"models\.de_bm25neg\.train\.freeze_layers is 2, .* queries has 2 layers; allowed: below 2",
        ),
        (
            {"models/de_bm25neg/train/matryoshka": [384]},
            "models.de_bm25neg.train.matryoshka is 384, .* below 384",
        ),
        (
            {"models/de_bm25neg/train/matryoshka": [64, 64]},
            "matryoshka is .64, 64., .* twice",
        ),
    ],
)
def test_what_does_not_fit_is_named(plan, keys, line):
    with pytest.raises(UserError, match=line) as error:
        plan(keys)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "keys",
    [
        {"models/de_bm25neg/query_layers": 5, "models/de_bm25neg/shared": False},
        {"lengths/query": 40, "lengths/passage": 469},
        {"lengths/query": 40, "lengths/passage": 500, "lengths/pair": 512},
        {
            "models/ce_bm25neg/train/freeze_layers": 5,
            "models/de_bm25neg/train/matryoshka": [383, 64],
        },
    ],
)
def test_what_just_fits_is_planned(plan, keys):
    plan(keys)


COMPARES = {
    "models/duo": {
        "objective": "cross", "init": "encoder", "compares": True, "candidates": {"from": "bm25"},
        "train": {"loss": "pointwise", "list_size": 4},
    },
}  # fmt: skip


def test_a_model_that_compares_reads_two_passages(plan):
    """32 + 2 · 238 and four special tokens are 512, of which the encoder takes 512."""
    plan(COMPARES | {"lengths/query": 32, "lengths/passage": 238})
    line = r"pairs of 514 tokens \(query 32, passage 239 twice, special 4\), but minilm takes 512"
    with pytest.raises(UserError, match=line):
        plan(COMPARES | {"lengths/query": 32, "lengths/passage": 239})
    plan(COMPARES | {"lengths/query": 32, "lengths/passage": 239, "lengths/pair": 512})


def test_an_entry_says_the_sizes_of_an_encoder_that_is_not_here(plan):
    shape = {"layers": 12, "hidden": 768, "feed_forward": 3072, "vocabulary": 30522}
    mine = {
        "source": "hub",
        "name": "org/mine",
        "revision": "0" * 40,
        "pooling": "mean",
        "shape": shape,
    }
    keys = {"encoder": "mine", "lengths/passage": 600}
    plan(keys | {"encoders/mine": mine})
    with pytest.raises(
        UserError, match=r"lengths.passage is 600, but mine takes 256, .*allowed: ≤ 254"
    ):
        plan(keys | {"encoders/mine": mine | {"shape": shape | {"positions": 256}}})


@pytest.mark.parametrize(
    ("lengths", "line"),
    [
        (
            {"query": 8, "passage": 87},
            r"is 87, but mine takes 88 \(of its 95, in steps of 8\), 2 .*: ≤ 86",
        ),
        (
            {"query": 40, "passage": 60, "pair": 95},
            r"pairs of 95 tokens .* takes 80 \(of its 95, in steps of 16\); .*pair to 80",
        ),
    ],
)
def test_padding_takes_positions_too(plan, encoder_folder, tmp_path, lengths, line):
    """Of 95 positions 88 are the most that texts reach in steps of 8, and 80 pairs in steps of 16."""
    folder = shutil.copytree(encoder_folder, tmp_path / "encoder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 95}))
    mine = {"source": "folder", "path": str(folder), "pooling": "mean"}
    keys = {"encoder": "mine", "encoders/mine": mine}
    fitting = {"lengths/query": 8, "lengths/passage": 86, "lengths/pair": 80}
    plan(keys | fitting)
    with pytest.raises(UserError, match=line):
        plan(keys | fitting | {f"lengths/{key}": length for key, length in lengths.items()})


def test_a_broken_tokenizer_is_one_line_where_it_decides(plan, encoder_folder, tmp_path):
    folder = shutil.copytree(encoder_folder, tmp_path / "encoder")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="tokenizer.json: cannot be read"):
        plan({"encoder": str(folder), "lengths/query": 16, "lengths/passage": 94})


@pytest.mark.parametrize("key", ["max_position_embeddings", "pad_token_id"])
def test_a_number_of_an_encoder_that_is_a_text_is_one_line(plan, encoder_folder, tmp_path, key):
    folder = shutil.copytree(encoder_folder, tmp_path / "encoder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: "96"}))
    with pytest.raises(UserError, match=f'config.json: {key} is "96"; a JSON whole number'):
        plan({"encoder": str(folder)})
