"""Poly-encoders: the formula by hand, and a saved model against a loop over transformers' states."""

import numpy as np
import pytest
import torch
from pytest import approx
from transformers import AutoModel

from tandem.contrib.late_interaction.poly import PolyEncoder
from tandem.models.dual import load_dual
from tandem.models.hub import load_tokenizer
from tandem.models.saving import DualShape
from tandem.models.tokens import Tokens

OPTIONS = {"type": "poly", "codes": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, encoder_folder):
    """A saved model of two towers."""
    path = tmp_path_factory.mktemp("poly")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = PolyEncoder.start(encoder_folder, False, "max", False, 0.5, representation=OPTIONS)
    model.layers("query")[0].linear.weight.data *= 20  # so that no code attends to all tokens alike
    model.save(path, load_tokenizer(encoder_folder))
    return path


def test_a_passage_weighs_the_vectors_of_the_query(folder):
    model = load_dual(folder)
    queries = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    passages = torch.tensor([[np.log(3), 0.0], [0.0, 2.0]], dtype=torch.float32)
    # Products ln 3 and 0 have weights 3/4 and 1/4; 0 and 2 those of e² : 1; the temperature is 1/2
    expected = [2 * 0.75 * np.log(3), 2 * 2 * np.exp(2) / (1 + np.exp(2))]
    assert model.scores(queries, passages)[0].tolist() == approx(expected)
    assert model.scores(queries, passages[None])[0].tolist() == approx(expected)
    assert model.scores(passages[:1], passages).tolist() == [approx([2 * np.log(3) ** 2, 0.0])]


def test_gradients_are_those_of_the_formula(folder):
    model, generator = load_dual(folder).double(), torch.Generator().manual_seed(0)
    sides = [
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 3, 4), (5, 4))
    ]
    assert torch.autograd.gradcheck(model.scores, [side.requires_grad_() for side in sides])


def test_vectors_equal_a_loop_over_transformers_states(folder, tokens):
    opened, model = Tokens.open(tokens), load_dual(folder).eval()
    codes = model.layers("query")[0].linear.weight
    assert DualShape.read(folder).representation == OPTIONS
    with torch.inference_mode():
        queries = model.encode("query", opened.queries.take(np.arange(4)), opened.template, "fp32")
        passages = model.encode(
            "passage", opened.passages.take(np.arange(4)), opened.template, "fp32"
        )
        for side, texts in (("query", opened.queries), ("passage", opened.passages)):
            theirs = AutoModel.from_pretrained(folder / side).eval()
            for row in range(4):
                ids = torch.tensor(
                    [*opened.template.single[0], *texts[row].tolist(), *opened.template.single[1]]
                )
                states = theirs(ids[None]).last_hidden_state[0]
                if side == "passage":
                    assert torch.allclose(passages[row], states[0], atol=1e-5)
                    continue
                for number, code in enumerate(codes):
                    expected = (states @ code).softmax(0) @ states
                    assert torch.allclose(queries[row, number], expected, atol=1e-5)
    assert not torch.allclose(queries[:, 0], queries[:, 1], atol=1e-2)


def test_pairs_have_the_scores_of_vectors(folder, tokens):
    opened, model = Tokens.open(tokens), load_dual(folder).eval()
    pairs = opened.queries.take(np.array([0, 1, 0])), opened.passages.take(np.array([3, 4, 5]))
    scores = model.score(*pairs, opened.template, "fp32", 64)
    with torch.inference_mode():
        queries, passages = (
            model.encode(side, texts, opened.template, "fp32")
            for side, texts in zip(("query", "passage"), pairs, strict=True)
        )
        expected = model.scores(queries, passages).diagonal()
    assert scores.tolist() == approx(expected.tolist(), rel=1e-2)
