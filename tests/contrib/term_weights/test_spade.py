"""SpaDE: a saved model against uniCOIL and a loop over transformers' logits."""

import numpy as np
import pytest
import torch
from tiny_sparse import masked_lm_folder
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tandem.contrib.term_weights.spade import Spade
from tandem.contrib.term_weights.unicoil import UniCoil
from tandem.models.dual import load_dual
from tandem.models.saving import DualShape
from tandem.models.tokens import Tokens

OPTIONS = {"type": "spade", "queries": "tokens", "terms": 2, "share": 0.25}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, encoder_folder):
    """A saved model."""
    path = tmp_path_factory.mktemp("spade")
    masked_lm_folder(path / "start", encoder_folder)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Spade.start(path / "start", True, "max", False, 1.0, representation=OPTIONS)
    model.layers("passage")[0].linear.bias.data += 0.5
    model.save(path / "dual", AutoTokenizer.from_pretrained(encoder_folder))
    return path / "dual"


@pytest.fixture
def encoded(folder, tokens):
    """`encoded(model)`: the weights of four passages by a model, whatever it is."""
    opened = Tokens.open(tokens)
    texts = opened.passages.take(np.arange(4))

    def encode(model):
        with torch.inference_mode():
            return model.eval().encode("passage", texts, opened.template, "fp32")

    return encode


def test_the_expansion_equals_a_loop_over_the_logits_of_transformers(folder, tokens, encoded):
    opened, theirs = (
        Tokens.open(tokens),
        AutoModelForMaskedLM.from_pretrained(folder / "expansion").eval(),
    )
    result = encoded(load_dual(folder).alone("expansion"))
    for row in range(4):
        ids = torch.tensor(
            [*opened.template.single[0], *opened.passages[row].tolist(), *opened.template.single[1]]
        )
        expected = torch.zeros(result.shape[1])
        with torch.inference_mode():
            for logits in theirs(ids[None]).logits[0]:
                for at in logits.argsort(descending=True)[:2]:
                    expected[at] = max(expected[at], logits[at])
        assert torch.allclose(result[row], expected, atol=1e-5)
    assert result.count_nonzero() > 4


def test_a_passage_is_the_mean_of_both_parts_and_a_query_its_tokens(folder, tokens, encoded):
    model, opened = load_dual(folder), Tokens.open(tokens)
    weights, expansion = encoded(model.alone("weights")), encoded(model.alone("expansion"))
    assert torch.allclose(encoded(model), 0.75 * weights + 0.25 * expansion)
    alone = {"type": "unicoil", "queries": "tokens"}
    with torch.inference_mode():
        unicoil = UniCoil._read(folder / "passage", folder / "passage", as_unicoil(folder, alone))
        assert torch.equal(weights, encoded(unicoil))
        bag = model.encode("query", [np.array([7, 9, 7])], opened.template, "fp32")
    assert bag.nonzero().tolist() == [[0, 7], [0, 9]]
    assert bag.max() == 1
    assert DualShape.read(folder).representation == OPTIONS


def as_unicoil(folder, options):
    """The shape of the saved model, had it no expansion."""
    from dataclasses import replace

    return replace(DualShape.read(folder), representation=options)


def test_all_encoders_are_moved_and_learn_once(folder):
    model = load_dual(folder)
    names = [name for name, _ in model.named_parameters()]
    assert {name.split(".")[1] for name in names} == {"passage", "expansion"}
    alone = model.alone("weights")
    assert [id(p) for p in alone.parameters()] == [id(p) for p in model.parameters()]
