"""Cross-encoders against transformers, and scores that do not depend on the company."""

import copy
import shutil

import numpy as np
import pytest
import torch

from tandem.config.settings import Execution
from tandem.data.collection import Collection, join_contents
from tandem.errors import UserError
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder, load_cross
from tandem.models.device import is_onednn_used, rows_change_bits
from tandem.models.encoding import PACKED_ATTENTION, register
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Tokens

BUDGET = 512
without_amx = pytest.mark.skipif(
    rows_change_bits("bf16"), reason="a CPU with AMX, whose bits depend on the shape"
)


@pytest.fixture(scope="module")
def pairs(tokens):
    """Every fifth passage with every fourth test query: token ids of both."""
    opened = Tokens.open(tokens)
    numbers = [(q, p) for q in range(40, 60, 4) for p in range(0, 60, 5)]
    return (
        [opened.queries[q] for q, _ in numbers],
        [opened.passages[p] for _, p in numbers],
        numbers,
    )


@pytest.fixture(scope="module")
def cross(cross_model):
    return CrossEncoder.load(cross_model.folder / "cross").eval()


@pytest.fixture(scope="module")
def template(tokens):
    return Tokens.open(tokens).template


def test_scores_equal_transformers_on_the_saved_folder(
    cross, cross_model, pairs, template, dataset
):
    from safetensors.torch import load_file
    from transformers import AutoModel

    folder = cross_model.folder / "cross"
    tokenizer, theirs = load_tokenizer(folder), AutoModel.from_pretrained(folder).eval()
    head = load_file(folder / "2_Dense/model.safetensors")
    rows = [row for batch in Collection(dataset).batches() for row in batch.to_pylist()]
    queries = list(Collection(dataset).queries("test").values())
    first = [queries[q - 40] for q, _ in pairs[2]]
    second = [
        tokenizer.decode(
            tokenizer(join_contents(rows[p]["title"], rows[p]["text"]), add_special_tokens=False)[
                "input_ids"
            ][:24]
        )
        for _, p in pairs[2]
    ]
    with torch.inference_mode():
        first_tokens = theirs(
            **tokenizer(first, second, padding=True, return_tensors="pt")
        ).last_hidden_state[:, 0]
        expected = (first_tokens @ head["linear.weight"].T + head["linear.bias"])[:, 0]
        whole = cross(pairs[0], pairs[1], template, "fp32")
    assert torch.allclose(whole, expected, atol=1e-5)
    assert np.allclose(
        cross.score(pairs[0], pairs[1], template, "fp32", BUDGET), expected, atol=1e-5
    )
    assert expected.std() > 0.01


@pytest.mark.parametrize("mode", ["fp32", "bf16"])
def test_a_score_is_the_same_to_the_bit_in_any_company(cross, pairs, template, mode):
    queries, passages, _ = pairs
    scores = cross.score(queries, passages, template, mode, BUDGET)
    alone = [
        cross.score([q], [p], template, mode, BUDGET)[0]
        for q, p in zip(queries, passages, strict=True)
    ]
    assert scores.tobytes() == np.array(alone).tobytes()
    order = np.random.default_rng(0).permutation(len(queries))
    shuffled = cross.score(
        [queries[i] for i in order], [passages[i] for i in order], template, mode, BUDGET
    )
    assert shuffled.tobytes() == scores[order].tobytes()
    some = order[:23]
    part = cross.score(
        [queries[i] for i in some], [passages[i] for i in some], template, mode, BUDGET
    )
    assert part.tobytes() == scores[some].tobytes()


@pytest.mark.parametrize("mode", ["fp32", "bf16"])
def test_frozen_and_as_wide_as_published_models_company_changes_no_bit(tokens, template, mode):
    from transformers import BertConfig, BertModel

    opened = Tokens.open(tokens)
    torch.manual_seed(0)
    wide = CrossEncoder(BertModel(BertConfig(vocab_size=2000, num_hidden_layers=1)), "cls")
    accelerate(wide, Execution(), 1024, mode, training=False)
    numbers = [(q, p) for q in range(40, 60, 2) for p in range(0, 60, 2)]
    queries, passages = (
        [opened.queries[q] for q, _ in numbers],
        [opened.passages[p] for _, p in numbers],
    )
    scores = wide.score(queries, passages, template, mode, 1024)
    some = range(0, len(numbers), 9)
    alone = [wide.score([queries[i]], [passages[i]], template, mode, 1024)[0] for i in some]
    assert scores[some].tobytes() == np.array(alone).tobytes()


