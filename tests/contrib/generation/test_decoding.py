"""Decoding: transformers' own output, drawing by hand, and what a text depends on."""

import numpy as np
import pytest
import torch
from pytest import approx

from tandem.contrib.generation.decoding import Choice, Writer, uniforms
from tandem.contrib.generation.generators import load_generator
from tandem.contrib.generation.options import Decoding
from tandem.contrib.generation.reader import Reader
from tandem.contrib.generation.seq2seq import log_likelihoods
from tandem.contrib.generation.train import padding_of

TEXTS = [
    "The otter eats crabs and urchins, more of them in autumn, when winter is close; a river mammal.",
    "The owl is a night bird.",
    "Watch it for a day and you will see that the bison ploughs the snow with its head.",
    "The eel",
    "The newt eats tadpoles and fleas",
]


@pytest.fixture(scope="module")
def decoder_folder(tmp_path_factory):
    """A decoder of random weights that knows the texts' words."""
    from tiny_language_models import make_language_model

    return make_language_model(tmp_path_factory.mktemp("decoder"), "qwen3", TEXTS)


@pytest.fixture(scope="module")
def begun_folder(train_job, encoder_decoder, tmp_path_factory):
    """A generator that began with an encoder's layers, and has learned for some steps."""
    from tandem.contrib.generation.train import run

    out = tmp_path_factory.mktemp("begun") / "train_generator-0000000000"
    run(train_job(out, {"steps": 20, "dropout": 0.0}, encoder_decoder))
    return out / "hf"


@pytest.fixture(scope="module", params=["t5", "encoder", "decoder"])
def folder(request, generator, begun_folder, decoder_folder):
    folders = {
        "t5": generator.folder / "hf",
        "encoder": begun_folder,
        "decoder": decoder_folder,
    }
    return folders[request.param]


@pytest.fixture(scope="module")
def writer(folder):
    """`writer(**options)`: a writer of the folder's model in float32, and the ids of the texts."""

    def make(seed=7, **options):
        model, tokenizer = load_generator(folder)
        sources = Reader(tokenizer, "{passage}", 32, "test").read(TEXTS)
        params = Decoding.model_validate({"precision": "fp32", "tokens": 10} | options)
        return Writer(model, tokenizer, params, seed, padding_of(model, tokenizer)), sources

    return make


FIRST = [0.2042115220822044, 0.7061693819085005]  # of seed 42, otter-1, text 0


def names(count=5):
    return [f"doc{number}" for number in range(count)]


def alone(folder, text, **options):
    """What `transformers.generate` writes from one text alone, sequences without special tokens."""
    model, tokenizer = load_generator(folder)
    ids = Reader(tokenizer, "{passage}", 32, "test").read([text]).ids[None].astype(np.int64)
    inputs = {
        "input_ids": torch.from_numpy(ids),
        "attention_mask": torch.ones(ids.shape, dtype=torch.long),
    }
    options |= {
        "max_new_tokens": 10,
        "pad_token_id": padding_of(model, tokenizer),
        "do_sample": False,
    }
    start = 0 if model.config.is_encoder_decoder else ids.shape[1]
    rows = model.generate(**inputs, **options)[:, start:]
    return [
        " ".join(text.split()) for text in tokenizer.batch_decode(rows, skip_special_tokens=True)
    ]


def test_greedy_and_beam_are_those_of_transformers(folder, writer):
    greedy, sources = writer(method="greedy", number=1)
    assert [w.texts for w in greedy.write(sources, names())] == [
        alone(folder, text) for text in TEXTS
    ]
    beam, sources = writer(method="beam", beams=3, number=2)
    expected = [alone(folder, text, num_beams=3, num_return_sequences=2) for text in TEXTS]
    assert [w.texts for w in beam.write(sources, names())] == expected
    assert any(first != second for first, second in expected)


def test_a_decoder_may_have_more_layers_than_its_encoder(make_job, encoder, tmp_path):
    from tandem.contrib.generation.starting import run_new

    params = {"layers": 1, "decoder_layers": 3, "heads": 4, "feed_forward": 64, "seed": 3}
    run_new(make_job("new_generator", tmp_path / "t5", params, {"encoder": encoder}))
    sources = Reader(load_generator(tmp_path / "t5/hf")[1], "{passage}", 32, "test").read(TEXTS)
    for options in ({"method": "greedy", "number": 1}, {"method": "beam", "beams": 3, "number": 1}):
        model, tokenizer = load_generator(tmp_path / "t5/hf")
        params = Decoding.model_validate({"precision": "fp32", "tokens": 10} | options)
        written = Writer(model, tokenizer, params, 7, padding_of(model, tokenizer))
        beams = {"num_beams": options.get("beams", 1), "use_cache": False}
        expected = [alone(tmp_path / "t5/hf", text, **beams) for text in TEXTS]
        assert [w.texts for w in written.write(sources, names())] == expected
        assert any(text for texts in expected for text in texts)


