"""CharacterBERT's input: words by hand, the network against loops, the same words whatever the parts and shards."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import linear
from transformers.models.bert.tokenization_bert_legacy import BasicTokenizer

from tandem.config.encoders import LONGEST_WORD
from tandem.contrib.characters import words as words_module
from tandem.contrib.characters.add_characters import imitate, make_tokenizer, run
from tandem.contrib.characters.cnn import CharacterBertConfig, CharacterCnn
from tandem.contrib.characters.options import CharacterInput, Imitation
from tandem.contrib.characters.words import WordTokenizer, spell
from tandem.data.collection import Collection, join_contents
from tandem.errors import UserError
from tandem.models.dual import DualEncoder, encode_all
from tandem.models.hub import load_encoder
from tandem.models.learning import find_layers
from tandem.models.ragged import Ragged
from tandem.models.tokens import Tokens, fill_words
from tandem.stages import KINDS
from tandem.stages.base import Part
from tandem.store.artifact import open_artifact

FILTERS = ((1, 4), (2, 6), (3, 8))
SIZES = {"lowercase": True, "character_size": 5, "filters": FILTERS, "highway_layers": 2}
IMITATION = {"steps": 60, "words_per_batch": 32, "lr": 1e-2, "seed": 3}
LENGTHS = {"query_length": 16, "passage_length": 24}


@pytest.fixture(scope="module")
def characters(make_job, encoder, tmp_path_factory):
    """The tiny encoder with an input of characters, by the stage itself."""
    out = tmp_path_factory.mktemp("characters") / "tiny-0123456789"
    run(make_job("character_encoder", out, SIZES | {"imitation": IMITATION}, {"start": encoder}))
    return open_artifact(out)


@pytest.fixture(scope="module")
def make_words(make_job, characters, tmp_path_factory):
    """`make_words(dataset, rows_per_part)`: the tokens of a dataset, made in parts of so many passages."""

    def make(dataset, rows_per_part=1 << 18, shards=0, **params):
        out = tmp_path_factory.mktemp("words") / "tiny-0123456789"
        inputs = {"dataset": dataset, "encoder": characters}
        usual = KINDS["word_tokens"]
        KINDS["word_tokens"] = replace(usual, part=Part(rows_per_part, "passages"))
        try:
            for shard in range(shards):
                execution = {"shards": shards, "shard": shard}
                job = make_job("word_tokens", out, LENGTHS | params, inputs, execution)
                words_module.run_shard(job)
            words_module.run(make_job("word_tokens", out, LENGTHS | params, inputs))
        finally:
            KINDS["word_tokens"] = usual
        return open_artifact(out)

    return make


def read_words(template, ids):
    """The words that ids stand for, from their characters."""
    spelled = template.words.take(np.asarray(ids))
    return [bytes(n - 1 for n in spelled[at][1:-1].tolist()).decode() for at in range(len(spelled))]


def test_a_word_by_hand():
    # a is byte 97, ö two bytes (195, 182); each number is one more, between 259 and 260
    assert spell("aö") == [259, 98, 196, 183, 260]
    assert spell("x" * 60) == [259, *[121] * 48, 260]
    rows = fill_words(Ragged.of([np.array(spell("a")), np.empty(0, np.int64)]))
    assert rows[0].tolist() == [259, 98, 260, *[261] * 47]
    assert rows[1].tolist() == [0] * LONGEST_WORD


TEXTS = [
    "Don't panic: naïve Café, 3.5%!",
    "a\tb\n  c\u00a0d",
    "漢字 and numpy.array(x)[0]",
    "[SEP] is text",
    "",
]


def test_words_are_those_of_berts_basic_tokenizer():
    ours = WordTokenizer(make_tokenizer(lowercase=True))
    theirs = BasicTokenizer(do_lower_case=True)
    for text in TEXTS:
        assert ours.split(text) == theirs.tokenize(text), text
    cased = WordTokenizer(make_tokenizer(lowercase=False))
    assert cased.split("Don't Café") == BasicTokenizer(do_lower_case=False).tokenize("Don't Café")


def test_ids_count_words_as_they_come_and_texts_are_cut():
    tokenizer = WordTokenizer(make_tokenizer(lowercase=True))
    # behind five special tokens
    assert tokenizer.tokenise(["a b a", "c a b"], 2) == ([[5, 6], [7, 5]], [True, True])
    assert tokenizer.tokenise(["b"], 2) == ([[6]], [False])


def by_loops(network, word):
    """The vector of a word's 50 numbers, a window at a time."""
    letters = network.characters.weight[torch.tensor(word)]
    answers = []
    for layer in network.filters:
        width = layer.kernel_size[0]
        windows = [letters[at : at + width].T for at in range(len(word) - width + 1)]
        values = torch.stack([(layer.weight * part).sum((1, 2)) + layer.bias for part in windows])
        answers.append(values.max(0).values.clamp(min=0))
    state = torch.cat(answers)
    for layer in network.highways:
        both = linear(state, layer.weight, layer.bias)
        half = len(both) // 2
        gate = 1 / (1 + (-both[half:]).exp())
        state = gate * state + (1 - gate) * both[:half].clamp(min=0)
    return linear(state, network.projection.weight, network.projection.bias)


