"""Dual encoders against sentence-transformers and transformers on the saved folders."""

import numpy as np
import pytest
import torch

from tandem.data.collection import Collection, join_contents
from tandem.errors import UserError
from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.encoding import pool_packed, pool_states
from tandem.models.hub import check_length, hash_tokenizer, load_encoder, load_tokenizer
from tandem.models.tokens import Template, Tokens


def test_pooling_by_hand():
    hidden = torch.tensor([[[1.0, 2.0], [4.0, 8.0], [100.0, 100.0]]])
    mask = torch.tensor([[1, 1, 0]])
    assert pool_states(hidden, mask, "cls").tolist() == [[1.0, 2.0]]
    assert pool_states(hidden, mask, "mean").tolist() == [[2.5, 5.0]]
    assert pool_states(hidden, mask, "max").tolist() == [[4.0, 8.0]]
    assert pool_states(hidden, mask, "lasttoken").tolist() == [[4.0, 8.0]]
    # (1 · 1 + 2 · 4) / (1 + 2)
    assert pool_states(hidden, mask, "weightedmean").tolist() == [[3.0, 6.0]]


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "weightedmean", "lasttoken"])
def test_pooling_does_not_mind_the_side_of_the_padding_nor_packing(pooling):
    texts = [torch.randn(length, 5, dtype=torch.float64) for length in (3, 1, 4)]
    padded = {side: torch.zeros(3, 6, 5, dtype=torch.float64) + 9 for side in ("left", "right")}
    masks = {side: torch.zeros(3, 6, dtype=torch.int64) for side in padded}
    for row, text in enumerate(texts):
        for side, place in (("left", slice(6 - len(text), None)), ("right", slice(len(text)))):
            padded[side][row, place], masks[side][row, place] = text, 1
    left, right = (pool_states(padded[side], masks[side], pooling) for side in ("left", "right"))
    bounds = torch.tensor([0, 3, 4, 8], dtype=torch.int32)
    packed = pool_packed(
        torch.cat([*texts, torch.zeros(2, 5, dtype=torch.float64)]), bounds, pooling
    )
    assert torch.allclose(left, right, atol=1e-12)
    assert torch.allclose(left, packed, atol=1e-12)


def test_dot_scores_by_hand():
    queries = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    passages = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 0.5]])
    assert dot_scores(queries, passages, 0.5).tolist() == [[2.0, 22.0, 2.0], [0.0, 8.0, 1.0]]
    lists = torch.stack([passages[:2], passages[1:]])
    assert dot_scores(queries, lists, 1.0).tolist() == [[1.0, 11.0], [4.0, 0.5]]


@pytest.mark.parametrize(
    ("shared", "pooling", "normalize"),
    [(True, "mean", True), (False, "cls", False), (False, "mean", False)],
)
def test_saved_towers_give_the_same_vectors_in_sentence_transformers(
    tmp_path, make_model, tokens, dataset, shared, pooling, normalize
):
    from sentence_transformers import SentenceTransformer

    options = {"shared": shared, "pooling": pooling, "normalize": normalize}
    model = make_model(tmp_path / "m-0123456789", ("dual",), seed=1, **options)
    ours, opened = DualEncoder.load(model.folder / "dual").eval(), Tokens.open(tokens)
    assert ours.shared is shared
    texts = [
        join_contents(row["title"], row["text"])
        for batch in Collection(dataset).batches()
        for row in batch.to_pylist()
    ]
    for tower in ("query", "passage"):
        with torch.inference_mode():
            vectors = ours.encode(
                tower, [opened.passages[i] for i in range(60)], opened.template, "fp32"
            )
        folder = model.folder / "dual" / ("shared" if shared else tower)
        theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        theirs.max_seq_length = 24 + 2
        assert np.abs(theirs.encode(texts, show_progress_bar=False) - vectors.numpy()).max() < 1e-5


