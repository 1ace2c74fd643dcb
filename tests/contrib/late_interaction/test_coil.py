"""COIL: the formula by hand, and a loop over transformers' states."""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from tandem.contrib.late_interaction.coil import Coil
from tandem.contrib.late_interaction.same_token import DIGIT, sum_same_tokens
from tandem.contrib.late_interaction.token_scores import compute_max_sim
from tandem.errors import UserError
from tandem.extras.usage import InputLengths, describe_tandem_usage
from tandem.models.dual import load_dual
from tandem.models.hub import load_tokenizer
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape
from tandem.models.tokens import Template, Tokens

QUERIES = ["what do otters eat?", "where do herons nest", ""]
PASSAGES = ["Otters eat crabs. Otters swim, otters dive.", "Herons nest in trees.", ""]
BOTH, TOKENS_ALONE = (
    {"type": "coil", "dim": 6, "cls_dim": 10},
    {"type": "coil", "dim": 6, "cls_dim": None},
)


@pytest.fixture
def saved(encoder_folder, tmp_path):
    """`saved(options, shared)`: a saved model, and the model as it is loaded again."""

    def make(options, shared):
        with torch.random.fork_rng():
            torch.manual_seed(5)
            model = Coil.start(encoder_folder, shared, "max", False, 0.5, representation=options)
        if not shared:
            model.layers("query")[0].linear.bias.data += 0.2
        model.save(tmp_path / "dual", load_tokenizer(encoder_folder))
        return tmp_path / "dual", load_dual(tmp_path / "dual").eval()

    return make


@pytest.fixture
def ids(encoder_folder):
    """`ids(texts)`: token ids without special tokens; and the template."""
    tokenizer = load_tokenizer(encoder_folder)
    return lambda texts: [
        np.array(row) for row in tokenizer(texts, add_special_tokens=False)["input_ids"]
    ], (Template.of(tokenizer))


def test_a_token_meets_the_same_token_alone():
    # Rows end with the id. Token 7 of the query: max(2, -1) of the two 7 of the first passage, nothing of the second.
    # Token 8: 3 · 1 of the first, 3 · (-2) of the second: a bad match counts below 0, the better 9 beside it does not.
    queries = torch.tensor([[[1.0, 0, 7], [3.0, 0, 8]]])
    passages = torch.tensor(
        [[[2.0, 0, 7], [1.0, 0, 8], [-1.0, 0, 7]], [[-2.0, 0, 8], [5.0, 0, 9], [0.0, 0, 0]]]
    )
    assert compute_max_sim(queries, passages, same_token=True).tolist() == [[2.0 + 3.0, -6.0]]
    assert compute_max_sim(queries, passages[None], same_token=True).tolist() == [[5.0, -6.0]]
    far = torch.tensor([[[1.0, 1, 7]]])  # the id DIGIT + 7
    assert compute_max_sim(far, passages, same_token=True).tolist() == [[0.0, 0.0]]


