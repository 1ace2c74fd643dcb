"""Late interaction: the formula by hand, which tokens count, and the scores of sentence-transformers."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from pytest import approx
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from torch import nn
from transformers import AutoModel, AutoTokenizer

from tandem.config.representations import representation
from tandem.config.settings import Execution
from tandem.contrib.late_interaction import token_scores
from tandem.contrib.late_interaction.token_scores import compute_max_sim
from tandem.contrib.late_interaction.token_vectors import TokenVectors
from tandem.errors import UserError
from tandem.extras.usage import InputLengths
from tandem.models.acceleration import accelerate
from tandem.models.described import describe_towers
from tandem.models.dual import load_dual
from tandem.models.hub import load_tokenizer
from tandem.models.published import run as run_encoder
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape
from tandem.models.tokens import Template

QUERIES = ["what do otters eat?", "where do herons nest"]
PASSAGES = ["Otters eat crabs, fish.", "Herons nest in trees.", "Moles dig."]
OPTIONS = {
    "type": "multi",
    "dim": 16,
    "query_tokens": 12,
    "attend": False,
    "skip_punctuation": True,
}


@pytest.fixture
def start(encoder_folder):
    """`start(shared, **options)`: late interaction from the tiny encoder, its new layer from a seed."""

    def make(shared=True, **options):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            return TokenVectors.start(
                encoder_folder, shared, "cls", True, 1.0, representation=OPTIONS | options
            ).eval()

    return make


@pytest.fixture
def ids(encoder_folder):
    """`ids(texts)`: token ids without special tokens, and the template."""
    tokenizer = load_tokenizer(encoder_folder)
    return lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"], Template.of(
        tokenizer
    )


def encoded(model, ids, side, texts):
    with torch.no_grad():
        return model.encode(side, [np.array(row) for row in ids[0](texts)], ids[1], "fp32")


def test_each_token_of_the_query_finds_its_nearest_of_the_passage():
    # q1: max(1, 0) + max(0, 2) = 3 on the first passage, 0.5 + 1 on the second, whose other rows are not tokens
    queries = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    passages = torch.tensor(
        [[[1.0, 0.0], [0.0, 2.0], [-1.0, -1.0]], [[0.5, 1.0], [0.0, 0.0], [0.0, 0.0]]]
    )
    assert compute_max_sim(queries, passages).tolist() == [[3.0, 1.5]]
    assert compute_max_sim(queries, passages[None]).tolist() == [[3.0, 1.5]]
    # a passage that fits badly scores below 0: rows of zeros never win, and add nothing as a query's
    assert (
        compute_max_sim(
            torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]), torch.tensor([[[-1.0, 0.0], [0.0, 0.0]]])
        ).item()
        == -1.0
    )


def test_blocks_change_neither_scores_nor_gradients(monkeypatch):
    rng = torch.Generator().manual_seed(1)
    queries, passages = (
        torch.randn(shape, generator=rng, dtype=torch.float64) for shape in ((3, 4, 8), (7, 9, 8))
    )

    def results():
        q, p = queries.clone().requires_grad_(), passages.clone().requires_grad_()
        scores = compute_max_sim(q, p)
        scores.square().sum().backward()
        return scores, q.grad, p.grad

    whole = results()
    monkeypatch.setattr(token_scores, "PRODUCTS_PER_BLOCK", 1)
    for in_blocks, at_once in zip(results(), whole, strict=True):
        torch.testing.assert_close(in_blocks, at_once)


def test_queries_are_filled_up_and_punctuation_has_no_vector(start, ids):
    model = start()
    queries, passages = (
        encoded(model, ids, "query", QUERIES),
        encoded(model, ids, "passage", PASSAGES),
    )
    assert queries.shape == (2, 12, 16)
    assert queries.norm(dim=-1).flatten().tolist() == approx([1.0] * 24)
    tokens = [len(row) + 2 for row in ids[0](PASSAGES)]  # with [CLS] and [SEP]
    assert passages.any(-1).sum(1).tolist() == [tokens[0] - 2, tokens[1] - 1, tokens[2] - 1]
    long = encoded(model, ids, "query", [" ".join(["otters"] * 30)])
    assert long.shape == (1, 12, 16)


@pytest.mark.parametrize(
    "options",
    [{}, {"attend": True}, {"query_tokens": None, "skip_punctuation": False, "dim": None}],
)
@pytest.mark.parametrize("shared", [True, False])
def test_sentence_transformers_loads_what_is_saved(
    start, ids, encoder_folder, tmp_path, shared, options
):
    start(shared, **options).save(tmp_path / "dual", load_tokenizer(encoder_folder))
    model = load_dual(tmp_path / "dual").eval()
    assert isinstance(model, TokenVectors)
    ours = model.scores(
        encoded(model, ids, "query", QUERIES), encoded(model, ids, "passage", PASSAGES)
    )
    sides = ("shared", "shared") if shared else ("query", "passage")
    queries, passages = (
        MultiVectorEncoder(str(tmp_path / "dual" / side), device="cpu") for side in sides
    )
    theirs = queries.similarity(queries.encode_query(QUERIES), passages.encode_document(PASSAGES))
    torch.testing.assert_close(ours.detach(), theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("filled", "line"),
    [
        (None, "queries.max_seq_length = 6"),
        (6, "queries.max_seq_length = 6"),
        (12, "queries.max_seq_length = 6  # of a longer one 12 are read all the same"),
    ],
)
def test_the_card_cuts_queries_as_the_stages_do(
    start, ids, encoder_folder, tmp_path, monkeypatch, filled, line
):
    start(query_tokens=filled).save(tmp_path / "dual", load_tokenizer(encoder_folder))
    monkeypatch.chdir(tmp_path)
    usage = TokenVectors.usage(DualShape.read(tmp_path / "dual"), InputLengths(4, 8, 2, 3))
    assert f"\n{line}\n" in usage
    theirs = re.findall(r"```python\n(.*?)```", usage, re.S)[1]
    names = {}
    exec(theirs, names)
    (long,) = names["queries"].encode_query([" ".join(["otters"] * 30)])
    assert len(long) == (filled or 6)


@pytest.mark.parametrize("normalize", [True, False])
def test_what_sentence_transformers_saves_loads_with_its_scores(
    ids, encoder_folder, tmp_path, normalize
):
    expansion = {"strategy": "fixed", "length": 10, "attend": True}
    transformer = Transformer(
        str(encoder_folder), model_kwargs={"dtype": torch.float32}, query_expansion=expansion
    )
    layers = [
        Dense(32, 8, bias=True, activation_function=nn.Tanh(), module_input_name="token_embeddings")
    ]
    layers += [MultiVectorMask()] + [Normalize("token_embeddings")] * normalize
    theirs = MultiVectorEncoder(modules=[transformer, *layers], device="cpu")
    theirs.save(str(tmp_path))
    towers = describe_towers(tmp_path)
    assert towers["representation"] == OPTIONS | {
        "dim": 8,
        "query_tokens": 10,
        "attend": True,
        "skip_punctuation": False,
    }
    model = TokenVectors.start(tmp_path, True, **towers).eval()
    ours = model.scores(
        encoded(model, ids, "query", QUERIES), encoded(model, ids, "passage", PASSAGES)
    )
    expected = theirs.similarity(theirs.encode_query(QUERIES), theirs.encode_document(PASSAGES))
    torch.testing.assert_close(ours.detach(), expected, rtol=1e-5, atol=1e-4)
    towers["representation"]["dim"] = 16
    with pytest.raises(
        UserError,
        match=r"representation.dim is 16, but its layers .* make 8 numbers; say 8, or dense",
    ):
        TokenVectors.start(tmp_path, True, **towers)


@pytest.mark.parametrize("family", ["t5", "qwen3"])
def test_tokens_vectors_need_no_token_before_a_text(family, family_folder, make_job, tmp_path):
    """The pooling of such a description is read by nothing, so the stage `encoder` does not try it."""
    transformer = Transformer(str(family_folder(family)), model_kwargs={"dtype": torch.float32})
    theirs = MultiVectorEncoder(modules=[transformer, MultiVectorMask()], device="cpu")
    theirs.save(str(tmp_path / "published"))
    towers = describe_towers(tmp_path / "published")
    assert towers["pooling"] == "cls"
    options = {"path": str(tmp_path / "published"), "vectors": towers}
    job = make_job("encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, options)
    run_encoder(job)
    model = TokenVectors.start(job.out / "hf", True, **towers).eval()
    tokenizer = load_tokenizer(job.out / "hf")
    read = (
        lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"],
        Template.of(tokenizer),
    )
    ours = model.scores(
        encoded(model, read, "query", QUERIES), encoded(model, read, "passage", PASSAGES)
    )
    expected = theirs.similarity(theirs.encode_query(QUERIES), theirs.encode_document(PASSAGES))
    torch.testing.assert_close(ours.detach(), expected, rtol=1e-4, atol=1e-3)


def test_queries_that_are_filled_up_on_the_left_are_refused(encoder_folder, tmp_path):
    shutil.copytree(encoder_folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"padding_side": "left"}))
    with pytest.raises(UserError, match="pads on the left.*; set query_tokens to null"):
        TokenVectors.start(tmp_path, True, "cls", True, 1.0, representation=OPTIONS)
    TokenVectors.start(
        tmp_path, True, "cls", True, 1.0, representation=OPTIONS | {"query_tokens": None}
    )


def test_what_is_not_computed_here_is_refused(encoder_folder, tmp_path):
    transformer = Transformer(str(encoder_folder))
    MultiVectorEncoder(modules=[transformer, MultiVectorMask(["the"])], device="cpu").save(
        str(tmp_path)
    )
    with pytest.raises(
        UserError, match="describes tokens that are left out besides passages' punctuation"
    ):
        describe_towers(tmp_path)


def test_me_bert_is_the_best_product_of_the_query_s_first_vector_with_a_passage_s_first_three(
    start, ids, encoder_folder, tmp_path
):
    options = {
        "dim": None,
        "query_tokens": None,
        "skip_punctuation": False,
        "query_vectors": 1,
        "passage_vectors": 3,
    }
    start(**options).save(tmp_path / "dual", load_tokenizer(encoder_folder))
    model = load_dual(tmp_path / "dual").eval()
    queries, passages = (
        encoded(model, ids, "query", QUERIES),
        encoded(model, ids, "passage", PASSAGES),
    )
    assert (queries.shape, passages.shape) == ((2, 1, 32), (3, 3, 32))
    tokenizer, plain = (
        AutoTokenizer.from_pretrained(encoder_folder),
        AutoModel.from_pretrained(encoder_folder).eval(),
    )

    def states(text):
        with torch.no_grad():
            return nn.functional.normalize(
                plain(**tokenizer(text, return_tensors="pt")).last_hidden_state[0], dim=-1
            )

    expected = [[(states(p)[:3] @ states(q)[0]).max().item() for p in PASSAGES] for q in QUERIES]
    torch.testing.assert_close(
        model.scores(queries, passages), torch.tensor(expected), rtol=1e-5, atol=1e-5
    )
    shape = DualShape.read(tmp_path / "dual")
    # which has a vector a token
    assert "MultiVectorEncoder" not in TokenVectors.usage(shape, InputLengths(8, 8, 2, 3))
    assert not (tmp_path / "dual/shared/modules.json").exists()


def test_the_first_vectors_are_those_of_tokens_that_have_any(start, ids):
    texts = [", otters, herons and moles.", ".", "Moles dig."]
    every, first = (
        encoded(start(**options), ids, "passage", texts) for options in ({}, {"passage_vectors": 3})
    )
    counts = start(passage_vectors=3).counts(
        "passage", Ragged.of([np.array(row) for row in ids[0](texts)]), ids[1]
    )
    assert counts.tolist() == first.any(-1).sum(1).tolist() == [3, 2, 3]
    for whole, cut, count in zip(every, first, counts, strict=True):
        torch.testing.assert_close(cut[:count], whole[whole.any(-1)][:count])


def test_a_pair_scores_the_same_in_any_company(start, ids):
    model = start()
    queries, passages = ([np.array(row) for row in ids[0](texts)] for texts in (QUERIES, PASSAGES))
    pairs = [(q, p) for q in queries for p in passages]
    together = model.score(*zip(*pairs, strict=True), ids[1], "fp32", 4096)
    alone = [model.score([q], [p], ids[1], "fp32", 64)[0] for q, p in pairs]
    exact = model.scores(
        encoded(model, ids, "query", QUERIES), encoded(model, ids, "passage", PASSAGES)
    )
    assert together.tolist() == alone
    assert together == approx(exact.detach().flatten().numpy(), rel=2e-3)


REPRESENTATIONS = [
    OPTIONS,
    OPTIONS | {"query_tokens": None, "passage_vectors": 5},
    {"type": "coil", "dim": 8, "cls_dim": 16},
    {"type": "poly", "codes": 4},
]


@pytest.mark.parametrize("options", REPRESENTATIONS, ids=["multi", "first", "coil", "poly"])
def test_shards_of_pairs_have_the_bits_of_all_pairs(encoder_folder, ids, options):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        kind = representation[options["type"]]
        how = ("cls", True) if kind is TokenVectors else ("max", False)
        model = kind.start(encoder_folder, True, *how, 1.0, representation=options)
    rng = np.random.default_rng(0)
    texts = [rng.integers(5, 100, rng.integers(1, 40)) for _ in range(120)]
    pairs = rng.integers(0, 120, (300, 2))
    accelerate(model, Execution(attention="padded"), 256, "fp32", training=False)

    def scores(pairs):
        return model.score(
            [texts[q] for q in pairs[:, 0]], [texts[p] for p in pairs[:, 1]], ids[1], "fp32", 256
        )

    together = scores(pairs)
    shards = np.empty_like(together)
    for shard in range(32):
        shards[shard::32] = scores(pairs[shard::32])
    assert len(np.unique(together)) > 250
    assert shards.tobytes() == together.tobytes()