@pytest.mark.parametrize(
    ("pooling", "normalize", "parts"),
    [("cls", False, ("dual",)), ("mean", True, ("dual", "cross"))],
)
def test_two_towers_load_as_one_model_of_sentence_transformers(
    tmp_path, make_model, tokens, dataset, pooling, normalize, parts
):
    from sentence_transformers import SentenceTransformer

    options = {"shared": False, "pooling": pooling, "normalize": normalize}
    model = make_model(tmp_path / "m-0123456789", parts, 1, **options)
    ours, opened = DualEncoder.load(model.folder / "dual").eval(), Tokens.open(tokens)
    texts = list(Collection(dataset).queries("train").values())
    rows = [row for batch in Collection(dataset).batches() for row in batch.to_pylist()]
    passages = [join_contents(row["title"], row["text"]) for row in rows]
    theirs = SentenceTransformer(str(model.folder / "dual"), device="cpu", local_files_only=True)
    theirs.max_seq_length = 24 + 2
    with torch.inference_mode():
        queries = ours.encode(
            "query", [opened.queries[i] for i in range(20)], opened.template, "fp32"
        )
        encoded = ours.encode(
            "passage", [opened.passages[i] for i in range(60)], opened.template, "fp32"
        )
    vectors = [
        theirs.encode_query(texts, show_progress_bar=False),
        theirs.encode_document(passages, show_progress_bar=False),
    ]
    assert np.abs(vectors[0] - queries.numpy()).max() < 1e-5
    assert np.abs(vectors[1] - encoded.numpy()).max() < 1e-5
    assert (
        np.abs(theirs.encode_document(texts, show_progress_bar=False) - queries.numpy()).max()
        > 1e-3
    )
    expected = dot_scores(queries, encoded, 1.0)
    assert torch.allclose(
        theirs.similarity(*vectors), expected, atol=1e-5 * float(expected.abs().max())
    )
    # no weight is stored twice
    assert len(list((model.folder / "dual").rglob("*.safetensors"))) == 2


def test_towers_start_alike_and_are_separate_or_one(encoder):
    params = {"pooling": "cls", "normalize": False, "temperature": 1.0}
    two = DualEncoder.start(encoder.folder / "hf", **params, shared=False)
    single = DualEncoder.start(encoder.folder / "hf", **params, shared=True)
    assert not two.shared
    assert single.shared
    assert sum(p.numel() for p in two.parameters()) == 2 * sum(
        p.numel() for p in single.parameters()
    )
    for a, b in zip(
        two.towers["query"].parameters(), two.towers["passage"].parameters(), strict=True
    ):
        assert torch.equal(a, b)
    assert two.dimension == 32


def test_a_text_gives_the_same_vector_whatever_its_padding(tokens, dual_model):
    model, opened = DualEncoder.load(dual_model.folder / "dual").eval(), Tokens.open(tokens)
    texts = [opened.passages[i] for i in range(60)]
    with torch.inference_mode():
        together = model.encode("passage", texts, opened.template, "fp32")
        alone = torch.cat(
            [model.encode("passage", [text], opened.template, "fp32") for text in texts]
        )
    assert torch.allclose(together, alone, atol=1e-5)


def test_bf16_is_close_and_weights_stay_float32(tokens, dual_model):
    model, opened = DualEncoder.load(dual_model.folder / "dual").eval(), Tokens.open(tokens)
    texts = [opened.passages[i] for i in range(60)]
    with torch.inference_mode():
        exact, half = (
            model.encode("passage", texts, opened.template, mode) for mode in ("fp32", "bf16")
        )
    assert half.dtype == torch.float32
    assert next(model.parameters()).dtype == torch.float32
    assert not torch.equal(exact, half)
    assert float(torch.nn.functional.cosine_similarity(exact, half).min()) > 0.99


def test_inputs_longer_than_the_model_are_refused(encoder):
    model = load_encoder(encoder.folder / "hf")
    check_length(model, 96, "tokens")
    with pytest.raises(
        UserError, match=r"passage_length allows inputs of 97 tokens; the model \(bert\) takes 96"
    ):
        check_length(model, 97, "passage_length")


def test_saved_tower_loads_in_plain_transformers(dual_model):
    from transformers import AutoModel

    folder = dual_model.folder / "dual" / "passage"
    theirs = AutoModel.from_pretrained(folder, add_pooling_layer=False)
    ours = DualEncoder.load(dual_model.folder / "dual").towers["passage"]
    assert all(
        torch.equal(a, b) for a, b in zip(theirs.parameters(), ours.parameters(), strict=True)
    )
    assert load_tokenizer(folder)("the otter")["input_ids"]


@pytest.mark.parametrize("pooling", ["mean", "lasttoken"])
def test_a_model_whose_tokenizer_has_no_padding_is_read_by_others(pooling, family_folder, tmp_path):
    from sentence_transformers import SentenceTransformer

    tokenizer = load_tokenizer(family_folder("llama"))
    assert tokenizer.pad_token is None
    before = hash_tokenizer(tokenizer.backend_tokenizer.to_str())
    model = DualEncoder.start(family_folder("llama"), True, pooling, True, 1.0).eval()
    model.save(tmp_path / "dual", tokenizer)
    saved = load_tokenizer(tmp_path / "dual/shared")
    assert hash_tokenizer(saved.backend_tokenizer.to_str()) == before
    texts = ["a bird", "the lynx eats hares and roe deer"]
    ids = [np.array(row) for row in saved(texts, add_special_tokens=False)["input_ids"]]
    with torch.inference_mode():
        ours = model.encode("passage", ids, Template.of(saved), "fp32", 8)
    theirs = SentenceTransformer(str(tmp_path / "dual/shared"), device="cpu").encode(
        texts, show_progress_bar=False
    )
    assert np.allclose(theirs, ours, atol=1e-5)
