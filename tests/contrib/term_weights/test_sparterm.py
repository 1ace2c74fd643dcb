"""SparTerm: a saved model against a loop over transformers' logits."""

import numpy as np
import pytest
import torch
from tiny_sparse import masked_lm_folder
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tandem.config.settings import Execution
from tandem.contrib.term_weights.sparterm import SparTerm
from tandem.models.acceleration import accelerate
from tandem.models.dual import load_dual
from tandem.models.learning import set_dropout
from tandem.models.tokens import Tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory, encoder_folder):
    """A saved model, half of whose logits are above 0."""
    path = tmp_path_factory.mktemp("sparterm")
    masked_lm_folder(path / "start", encoder_folder, bias=0.0)
    options = {"type": "sparterm", "queries": "encoded", "top": None}
    model = SparTerm.start(path / "start", True, "max", False, 1.0, representation=options)
    model.save(path / "dual", AutoTokenizer.from_pretrained(encoder_folder))
    return path / "dual"


@pytest.fixture
def opened(tokens):
    return Tokens.open(tokens)


def weigh(model, opened, rows):
    """The weights of some passages."""
    texts = opened.passages.take(np.array(rows))
    with torch.inference_mode():
        return model.eval().encode("passage", texts, opened.template, "fp32")


def test_weights_are_summed_logits_of_the_texts_own_terms(folder, opened):
    result = weigh(load_dual(folder), opened, range(4))
    theirs = AutoModelForMaskedLM.from_pretrained(folder / "shared").eval()
    first, last = opened.template.single
    for row in range(4):
        own = opened.passages[row].tolist()
        with torch.inference_mode():
            logits = theirs(torch.tensor([[*first, *own, *last]])).logits[0]
        expected = torch.zeros(result.shape[1])
        for term in set(own):
            expected[term] = sum(max(0.0, float(of_token[term])) for of_token in logits)
        assert torch.allclose(result[row], expected, atol=1e-4)
        # neither [CLS] and [SEP] nor a word that is not there has a weight
        assert set(result[row].nonzero()[:, 0].tolist()) <= set(own)
        assert len(set(own)) > result[row].count_nonzero() > 0


def test_the_logits_of_some_terms_at_a_time_give_the_same_weights(folder, opened):
    whole, parts = load_dual(folder), load_dual(folder)
    accelerate(parts, Execution(), 256, "fp32", training=False)
    assert len(parts.last_layers) == 2
    assert torch.allclose(weigh(whole, opened, range(8)), weigh(parts, opened, range(8)), atol=1e-4)


def test_a_term_of_the_largest_weight_alone_is_one_that_the_text_has(folder, opened):
    model = load_dual(folder)
    largest = weigh(model, opened, range(8)).argmax(1)
    model.options = model.options.model_copy(update={"top": 1})
    weights = weigh(model, opened, range(8))
    assert torch.equal(weights.argmax(1), largest)
    assert weights.count_nonzero(1).tolist() == [1] * 8


@pytest.fixture(scope="module")
def gated(tmp_path_factory, encoder_folder):
    """A saved model with a gate of other weights than the encoder's, which lets a fifth of the vocabulary through."""
    path = tmp_path_factory.mktemp("gated")
    masked_lm_folder(path / "start", encoder_folder, bias=0.0)
    options = {"type": "sparterm", "gate": "learned"}
    model = SparTerm.start(path / "start", True, "max", False, 1.0, representation=options)
    bias = model.towers["gate"].get_output_embeddings().bias
    torch.nn.init.uniform_(bias, -4.0, 1.5, generator=torch.Generator().manual_seed(1))
    model.save(path / "dual", AutoTokenizer.from_pretrained(encoder_folder))
    return path / "dual"


def test_a_learned_gate_lets_likely_terms_of_passages_through_beside_their_own(gated, opened):
    result = weigh(load_dual(gated), opened, range(4))
    encoder, gate = (
        AutoModelForMaskedLM.from_pretrained(gated / name).eval() for name in ("shared", "gate")
    )
    first, last = opened.template.single
    for row in range(4):
        own = opened.passages[row].tolist()
        ids = torch.tensor([[*first, *own, *last]])
        with torch.inference_mode():
            weights = encoder(ids).logits[0].relu().sum(0)
            likely = gate(ids).logits[0].amax(0).sigmoid() > 0.7
        added = set(likely.nonzero()[:, 0].tolist()) - set(own)
        assert len(added) > 10
        for term in range(result.shape[1]):
            expected = float(weights[term]) if term in {*own, *added} else 0.0
            assert float(result[row, term]) == pytest.approx(expected, abs=1e-4)


def test_a_query_has_its_own_terms_alone_whatever_the_gate(gated, opened):
    texts = opened.queries.take(np.arange(3))
    with torch.inference_mode():
        weights = load_dual(gated).eval().encode("query", texts, opened.template, "fp32")
    for row in range(3):
        assert set(weights[row].nonzero()[:, 0].tolist()) <= set(texts[row].tolist())


def test_the_gates_logits_of_some_terms_at_a_time_let_the_same_terms_through(gated, opened):
    whole, parts = load_dual(gated), load_dual(gated)
    accelerate(parts, Execution(), 256, "fp32", training=False)
    assert {*parts.last_layers} == {"query", "passage", "gate"}
    assert torch.allclose(weigh(whole, opened, range(8)), weigh(parts, opened, range(8)), atol=1e-4)


def test_the_gate_has_no_dropout_while_the_encoder_learns(gated, opened):
    model = load_dual(gated)
    set_dropout(model, 0.5)
    texts = opened.passages.take(np.arange(4))
    model.train()
    drawn = [model.encode("passage", texts, opened.template, "fp32") for _ in range(2)]
    assert not torch.equal(*drawn)
    lets = [model.gate_logits(texts, opened.template, "fp32") for _ in range(2)]
    assert torch.equal(*lets)
    drawn[0].sum().backward()
    assert all(weights.grad is None for weights in model.towers["gate"].parameters())
