"""PARADE: aggregation by hand and beside transformers' layers, and scores that do not depend on the company."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pytest import approx
from transformers.models.bert.modeling_bert import BertConfig, BertLayer

from tandem.config.settings import Execution
from tandem.config.training import CrossTrain
from tandem.contrib.long_documents.document_tokens import Documents
from tandem.contrib.long_documents.parade import Options, Parade
from tandem.extras.training_operations import count_learning_operations, count_step_operations
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder, load_cross
from tandem.models.hub import load_tokenizer
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template, Tokens
from tandem.training.lists import Lists

AGGREGATES = ("mean", "max", "sum", "attention", "transformer")
SIZES = np.tile([1, 3, 2], 5)  # windows of fifteen documents


@pytest.fixture(scope="module")
def opened(tokens):
    return Tokens.open(tokens)


@pytest.fixture(scope="module")
def documents(opened):
    """The first 30 passages as the windows of 15 documents."""
    return Documents.join(opened.passages.take(np.arange(30)), np.r_[0, SIZES.cumsum()])


@pytest.fixture
def make(cross_model):
    """`make(aggregate)`: PARADE over the tiny cross-encoder, with the same new layers at each call."""

    def parade(aggregate):
        torch.manual_seed(3)
        model = Parade.over(
            CrossEncoder.load(cross_model.folder / "cross"), Options(aggregate=aggregate)
        )
        # of the size of the encoder's vectors, so that a layer shows
        for parameter in model.layers.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return model.eval()

    return parade


def vectors_of(*rows):
    return torch.tensor([rows], dtype=torch.float32)


@pytest.mark.parametrize(
    ("aggregate", "expected"), [("mean", [2.0, 3.0]), ("max", [3.0, 5.0]), ("sum", [4.0, 6.0])]
)
def test_pooled_windows_by_hand(aggregate, expected, make):
    # (1, 5) and (3, 1) are windows; the third row stands for none
    model = make(aggregate)
    stands = torch.tensor([[True, True, False]])
    result = model.aggregate(vectors_of([1.0, 5.0], [3.0, 1.0], [9.0, 9.0]), stands, None)
    assert result.tolist() == [expected]


def test_attention_by_hand(make):
    # w = (ln 3, 0): weights of (1, 0) and (0, 4) are 3 : 1, so the sum is (3/4, 4/4)
    model = make("attention")
    model.attention = torch.nn.Linear(2, 1, bias=False)
    model.attention.weight.data = torch.tensor([[np.log(3.0), 0.0]], dtype=torch.float32)
    stands = torch.tensor([[True, True, False]])
    result = model.aggregate(vectors_of([1.0, 0.0], [0.0, 4.0], [50.0, 50.0]), stands, None)
    torch.testing.assert_close(result, torch.tensor([[0.75, 1.0]]))


def test_the_transformer_is_berts_layers_over_the_first_tokens_embedding_and_the_windows(
    make, opened
):
    model = make("transformer")
    config = model.encoder.config
    theirs = BertConfig(
        hidden_size=config.hidden_size,
        num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        layer_norm_eps=1e-12,
        attn_implementation="eager",
    )
    vectors = torch.randn(2, 3, config.hidden_size)
    stands = torch.tensor([[True, True, True], [True, False, False]])
    first = opened.template.pair[0][0]
    token = model.encoder.get_input_embeddings().weight[first].expand(2, 1, -1)
    states = torch.cat([token, vectors], 1)
    seen = torch.cat([torch.ones(2, 1, dtype=torch.bool), stands], 1)
    mask = torch.where(seen, 0.0, -1e9)[:, None, None, :]
    for layer in model.layers:
        bert = BertLayer(theirs).eval()
        parts = layer.self_attn.in_proj_weight.chunk(3), layer.self_attn.in_proj_bias.chunk(3)
        for name, weight, bias in zip(("query", "key", "value"), *parts, strict=True):
            getattr(bert.attention.self, name).weight.data = weight
            getattr(bert.attention.self, name).bias.data = bias
        for ours, other in (
            (layer.self_attn.out_proj, bert.attention.output.dense),
            (layer.norm1, bert.attention.output.LayerNorm),
            (layer.linear1, bert.intermediate.dense),
            (layer.linear2, bert.output.dense),
            (layer.norm2, bert.output.LayerNorm),
        ):
            other.load_state_dict(ours.state_dict())
        states = bert(states, mask)
        states = states[0] if isinstance(states, tuple) else states
    with torch.no_grad():
        ours = model.aggregate(vectors, stands, opened.template)
    torch.testing.assert_close(ours, states[:, 0].detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("aggregate", ["mean", "max", "sum", "attention"])
def test_a_document_of_one_window_scores_as_the_cross_encoder_does(
    aggregate, make, cross_model, opened, documents
):
    plain = CrossEncoder.load(cross_model.folder / "cross").eval()
    singles = np.flatnonzero(SIZES == 1)
    queries = opened.queries.take(np.arange(len(singles)))
    windows = documents.windows.take(documents.bounds[singles])
    with torch.no_grad():
        expected = plain(queries, windows, opened.template, "fp32")
        ours = make(aggregate)(queries, documents.take(singles), opened.template, "fp32")
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_scores_do_not_depend_on_the_company(aggregate, make, opened, documents):
    model = make(aggregate)
    accelerate(model, Execution(attention="padded"), 512, "fp32", training=False)
    rows = np.arange(15)
    queries = opened.queries.take(rows)
    whole = model.score(queries, documents, opened.template, "fp32", 512)
    assert len({*whole.tolist()}) == 15
    for part in ([4], [14, 2, 7], range(3, 12)):
        at = np.array(part)
        own = model.score(queries.take(at), documents.take(at), opened.template, "fp32", 512)
        assert own.tolist() == whole[at].tolist()


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_a_saved_model_scores_as_before_as_one_batch_and_in_parts(
    aggregate, make, opened, documents, tmp_path, encoder
):
    model = make(aggregate)
    queries = opened.queries.take(np.arange(15))
    with torch.no_grad():
        batch = model(queries, documents, opened.template, "fp32")
    model.save(tmp_path / "cross", load_tokenizer(encoder.folder / "hf"))
    loaded = load_cross(tmp_path / "cross").eval()
    assert isinstance(loaded, Parade)
    np.testing.assert_allclose(
        loaded.score(queries, documents, opened.template, "fp32", 512), batch, atol=2e-5
    )


def test_transformers_refuses_the_folder_as_a_classifier(make, tmp_path, encoder):
    from transformers import AutoModel, AutoModelForSequenceClassification

    make("mean").save(tmp_path / "cross", load_tokenizer(encoder.folder / "hf"))
    AutoModel.from_pretrained(tmp_path / "cross")
    with pytest.raises(RuntimeError):
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "cross")


def test_documents_are_views_of_their_windows():
    windows = Ragged.of([np.array([1, 2]), np.array([3]), np.array([4, 5, 6]), np.array([7])])
    documents = Documents.join(windows, np.array([0, 2, 3, 4]))
    assert [documents[row].tolist() for row in range(3)] == [[1, 2, 3], [4, 5, 6], [7]]
    taken = documents.take(np.array([2, 0]))
    assert [taken[row].tolist() for row in range(2)] == [[7], [1, 2, 3]]
    assert taken.count_texts(np.array([0, 1])).tolist() == [1, 2]
    assert [taken.windows[row].tolist() for row in range(3)] == [[7], [1, 2], [3]]


def test_a_budget_counts_a_query_with_every_window():
    # two windows of a document with 7 tokens in all, each with the query's 3 tokens and 3 special ones
    template = Template(((2,), (3,)), ((2,), (3,), (3,)), (0, 0, 0, 1, 1), 0)
    assert template.pair_lengths(np.array([3]), np.array([7]), np.array([2])).tolist() == [19]


@pytest.mark.parametrize("longest", [None, 12])
def test_a_step_costs_the_query_with_each_window(longest, documents, opened, make):
    model = make("max")
    template = replace(opened.template, longest_pair=longest)
    tokens = replace(opened, passages=documents, template=template)
    rows = np.arange(len(SIZES))
    lists = Lists(rows[:5], rows[:6] * 3, np.ones(5, np.int64), rows)  # five of three documents
    train = CrossTrain(queries_per_batch=4, list_size=3)
    # the 3 are [CLS] and twice [SEP]
    pairs = documents.lengths(rows) + SIZES * (opened.queries.lengths(rows // 3) + 3)
    read = pairs if longest is None else np.minimum(pairs, SIZES * longest)
    expected = 4 * 3 * read.mean() * count_learning_operations(model)
    models = torch.nn.ModuleDict({"cross": model})
    assert count_step_operations(models, tokens, lists, train) == approx(expected)
