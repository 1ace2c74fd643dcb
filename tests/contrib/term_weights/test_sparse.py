"""Sparse encoders: SPLADE's formula by hand, and sentence-transformers' SparseEncoder on the saved folders."""

import json
import math

import numpy as np
import pytest
import torch
from pytest import approx
from safetensors.torch import load_file, save_file
from tiny_sparse import masked_lm_folder, start
from transformers import AutoTokenizer

from tandem.contrib.term_weights.splade import (
    SparseEncoder,
    join_sparse_rows,
    keep_largest,
    weigh_terms,
)
from tandem.data.collection import Collection, join_contents
from tandem.errors import UserError
from tandem.extras.usage import InputLengths, describe_library_usage
from tandem.models.described import describe_towers
from tandem.models.dual import dot_scores, encode_batches
from tandem.models.folders import hash_weights
from tandem.models.published import run
from tandem.models.saving import DualShape
from tandem.models.tokens import Tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory, encoder_folder):
    return masked_lm_folder(tmp_path_factory.mktemp("mlm"), encoder_folder)


# A text of two tokens and padding, over a vocabulary of three.
LOGITS = torch.tensor([[[math.e - 1, -2.0, 0.0], [1.0, 3.0, -1.0], [50.0, 50.0, 50.0]]])
MASK = torch.tensor([[1, 1, 0]])


def test_weights_by_hand():
    # log(1 + (e - 1)) = 1 is the larger one of the first entry; ReLU makes 0 of -2
    assert weigh_terms(LOGITS, MASK, "max").tolist() == [approx([1.0, math.log(4), 0.0])]
    assert weigh_terms(LOGITS, MASK, "sum").tolist() == [
        approx([1.0 + math.log(2), math.log(4), 0.0])
    ]
    assert weigh_terms(LOGITS, MASK, "max", "log1p_relu").tolist() == [
        approx([math.log(2), math.log1p(math.log(4)), 0.0])
    ]