def test_the_search_multiplies_the_pairs_of_the_same_token_alone():
    # few ids, so that a text has some of them twice; a query without any token, tokens that no passage has
    random = np.random.default_rng(7)
    of_query = np.array([4, 0, 7, 1])
    of_passage = np.array([5, 1, 9])

    def draw(tokens, most):
        ids = random.integers(1, most, tokens)
        vectors = random.normal(size=(tokens, 3)).astype(np.float16).astype(np.float64)
        return np.column_stack([vectors, ids // DIGIT, ids % DIGIT])

    queries = draw(of_query.sum(), 9)
    passages = draw(of_passage.sum(), 6)
    expected = np.zeros((4, 3))
    for i, query in enumerate(np.split(queries, of_query.cumsum()[:-1])):
        for j, passage in enumerate(np.split(passages, of_passage.cumsum()[:-1])):
            for token in query:
                same = passage[passage[:, -1] == token[-1]]
                expected[i, j] += max(same[:, :-2] @ token[:-2], default=0.0)
    found = sum_same_tokens(queries, passages, of_query, of_passage)
    assert found == pytest.approx(expected, rel=1e-12)
    assert not found[1].any()


def test_gradients_reach_the_tokens_that_matched():
    queries = torch.tensor([[[1.0, 0, 7], [3.0, 0, 8]]], requires_grad=True)
    passages = torch.tensor([[[2.0, 0, 7], [4.0, 0, 9], [-1.0, 0, 7]]], requires_grad=True)
    compute_max_sim(queries, passages, same_token=True).sum().backward()
    assert queries.grad[..., 0].tolist() == [[2.0, 0.0]]
    assert passages.grad[..., 0].tolist() == [[1.0, 0.0, 0.0]]
    assert not queries.grad[..., 1:].any()
    assert not passages.grad[..., 1:].any()


@pytest.mark.parametrize("options", [BOTH, TOKENS_ALONE])
@pytest.mark.parametrize("shared", [True, False])
def test_scores_equal_a_loop_over_transformers_states(saved, ids, options, shared):
    folder, model = saved(options, shared)

    def encoded(side, texts):
        """Each text's tokens with their vectors, and the vector of [CLS]."""
        tower = folder / ("shared" if shared else side)
        tokenizer, encoder = (
            AutoTokenizer.from_pretrained(tower),
            AutoModel.from_pretrained(tower).eval(),
        )
        layers = [layer.linear for layer in model.layers(side)]
        for text in texts:
            inputs = tokenizer(text, return_tensors="pt")
            with torch.no_grad():
                states = encoder(**inputs).last_hidden_state[0]
                tokens = list(
                    zip(inputs["input_ids"][0, 1:-1].tolist(), layers[0](states[1:-1]), strict=True)
                )
                # the first special token stands for a text without any
                if not tokens and not options["cls_dim"]:
                    tokens = [(inputs["input_ids"][0, 0].item(), layers[0](states[0]))]
                yield tokens, layers[1](states[0]) if options["cls_dim"] else torch.zeros(1)

    expected = torch.zeros(3, 3)
    for row, (query, whole) in enumerate(encoded("query", QUERIES)):
        for column, (passage, other) in enumerate(encoded("passage", PASSAGES)):
            score = whole @ other
            for token, vector in query:
                score += max((vector @ own for same, own in passage if same == token), default=0.0)
            expected[row, column] = score / 0.5
    with torch.no_grad():
        sides = (model.encode(side, ids[0](texts), ids[1], "fp32", 8) for side, texts in TEXTS)
        torch.testing.assert_close(model.scores(*sides), expected, rtol=1e-5, atol=1e-4)
    pairs = [ids[0](QUERIES), ids[0](PASSAGES)]
    assert torch.from_numpy(model.score(*pairs, ids[1], "fp32", 64)).allclose(
        expected.diag(), rtol=5e-3, atol=5e-3
    )


TEXTS = (("query", QUERIES), ("passage", PASSAGES))


def test_rows_are_known_without_computing_them_and_ids_survive_fp16(saved, ids):
    _, model = saved(BOTH, True)
    texts = ids[0](PASSAGES)
    with torch.no_grad():
        rows = model.encode("passage", texts, ids[1], "fp32").half()
    assert (
        model.counts("passage", Ragged.of(texts), ids[1]).tolist() == rows.any(-1).sum(1).tolist()
    )
    # behind the two pieces of [CLS]'s
    first = (rows[0, 2:, -2].double() * DIGIT + rows[0, 2:, -1].double()).tolist()
    assert [number - 1 for number in first if number] == texts[0].tolist()


def test_the_card_names_what_loads_it(saved, encoder_folder):
    folder, _ = saved(BOTH, True)
    assert "load_dual" in describe_tandem_usage(DualShape.read(folder), InputLengths(8, 8, 2, 3))
    assert not (folder / "shared/modules.json").exists()
    with pytest.raises(
        UserError, match="normalize is of single vectors, but representation is coil"
    ):
        Coil.start(encoder_folder, True, "max", True, 1.0, representation=BOTH)


def test_the_separator_behind_a_title_has_no_vector(titled, encoder):
    tokens, folder = Tokens.open(titled), encoder.folder / "hf"
    (separator,), rows = tokens.template.pair[1], np.arange(8)
    texts = tokens.passages.take(rows)
    assert np.isin(separator, texts.ids)
    options = {"type": "coil", "dim": 6, "cls_dim": None}
    model = Coil.start(folder, True, "max", False, 1.0, representation=options).eval()
    with torch.no_grad():
        vectors = model.encode("passage", texts, tokens.template, "fp32")
    own = [[token for token in texts[row] if token != separator] for row in rows]
    assert model.counts("passage", texts, tokens.template).tolist() == list(map(len, own))
    assert vectors.any(-1).sum(1).tolist() == list(map(len, own))
