"""Titles as a segment, and pairs with a limit in all: against the tokenizer, the model and a plain loop."""

import json

import numpy as np
import pytest
import torch

from tandem.data.collection import Collection
from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.hub import load_tokenizer
from tandem.models.ragged import Ragged, cut_longest_first
from tandem.models.tokens import Template, Tokens


@pytest.fixture(scope="module")
def rows(dataset):
    return [
        (row["title"], row["text"])
        for batch in Collection(dataset).batches()
        for row in batch.to_pylist()
    ]


def popped(first, second, limit):
    """The rule of RocketQA's readers, token by token."""
    while first + second > limit:
        first, second = (first - 1, second) if first > second else (first, second - 1)
    return first, second


def test_the_longer_of_two_texts_loses_tokens_first():
    pairs = np.array([(a, b) for a in range(12) for b in range(12)])
    for limit in (1, 4, 7, 30):
        lengths = np.stack(cut_longest_first(pairs[:, 0], pairs[:, 1], limit), 1)
        assert lengths.tolist() == [list(popped(int(a), int(b), limit)) for a, b in pairs]


def test_title_and_text_are_the_tokenizer_s_pair(titled, rows, encoder):
    tokens, tokenizer = Tokens.open(titled), load_tokenizer(encoder.folder / "hf")
    inputs = tokens.template.single_inputs(
        tokens.passages.take(np.arange(60)), "passage"
    ).to_tensors()
    whole = [tokenizer(title, text) for title, text in rows]
    fitting = [i for i, pair in enumerate(whole) if len(pair["input_ids"]) <= 24 + 2]
    assert 0 < len(fitting) < 60  # and some are cut
    for i in fitting:
        size = len(whole[i]["input_ids"])
        assert inputs["input_ids"][i, :size].tolist() == whole[i]["input_ids"]
        assert inputs["token_type_ids"][i, :size].tolist() == whole[i]["token_type_ids"]
    assert int(np.diff(tokens.passages.offsets).max()) == 24
    alone = tokens.template.with_titles([[]], [[7, 8]], 24)
    # without a title: [CLS] [SEP] text [SEP]
    assert alone[0].tolist() == [tokenizer.sep_token_id, 7, 8]


def test_a_dual_encoder_s_vectors_are_the_model_s_of_the_pair(titled, rows, encoder):
    folder, tokens = encoder.folder / "hf", Tokens.open(titled)
    model = DualEncoder.start(folder, True, "cls", False, 1.0).eval()
    tokenizer, at = load_tokenizer(folder), 0
    size = len(tokens.passages[at]) + 2
    inputs = tokenizer(*rows[at], truncation=True, max_length=size, return_tensors="pt")
    assert inputs["input_ids"][0, 1:-1].tolist() == tokens.passages[at].tolist()
    with torch.no_grad():
        expected = model.towers["passage"](**inputs).last_hidden_state[:, 0]
        texts = tokens.passages.take(np.array([at]))
        passage, query = (
            model.encode(side, texts, tokens.template, "fp32") for side in ("passage", "query")
        )
    torch.testing.assert_close(passage, expected)
    assert not torch.allclose(query, passage)  # a query is one segment, whatever it holds


def test_a_pair_is_cut_before_it_is_scored(titled, encoder):
    tokens = Tokens.open(titled)
    queries, passages = (
        [tokens.queries[i] for i in range(8)],
        [tokens.passages[i] for i in range(8)],
    )
    inputs = tokens.template.pair_inputs(Ragged.of(queries), Ragged.of(passages))
    assert int(inputs.lengths.max()) == 20
    sizes = [popped(len(q), len(p), 20 - 3) for q, p in zip(queries, passages, strict=True)]
    short = (
        [q[:a] for q, (a, _) in zip(queries, sizes, strict=True)],
        [p[:b] for p, (_, b) in zip(passages, sizes, strict=True)],
    )
    torch.manual_seed(0)
    model = CrossEncoder.start(encoder.folder / "hf", "cls")
    plain = Template.of(load_tokenizer(encoder.folder / "hf"))
    np.testing.assert_array_equal(
        model.score(queries, passages, tokens.template, "fp32", 256),
        model.score(*short, plain, "fp32", 256),
    )


def test_lengths_of_pairs_are_those_of_their_inputs(titled):
    tokens = Tokens.open(titled)
    rows = np.arange(8)
    lengths = tokens.template.pair_lengths(
        tokens.queries.lengths(rows), tokens.passages.lengths(rows)
    )
    inputs = tokens.template.pair_inputs(tokens.queries.take(rows), tokens.passages.take(rows))
    assert lengths.tolist() == inputs.lengths.tolist()
    assert 20 in lengths
    assert lengths.min() < 20


def test_the_line_about_cut_texts_names_the_key_of_the_length(titled):
    assert "longer than lengths.pair (24) and cut" in titled.manifest.facts["warnings"][0]


def test_without_either_the_stored_description_is_as_before(tokens):
    template = json.loads(tokens.path("meta.json").read_text())["template"]
    assert set(template) == {"single", "pair", "types", "pad"}