@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_weights_and_gradients_equal_splade_pooling(pooling, activation):
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    generator = torch.Generator().manual_seed(3)
    ours = torch.randn(4, 6, 11, generator=generator, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    mask = (torch.arange(6) < torch.tensor([6, 3, 1, 4])[:, None]).long()
    weights = weigh_terms(ours, mask, pooling, activation)
    module = SpladePooling(pooling, activation).train()
    expected = module({"token_embeddings": theirs * 1.0, "attention_mask": mask})[
        "sentence_embedding"
    ]
    assert torch.allclose(weights, expected)
    for result in (weights, expected):
        result.square().sum().backward()
    assert torch.allclose(ours.grad, theirs.grad)


def test_the_largest_weights_by_hand():
    assert keep_largest(torch.tensor([[0.5, 2.0, 1.0], [3.0, 0.0, 0.0]]), 2).tolist() == [
        [0.0, 2.0, 1.0],
        [3.0, 0.0, 0.0],
    ]


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"pooling": "sum", "top": 20, "prompts": {"query": "ask: "}},
        {"activation": "log1p_relu", "shared": False},
        {"queries": "tokens"},
    ],
    ids=["max", "sum, largest alone", "two towers", "passages alone"],
)
def test_a_saved_folder_gives_the_same_scores_in_sentence_transformers(
    tmp_path, folder, tokens, dataset, shape
):
    from sentence_transformers import SparseEncoder as Theirs

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = start(folder, **shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 1.01
    model.save(tmp_path, tokenizer)
    ours, opened = SparseEncoder.load(tmp_path).eval(), Tokens.open(tokens)
    queries = list(Collection(dataset).queries("train").values())
    rows = [row for batch in Collection(dataset).batches() for row in batch.to_pylist()]
    passages = [join_contents(row["title"], row["text"]) for row in rows]
    prompt = ours.prompts.get("query", "")
    ids = tokenizer([prompt + text for text in queries], add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        left = ours.encode("query", [np.array(text) for text in ids], opened.template, "fp32")
        right = ours.encode(
            "passage", [opened.passages[i] for i in range(60)], opened.template, "fp32"
        )
    theirs = Theirs(
        str(tmp_path / "shared" if ours.shared else tmp_path), device="cpu", local_files_only=True
    )
    theirs.max_seq_length = 24 + 2
    expected = (
        theirs.encode_query(queries, show_progress_bar=False),
        theirs.encode_document(passages, show_progress_bar=False),
    )
    for own, vectors in zip((left, right), expected, strict=True):
        assert torch.allclose(own, vectors.to_dense(), atol=1e-5)
    assert (right > 0).float().mean() < 0.6
    assert torch.allclose(
        dot_scores(left, right, 1.0), theirs.similarity(*expected).to_dense(), atol=1e-4
    )


def test_the_card_cuts_queries_of_tokens_as_the_stages_do(folder, tmp_path, monkeypatch):
    start(folder, queries="tokens").save(tmp_path / "dual", AutoTokenizer.from_pretrained(folder))
    monkeypatch.chdir(tmp_path)
    shape, lengths = DualShape.read(tmp_path / "dual"), InputLengths(4, 8, 2, 3)
    block = describe_library_usage(shape, lengths, "SparseEncoder")
    names: dict = {}
    exec(block.removeprefix("```python\n").removesuffix("```"), names)
    vector = names["model"].encode_query(["otter heron beaver lynx mole owl"]).to_dense()
    assert vector.count_nonzero() == 4


def test_a_folder_of_theirs_is_read(tmp_path, folder, tokens):
    from sentence_transformers import SparseEncoder as Theirs
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    modules = [Transformer(str(folder), transformer_task="fill-mask"), SpladePooling("max")]
    theirs = Theirs(modules=modules, device="cpu", max_active_dims=50, prompts={"query": "ask: "})
    theirs.save(str(tmp_path))
    described = describe_towers(tmp_path)
    assert described["representation"] == {
        "type": "sparse",
        "pooling": "max",
        "activation": "relu",
        "top": 50,
    }
    assert described["prompts"] == {"query": "ask: "}
    opened, ours = Tokens.open(tokens), start(tmp_path, top=50).eval()
    with torch.inference_mode():
        vectors = ours.encode("passage", [opened.passages[1]], opened.template, "fp32")
    text = AutoTokenizer.from_pretrained(folder).decode(opened.passages[1])
    assert torch.allclose(
        vectors, theirs.encode([text], show_progress_bar=False).to_dense(), atol=1e-5
    )


@pytest.fixture(params=["a folder a part", "passages' encoder in the folder itself"])
def inference_free(request, tmp_path, folder):
    """A SparseEncoder of sentence-transformers that gives queries' tokens fixed weights; in its folder, and opened."""
    from sentence_transformers import SparseEncoder as Theirs
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    tokenizer = AutoTokenizer.from_pretrained(folder)
    weights = torch.linspace(0.1, 3, len(tokenizer))
    encoder = [
        Transformer(str(folder), transformer_task="fill-mask"),
        SpladePooling("max", "log1p_relu"),
    ]
    queries = SparseStaticEmbedding(tokenizer, weight=weights)
    router = Router.for_query_document([queries], encoder, default_route="document")
    theirs = Theirs(modules=[router], device="cpu")
    theirs.save(str(tmp_path))
    if not request.param.startswith("a folder"):  # as OpenSearch publishes its models
        place = next(tmp_path.glob("document_0_*"))
        for path in place.iterdir():
            path.rename(tmp_path / path.name)
        text = (tmp_path / "router_config.json").read_text()
        (tmp_path / "router_config.json").write_text(text.replace(f'"{place.name}"', '""'))
        theirs = Theirs(str(tmp_path), device="cpu", local_files_only=True)
    return tmp_path, theirs


def adopted(make_job, source, out):
    """The files of the stage `encoder` of a folder."""
    run(make_job("encoder", out, {"source": "folder"}, {}, {"path": str(source)}))
    return out / "hf"


def test_published_weights_of_queries_tokens_are_read(
    inference_free, tokens, dataset, make_job, tmp_path
):
    source, theirs = inference_free
    described = describe_towers(source)
    assert described["representation"]["queries"] == "tokens"
    assert described["representation"]["activation"] == "log1p_relu"
    hf = adopted(make_job, source, tmp_path / "encoder-0123456789")
    ours = start(
        hf, **{key: value for key, value in described["representation"].items() if key != "type"}
    ).eval()
    opened, questions = Tokens.open(tokens), list(Collection(dataset).queries("train").values())
    tokenizer = AutoTokenizer.from_pretrained(hf)
    ids = [np.array(text) for text in tokenizer(questions, add_special_tokens=False)["input_ids"]]
    texts = [tokenizer.decode(opened.passages[i]) for i in range(5)]
    with torch.inference_mode():
        queries = ours.encode("query", ids, opened.template, "fp32")
        passages = ours.encode(
            "passage", [opened.passages[i] for i in range(5)], opened.template, "fp32"
        )
    assert torch.equal(queries, theirs.encode_query(questions, show_progress_bar=False).to_dense())
    assert queries.unique().numel() > 10
    assert torch.allclose(
        passages, theirs.encode_document(texts, show_progress_bar=False).to_dense(), atol=1e-5
    )
    assert describe_towers(hf) == described  # what the stage wrote says the same
    ours.save(tmp_path / "saved", tokenizer)
    again = SparseEncoder.load(tmp_path / "saved").eval()
    with torch.inference_mode():
        assert torch.equal(again.encode("query", ids, opened.template, "fp32"), queries)


def test_other_weights_of_queries_tokens_are_another_encoder(inference_free):
    source, _ = inference_free
    before, path = hash_weights(source), next(source.glob("query_0_*")) / "model.safetensors"
    save_file({"weight": load_file(path)["weight"] * 2}, path)
    assert hash_weights(source) != before
    path.unlink()
    with pytest.raises(UserError, match=r"query_0_.*: model.safetensors is missing"):
        hash_weights(source)


def test_queries_with_a_tokenizer_of_their_own_are_refused(inference_free, make_job, tmp_path):
    source, _ = inference_free
    path = next(source.glob("query_0_*")) / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["the"], vocabulary["is"] = vocabulary["is"], vocabulary["the"]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="its tokenizer is not that of the passages"):
        adopted(make_job, source, tmp_path / "encoder-0123456789")
    assert not (tmp_path / "encoder-0123456789/stage.json").exists()


def test_texts_in_batches_give_the_weights_of_each_alone(folder, tokens, monkeypatch):
    model, opened = start(folder).eval(), Tokens.open(tokens)
    texts = model, "passage", opened.passages, opened.template, "fp32"
    rows = join_sparse_rows(encode_batches(*texts, 128), model.dimension)
    monkeypatch.setattr("tandem.contrib.term_weights.splade.LOGITS", 1)  # one text at a time
    few = join_sparse_rows(encode_batches(*texts, 1 << 20), model.dimension)
    with torch.inference_mode():
        alone = [
            model.encode("passage", [opened.passages[i]], opened.template, "fp32", 8)
            for i in range(60)
        ]
    assert np.abs(rows.toarray() - torch.cat(alone).numpy()).max() < 1e-5
    assert np.abs(few.toarray() - torch.cat(alone).numpy()).max() < 1e-5
    assert rows.has_sorted_indices
    assert (rows.data > 0).all()


def test_an_encoder_without_a_head_is_refused(encoder_folder):
    with pytest.raises(UserError, match=r"has no language-modelling head.*objective: mlm"):
        start(encoder_folder)