@pytest.mark.parametrize(
    "options", [{"method": "top_k", "top_k": 4}, {"method": "nucleus", "top_p": 0.8}]
)
def test_a_text_depends_on_its_passage_and_number_alone(writer, options):
    whole, sources = writer(**options, number=3)
    every = whole.write(sources, names())
    small, _ = writer(**options, number=2, batch_tokens=64)  # a batch of one or two, fewer texts
    reversed_rows = np.arange(len(TEXTS))[::-1].copy()
    fewer = small.write(sources.take(reversed_rows), names()[::-1])[::-1]
    assert [w.texts for w in fewer] == [w.texts[:2] for w in every]
    for one, other in zip(fewer, every, strict=True):
        assert one.log_likelihoods == approx(other.log_likelihoods[:2], rel=1e-4)
    assert len({text for w in every for text in w.texts}) > len(TEXTS)
    other_seed, _ = writer(seed=8, **options, number=3)
    assert [w.texts for w in other_seed.write(sources, names())] != [w.texts for w in every]


@pytest.mark.parametrize(
    "options", [{"method": "greedy", "number": 1}, {"method": "top_k"}, {"method": "beam"}]
)
def test_log_likelihoods_are_the_models(writer, options):
    made, sources = writer(**{"number": 2, **options})
    seen = []
    keep = made._without_padding
    made._without_padding = lambda ids: seen.append(keep(ids)) or seen[-1]
    written = made.write(sources.take(np.arange(2)), names(2))
    number = len(written[0].texts)
    order = np.argsort(np.diff(sources.offsets)[:2], kind="stable")  # of the batch
    targets = seen[0]
    expected = log_likelihoods(
        made.model, sources.take(np.repeat(order, number)), targets, made.padding
    )
    got = [value for row in order for value in written[row].log_likelihoods]
    assert got == approx(expected.tolist(), rel=1e-4)
    assert [count for row in order for count in written[row].tokens] == np.diff(
        targets.offsets
    ).tolist()


def choose(probabilities, number, ends=(9,), **options):
    """The token that is drawn by a number, and its log-likelihood."""
    params = Decoding.model_validate(options)
    choice = Choice(params, 1, ends, torch.tensor([[number]], dtype=torch.float64))
    scores = choice(torch.zeros(1, 1), torch.tensor([probabilities]).log())
    assert scores.isinf().sum() == 1
    return int(scores.argmax()), float(choice.log_likelihood)


def test_drawing_by_hand():
    shares = [0.1, 0.5, 0.15, 0.25]  # in order of probability: tokens 1, 3, 2, 0
    # of the two likeliest, renormalised: 2/3 and 1/3
    assert [choose(shares, u, top_k=2)[0] for u in (0.0, 0.66, 0.67, 0.999)] == [1, 1, 3, 3]
    # the fewest that reach 0.8: 0.5, 0.25 and 0.15, of 0.9 together
    nucleus = {"method": "nucleus", "top_p": 0.8}
    assert [choose(shares, u, **nucleus)[0] for u in (0.55, 0.56, 0.83, 0.84, 0.999)] == [
        1,
        3,
        3,
        2,
        2,
    ]
    # likelihood is the model's own, not that of the cut distribution or of another temperature
    assert choose(shares, 0.9, top_k=2, temperature=0.5)[1] == approx(np.log(0.25), rel=1e-5)
    # at temperature 0.5 shares are squared: 0.25 / (0.25 + 0.0625) = 0.8
    assert [choose(shares, u, top_k=2, temperature=0.5)[0] for u in (0.79, 0.81)] == [1, 3]


def test_random_numbers_are_kept():
    assert uniforms(42, "otter-1", 0, 2) == approx(FIRST)
    assert (uniforms(42, "otter-1", 0, 3)[:2] == uniforms(42, "otter-1", 0, 2)).all()
    others = [
        uniforms(42, "otter-1", 1, 1),
        uniforms(42, "otter-2", 0, 1),
        uniforms(43, "otter-1", 0, 1),
    ]
    assert len({float(first[0]) for first in others} | {FIRST[0]}) == 4


def test_an_ended_text_gains_no_likelihood():
    choice = Choice(Decoding(method="greedy", number=1), 1, [1], None)
    for _ in range(3):
        choice(torch.zeros(1, 1), torch.tensor([[0.2, 0.8]]).log())
    assert float(choice.log_likelihood) == approx(np.log(0.8))


def test_a_sign_ends_a_text(folder, writer):
    greedy, sources = writer(method="greedy", number=1)
    whole = greedy.write(sources, names())[0].texts[0]
    word = whole.split()[1]
    short, _ = writer(method="greedy", number=1, until=word[:8])
    assert short.write(sources, names())[0].texts[0] == whole.partition(word[:8])[0].strip()