def test_the_network_against_loops_over_all_fifty_characters():
    torch.manual_seed(1)
    config = CharacterBertConfig(
        hidden_size=7, num_attention_heads=1, character_size=5, filters=[list(f) for f in FILTERS]
    )
    network = CharacterCnn(config)
    network.draw()
    # the longest word leaves no padding: no window is left out of it
    rows = fill_words(Ragged.of([np.array(spell(word)) for word in ("a", "otter", "y" * 60)]))
    for some in (rows, rows[:2]):
        expected = torch.stack([by_loops(network, word) for word in some])
        torch.testing.assert_close(network(torch.from_numpy(some)), expected, atol=1e-6, rtol=1e-5)
    # a filter's answer is a maximum, so words of other characters differ
    assert not torch.allclose(*network(torch.from_numpy(rows[:2])))


def test_the_papers_sizes():
    sizes = CharacterInput()
    config = CharacterBertConfig(
        hidden_size=768,
        character_size=sizes.character_size,
        filters=[list(each) for each in sizes.filters],
        highway_layers=sizes.highway_layers,
    )
    shapes = {name: tuple(p.shape) for name, p in CharacterCnn(config).named_parameters()}
    # 32 + 32 + 64 + 128 + 256 + 512 + 1024 = 2048 numbers go through two gates
    assert shapes["projection.weight"] == (768, 2048)
    assert shapes["highways.0.weight"] == shapes["highways.1.weight"] == (4096, 2048)
    assert shapes["filters.6.weight"] == (1024, 16, 7)
    assert shapes["characters.weight"] == (263, 16)


def test_the_layers_above_are_those_of_the_start(characters, encoder):
    ours = load_encoder(characters.folder / "hf")
    theirs = load_encoder(encoder.folder / "hf")
    weights = ours.state_dict()
    for name, weight in theirs.state_dict().items():
        if not name.startswith("embeddings.word_embeddings"):
            assert torch.equal(weights[name], weight), name
    # vectors that are looked up in a table, as BERT does, give BERT's states
    ids = torch.tensor([[2, 40, 41, 3]])
    ours.embeddings.word_embeddings.forward = lambda rows: theirs.get_input_embeddings()(rows[:, 0])
    table = torch.arange(60)[:, None].expand(60, LONGEST_WORD)
    states = ours(ids, characters=table).last_hidden_state
    torch.testing.assert_close(states, theirs(ids).last_hidden_state)


def test_layers_are_those_of_the_transformer(characters):
    network = load_encoder(characters.folder / "hf")
    assert len(network.embeddings.word_embeddings.highways) == network.config.num_hidden_layers
    assert find_layers(network)[0] == "encoder.layer"


