"""uniCOIL: weights of a text's own tokens, against transformers' states and a loop."""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from tandem.contrib.term_weights.unicoil import UniCoil
from tandem.errors import UserError
from tandem.extras.usage import InputLengths, describe_tandem_usage
from tandem.models.dual import encode_all, load_dual
from tandem.models.hub import load_tokenizer
from tandem.models.saving import DualShape
from tandem.models.tokens import Template, Tokens

OPTIONS = {"representation": {"type": "unicoil"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, encoder_folder):
    """A saved model with two towers, whose layers differ."""
    path = tmp_path_factory.mktemp("unicoil")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = UniCoil.start(encoder_folder, False, "max", False, 1.0, **OPTIONS)
        model.layers("query")[0].linear.weight.data += 0.3
    model.save(path, AutoTokenizer.from_pretrained(encoder_folder))
    return path


@pytest.mark.parametrize("shared", [True, False])
def test_both_sides_start_alike(encoder_folder, shared):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = UniCoil.start(encoder_folder, shared, "max", False, 1.0, **OPTIONS)
        torch.manual_seed(1)
        first = torch.nn.Linear(32, 1)
    assert all(
        torch.equal(model.layers(side)[0].linear.weight, first.weight)
        for side in ("query", "passage")
    )
    assert (model.layers("query")[0] is model.layers("passage")[0]) is shared


def test_weights_equal_a_loop_over_transformers_states(folder, tokens):
    opened, model = Tokens.open(tokens), load_dual(folder).eval()
    for side, texts in (("query", opened.queries), ("passage", opened.passages)):
        layer, theirs = (
            model.layers(side)[0].linear,
            AutoModel.from_pretrained(folder / side).eval(),
        )
        with torch.inference_mode():
            vectors = model.encode(side, texts.take(np.arange(4)), opened.template, "fp32")
        for row in range(4):
            ids = torch.tensor(
                [*opened.template.single[0], *texts[row].tolist(), *opened.template.single[1]]
            )
            with torch.inference_mode():
                states = theirs(ids[None]).last_hidden_state[0, 1:-1]
                weights = (states @ layer.weight[0] + layer.bias).relu()
            expected = torch.zeros(model.dimension)
            for token, weight in zip(texts[row].tolist(), weights, strict=True):
                summed = expected[token] + weight
                expected[token] = summed if side == "query" else max(expected[token], weight)
            assert torch.allclose(vectors[row], expected, atol=1e-5)
    assert vectors.count_nonzero() > 4


def test_only_a_texts_own_tokens_have_weights(folder, tokens):
    opened, model = Tokens.open(tokens), load_dual(folder).eval()
    rows = encode_all(model, "passage", opened.passages, opened.template, "fp32", 256)
    for row in range(60):
        assert set(rows[row].nonzero()[:, 0].tolist()) <= set(opened.passages[row].tolist())


def test_no_model_reads_a_query_of_tokens(folder, tokens, encoder_folder, tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(1)  # as `folder`
        options = {"representation": {"type": "unicoil", "queries": "tokens"}}
        UniCoil.start(encoder_folder, True, "max", False, 1.0, **options).save(
            tmp_path, load_tokenizer(encoder_folder)
        )
    opened, model, other = Tokens.open(tokens), load_dual(tmp_path).eval(), load_dual(folder).eval()
    with torch.inference_mode():
        bag = model.encode("query", [np.array([7, 9, 7])], opened.template, "fp32")
        vectors, expected = (
            m.encode("passage", opened.passages.take(np.arange(4)), opened.template, "fp32")
            for m in (model, other)
        )
    assert bag.nonzero().tolist() == [[0, 7], [0, 9]]
    assert bag.max() == 1
    assert torch.equal(vectors, expected)
    assert DualShape.read(tmp_path).representation == {"type": "unicoil", "queries": "tokens"}


def test_the_code_of_the_card_puts_prompts_in_front(encoder_folder, tmp_path, monkeypatch):
    tokenizer = load_tokenizer(encoder_folder)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        prompts = {"query": "find ü: ", "passage": "find "}
        model = UniCoil.start(
            encoder_folder, True, "max", False, 0.5, prompts=prompts, **OPTIONS
        ).eval()
    model.layers("query")[0].linear.bias.data += 1  # so that every token has a weight
    model.save(tmp_path / "dual", tokenizer)
    monkeypatch.chdir(tmp_path)
    block = describe_tandem_usage(DualShape.read(tmp_path / "dual"), InputLengths(8, 8, 2, 3))
    names: dict = {}
    exec(block.removeprefix("```python\n").removesuffix("```"), names)

    def score(*texts):
        template, ids = (
            Template.of(tokenizer),
            tokenizer(list(texts), add_special_tokens=False)["input_ids"],
        )
        sides = zip(("query", "passage"), ids, strict=True)
        vectors = [model.encode(side, [text], template, "fp32") for side, text in sides]
        return (vectors[0] @ vectors[1].T / 0.5).item()

    assert names["scores"].item() == pytest.approx(
        score("find ü: a query", "find a passage"), rel=1e-5
    )
    assert names["scores"].item() > 1.1 * score("a query", "a passage")  # "find" stands in both


def test_keys_of_single_vectors_are_refused(encoder_folder):
    with pytest.raises(UserError, match="pooling is of single vectors"):
        UniCoil.start(encoder_folder, True, "mean", False, 1.0, **OPTIONS)


def test_the_separator_behind_a_title_has_no_weight(titled, encoder):
    tokens, folder = Tokens.open(titled), encoder.folder / "hf"
    (separator,), rows = tokens.template.pair[1], np.arange(8)
    texts = tokens.passages.take(rows)
    assert np.isin(separator, texts.ids)
    model = UniCoil.start(
        folder, True, "max", False, 1.0, representation={"type": "unicoil"}
    ).eval()
    model.layers("passage")[0].linear.bias.data += 9  # so that every token has a weight
    with torch.no_grad():
        weights = model.encode("passage", texts, tokens.template, "fp32")
    own = [[token for token in texts[row] if token != separator] for row in rows]
    assert [set(row.nonzero()[:, 0].tolist()) for row in weights] == [set(row) for row in own]