@pytest.mark.skipif(not is_onednn_used(), reason="where oneDNN multiplies")
@pytest.mark.parametrize("mode", ["fp32", pytest.param("bf16", marks=without_amx)])
def test_frozen_nothing_is_filled_up_and_company_changes_no_bit_either(
    cross, pairs, template, mode
):
    queries, passages, _ = pairs
    expected = cross.score(queries, passages, template, "fp32", BUDGET)
    frozen = copy.deepcopy(cross)
    accelerate(frozen, Execution(), BUDGET, mode, training=False)
    shapes = []
    frozen.encoder.register_forward_pre_hook(
        lambda _, args, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    scores = frozen.score(queries, passages, template, mode, BUDGET)
    assert np.allclose(scores, expected, atol=1e-5 if mode == "fp32" else 0.05)
    assert sum(rows for rows, _ in shapes) == len(queries)
    assert any(length % 16 for _, length in shapes)
    alone = [
        frozen.score([q], [p], template, mode, BUDGET)[0]
        for q, p in zip(queries, passages, strict=True)
    ]
    assert scores.tobytes() == np.array(alone).tobytes()


def test_every_batch_has_a_fixed_shape_within_the_budget(cross, pairs, template):
    shapes = []
    hook = cross.encoder.register_forward_pre_hook(
        lambda _, args, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    cross.score(pairs[0], pairs[1], template, "fp32", BUDGET)
    hook.remove()
    assert len(shapes) > 3
    # 512 tokens: 32 rows of 16, 16 of 32, and 8 of 48, because 10 is not a multiple of 8
    assert set(shapes) <= {(32, 16), (16, 32), (8, 48)}
    assert len(set(shapes)) > 1


def test_no_pairs(cross, template):
    assert cross.score([], [], template, "fp32", BUDGET).shape == (0,)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_saved_folder_loads_as_a_sentence_transformers_cross_encoder(
    make_model, tmp_path, pairs, template, dataset, pooling
):
    from sentence_transformers import CrossEncoder as Theirs

    model = make_model(tmp_path / "ce-0123456789", ("cross",), seed=2, pooling=pooling)
    cross = CrossEncoder.load(model.folder / "cross").eval()
    assert cross.pooling == pooling

    rows = [row for batch in Collection(dataset).batches() for row in batch.to_pylist()]
    queries = list(Collection(dataset).queries("test").values())
    short = [(q, p) for q, p in pairs[2] if p % 3 == 0]  # passages that are not cut
    theirs = Theirs(str(model.folder / "cross"), device="cpu", local_files_only=True)
    texts = [(queries[q - 40], join_contents(rows[p]["title"], rows[p]["text"])) for q, p in short]
    expected = theirs.predict(texts, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    selected = [i for i, (_, p) in enumerate(pairs[2]) if p % 3 == 0]
    scores = cross.score(
        [pairs[0][i] for i in selected], [pairs[1][i] for i in selected], template, "fp32", BUDGET
    )
    assert np.allclose(scores, expected, atol=1e-5)


def test_a_new_head_follows_the_seed(encoder):
    def head(seed):
        torch.manual_seed(seed)
        return CrossEncoder.start(encoder.folder / "hf", "cls").head.weight

    with torch.random.fork_rng():
        assert torch.equal(head(1), head(1))
        assert not torch.equal(head(1), head(2))


def test_a_head_of_a_package_that_is_not_here_is_named(cross_model, tmp_path):
    folder = tmp_path / "cross"
    shutil.copytree(cross_model.folder / "cross", folder)
    (folder / "cross.json").write_text('{"pooling": "oracle"}')
    with pytest.raises(UserError, match="cross.json: pooling is oracle"):
        CrossEncoder.load(folder)


def test_a_form_that_no_package_reads_is_refused_by_its_key(tmp_path):
    (tmp_path / "cross.json").write_text('{"pooling": "cls", "haruspex": {"layers": 2}}')
    with pytest.raises(UserError, match="cross.json: haruspex is set, which no package"):
        load_cross(tmp_path)


@pytest.fixture(scope="module")
def segments(cross_model, template):
    """A cross-encoder that compares the mean states of query and passage."""
    return CrossEncoder.start(cross_model.folder / "cross", "segments").eval()


def test_segments_score_by_the_cosine_of_the_two_mean_vectors(
    segments, cross_model, pairs, template, tmp_path
):
    from transformers import AutoModel

    theirs = AutoModel.from_pretrained(cross_model.folder / "cross").eval()
    expected = []
    with torch.inference_mode():
        for query, passage in zip(pairs[0], pairs[1], strict=True):
            before, between, after = template.pair
            ids = [*before, *map(int, query), *between, *map(int, passage), *after]
            hidden = theirs(torch.tensor([ids])).last_hidden_state[0]  # token types: all 0
            cut = len(before) + len(query) + len(between)
            expected.append(
                torch.cosine_similarity(hidden[:cut].mean(0), hidden[cut:].mean(0), dim=0) * 20 - 10
            )
        scores = segments(pairs[0], pairs[1], template, "fp32")
    assert torch.allclose(scores, torch.stack(expected), atol=1e-4)
    assert np.allclose(
        segments.score(pairs[0], pairs[1], template, "fp32", BUDGET), scores, atol=1e-4
    )
    segments.save(tmp_path / "cross", load_tokenizer(cross_model.folder / "cross"))
    again = (
        CrossEncoder.load(tmp_path / "cross")
        .eval()
        .score(pairs[0], pairs[1], template, "fp32", BUDGET)
    )
    assert again.tobytes() == segments.score(pairs[0], pairs[1], template, "fp32", BUDGET).tobytes()


def test_segments_of_packed_rows_score_and_learn_as_padded_ones(segments, pairs, template):
    padded, packed = copy.deepcopy(segments), copy.deepcopy(segments)
    register()
    packed.encoder.set_attn_implementation(PACKED_ATTENTION)
    packed.packed = 256
    results = [model(pairs[0][:9], pairs[1][:9], template, "fp32") for model in (padded, packed)]
    assert torch.allclose(*results, atol=1e-4)
    for scores in results:
        scores.square().sum().backward()
    for (name, parameter), other in zip(
        padded.named_parameters(), packed.parameters(), strict=True
    ):
        if parameter.grad is not None:
            assert torch.allclose(parameter.grad, other.grad, rtol=1e-3, atol=1e-3), name