def test_the_input_learns_vectors_of_words(characters):
    network = load_encoder(characters.folder / "hf")
    words = ["otter", "heron", "river"]
    vectors = torch.randn(3, 32, generator=torch.Generator().manual_seed(1))
    how = Imitation(steps=200, words_per_batch=3, lr=1e-2, seed=1)
    assert imitate(network, words, vectors, how, "test") < 0.05
    assert characters.manifest.facts["words"] > 100
    assert 0 < characters.manifest.facts["error"] < 1.5


def test_the_input_learns_by_deterministic_algorithms(characters):
    """As a training does: on CUDA sums of gradients would have any order."""
    network = load_encoder(characters.folder / "hf")
    torch.use_deterministic_algorithms(False)
    try:
        how = Imitation(steps=1, words_per_batch=1, lr=1e-2, seed=1)
        imitate(network, ["otter", "heron"], torch.eye(2, 32), how, "test")
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_stored_words_are_those_of_the_texts(make_words, dataset):
    opened = Tokens.open(make_words(dataset))
    rows = [row for batch in Collection(dataset).batches() for row in batch.to_pylist()]
    split = BasicTokenizer(do_lower_case=True).tokenize
    for at, row in enumerate(rows):
        expected = split(join_contents(row["title"], row["text"]))[:24]
        assert read_words(opened.template, opened.passages[at]) == expected
    queries = list(Collection(dataset).queries("train").values())
    assert read_words(opened.template, opened.queries[0]) == split(queries[0])
    assert opened.template.single == ((2,), (3,))
    assert [len(opened.template.words[at]) for at in range(5)] == [0, 0, 3, 3, 3]


def test_parts_and_shards_change_no_word(make_words, dataset):
    whole = Tokens.open(make_words(dataset))
    parts = make_words(dataset, rows_per_part=7)
    shared = make_words(dataset, rows_per_part=7, shards=3)
    for name, checksum in parts.manifest.checksums.items():
        assert shared.manifest.checksums[name] == checksum, name
    opened = Tokens.open(parts)
    for at in range(60):
        ids = opened.passages[at]
        assert read_words(opened.template, ids) == read_words(whole.template, whole.passages[at])
    for at in range(60):
        words = read_words(whole.template, whole.queries[at])
        assert read_words(opened.template, opened.queries[at]) == words
    # a word of several parts has an id in each
    assert parts.manifest.facts["passages"] == 60
    meta = [json.loads(each.path("meta.json").read_text()) for each in (parts, shared)]
    assert meta[0]["words"] == meta[1]["words"] > len(whole.template.words)


def test_a_title_is_a_segment_of_its_own(make_words, dataset):
    opened = Tokens.open(make_words(dataset, rows_per_part=7, titled=True))
    # "The otter", the separator, "The otter is a river mammal."
    row = opened.passages[0]
    assert row[2] == 3
    assert opened.passages.titles[0] == 2
    text = read_words(opened.template, row[3:])
    assert text == ["the", "otter", "is", "a", "river", "mammal", "."]
    # of the last part, ids are moved and separators are not
    assert 3 in opened.passages[57]


def test_a_texts_vector_is_the_same_in_any_batch(make_words, dataset, characters):
    tokens = make_words(dataset, rows_per_part=7)
    opened = Tokens.open(tokens)
    model = DualEncoder.start(characters.folder / "hf", True, "mean", False, 1.0).eval()
    options = (model, "passage")
    every = encode_all(*options, opened.passages, opened.template, "fp32", 4096)
    few = encode_all(*options, opened.passages, opened.template, "fp32", 64)
    torch.testing.assert_close(every, few, atol=1e-5, rtol=1e-4)
    alone = opened.passages.take(np.array([13]))
    one = encode_all(*options, alone, opened.template, "fp32", 64)
    torch.testing.assert_close(one[0], every[13], atol=1e-5, rtol=1e-4)


def test_an_input_that_learns_no_numbers_is_refused(make_job, encoder, tmp_path):
    imitation = IMITATION | {"lr": 1e30}
    params = SIZES | {"imitation": imitation}
    with pytest.raises(UserError, match=r"encoders.tiny.imitation.lr is 1e\+30, by which"):
        run(make_job("character_encoder", tmp_path / "tiny-0123456789", params, {"start": encoder}))
