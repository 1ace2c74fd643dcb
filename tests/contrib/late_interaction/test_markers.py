"""Markers of queries and passages are tokens: in the ids, in the saved model, and to those who load it."""

import json
from pathlib import Path

import learned_tokenizers
import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sentence_transformers import MultiVectorEncoder
from tiny_project import QUESTIONS

from tandem.contrib.late_interaction.options import Multi
from tandem.contrib.late_interaction.token_vectors import (
    TokenVectors,
    find_leading_token,
    mark_prompt,
)
from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.models import published, tokenisation
from tandem.models.described import describe_towers
from tandem.models.dual import load_dual
from tandem.models.hub import add_markers, load_tokenizer
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.tokens import Tokens
from tandem.plan.plan import Plan
from tandem.retrieval.inputs import require_prompts, require_tokenizer
from tandem.store.artifact import open_artifact
from tandem.training.stage import run_untrained

ROOT = Path(__file__).parents[3]
MARKERS = {"query": "[Q]", "passage": "[D]"}
LONGEST = 80  # tokens of a passage
OPTIONS = {"type": "multi", "dim": 8, "query_tokens": 12}
KINDS = ["bert", "roberta", "t5", "xlm-roberta", "qwen3"]


@pytest.fixture
def untrained(make_job, dataset, tmp_path):
    """`untrained(folder, **shape)`: token ids and a model of late interaction from an encoder's folder."""

    def make(folder, representation, prompts=None, name="a", **shape):
        own = make_job(
            "encoder",
            tmp_path / f"{name}-0000000001",
            {"source": "folder"},
            {},
            {"path": str(folder)},
        )
        published.run(own)
        options = Multi.model_validate(representation)
        sizes = {
            "query_length": 40,
            "passage_length": LONGEST,
            "prompts": prompts or {},
            "markers": options.side_markers,
        }
        job = make_job(
            "tokens",
            tmp_path / f"{name}-0000000002",
            sizes,
            {"dataset": dataset, "encoder": own.out},
        )
        tokenisation.run(job)
        params = {
            "representation": representation,
            "prompts": prompts or {},
            "normalize": True,
        } | shape
        model = make_job("untrained", tmp_path / f"{name}-0000000003", params, {"encoder": own.out})
        run_untrained(model)
        return open_artifact(job.out), open_artifact(model.out)

    return make


def scores(tokens, model):
    """MaxSim of the first queries and passages, by their stored ids."""
    dual, ids, rows = load_dual(model.folder / "dual").eval(), Tokens.open(tokens), np.arange(3)
    require_tokenizer(model.folder / "dual/shared", tokens)
    require_prompts(dual.prompts, dual.options.side_markers, tokens)
    texts = {"query": ids.queries.take(rows), "passage": ids.passages.take(rows)}
    with torch.no_grad():
        return dual.scores(
            *(dual.encode(side, texts[side], ids.template, "fp32") for side in texts)
        )


def theirs(model, dataset):
    """The same texts by sentence-transformers, which reads the saved folder."""
    loaded = MultiVectorEncoder(str(model.folder / "dual/shared"), device="cpu")
    rows = next(Collection(dataset).batches()).to_pylist()[:3]
    passages = [f"{row['title']} {row['text']}".strip() for row in rows]
    queries = list(Collection(dataset).queries("train").values())[:3]
    loaded.max_seq_length = 90  # of the tiny encoders' 96
    return loaded.similarity(loaded.encode_query(queries), loaded.encode_document(passages))


@pytest.mark.parametrize(
    "prompts", [{}, {"query": "query: "}], ids=["markers alone", "with a prompt"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_marker_is_one_token_wherever_the_model_is_read(
    family_folder, untrained, dataset, kind, prompts
):
    folder = family_folder(kind)
    masked = load_tokenizer(folder).mask_token is not None
    options = OPTIONS | {"markers": MARKERS, "query_tokens": 12 if masked else None}
    tokens, model = untrained(folder, options, prompts)
    own = load_tokenizer(model.folder / "dual/shared")
    ids = Tokens.open(tokens)
    for texts, marker in ((ids.queries, "[Q]"), (ids.passages, "[D]")):
        number = own.convert_tokens_to_ids(marker)
        assert {row[0] for row in map(texts.__getitem__, range(len(texts)))} == {number}
        assert (texts.ids == number).sum() == len(texts)
    ours = scores(tokens, model)
    torch.testing.assert_close(ours, theirs(model, dataset), rtol=1e-5, atol=1e-4)
    plain = untrained(folder, options | {"markers": None}, prompts, name="plain")
    assert not torch.allclose(ours, scores(*plain), atol=1e-3)


def test_behind_the_marker_a_text_has_its_own_tokens(encoder_folder, untrained, dataset):
    tokenizer = load_tokenizer(encoder_folder)
    ids = Tokens.open(untrained(encoder_folder, OPTIONS | {"markers": MARKERS})[0])
    query = QUESTIONS["train"].format("otter")
    assert ids.queries[0][1:].tolist() == tokenizer(query, add_special_tokens=False)["input_ids"]
    assert ids.queries[0][0] == len(tokenizer)  # a new token, behind the vocabulary
    assert ids.passages[0][0] == len(tokenizer) + 1


def test_an_entry_of_the_vocabulary_keeps_its_vector_and_a_new_one_is_alike_on_both_sides(
    encoder_folder,
):
    size = len(load_tokenizer(encoder_folder))
    torch.manual_seed(0)
    old = TokenVectors.start(encoder_folder, False, "cls", True, 1.0, representation=OPTIONS)
    markers = {"query": "otter", "passage": "[D]"}
    new = TokenVectors.start(
        encoder_folder, False, "cls", True, 1.0, representation=OPTIONS | {"markers": markers}
    )
    weights = [
        model.towers[side].get_input_embeddings().weight
        for model in (old, new)
        for side in ("query", "passage")
    ]
    assert [len(weight) for weight in weights] == [size, size, size + 1, size + 1]
    torch.testing.assert_close(weights[2], weights[3])
    torch.testing.assert_close(weights[2][:size], weights[0])
    assert weights[2][size].any()


def test_a_saved_folder_is_an_encoder_with_the_same_scores_and_one_marker(
    encoder_folder, untrained, dataset
):
    tokens, model = untrained(encoder_folder, OPTIONS | {"markers": MARKERS}, {"query": "find: "})
    folder = model.folder / "dual/shared"
    towers = describe_towers(folder)
    assert towers["prompts"] == {"query": "[Q] find: ", "passage": "[D] "}
    shape = {
        key: value for key, value in towers.items() if key not in ("representation", "prompts")
    }
    # Also where a recipe names the markers that the folder's prompts begin with already.
    for name, markers in (("again", {}), ("twice", {"markers": MARKERS})):
        options = towers["representation"] | markers
        more = untrained(folder, options, towers["prompts"], name=name, **shape)
        ids, before = Tokens.open(more[0]), Tokens.open(tokens)
        assert ids.queries.ids.tolist() == before.queries.ids.tolist()
        assert ids.passages.ids.tolist() == before.passages.ids.tolist()
        torch.testing.assert_close(scores(*more), scores(tokens, model))
        torch.testing.assert_close(
            theirs(more[1], dataset), scores(tokens, model), rtol=1e-5, atol=1e-4
        )


def test_readers_of_pylates_keys_find_the_markers_too(encoder_folder, untrained):
    for markers in (MARKERS, None):
        _, model = untrained(
            encoder_folder, OPTIONS | {"markers": markers}, name="with" if markers else "without"
        )
        config = json.loads(
            (model.folder / "dual/shared/config_sentence_transformers.json").read_text()
        )
        prefixes = config["query_prefix"], config["document_prefix"]
        # else they would take [Q] and [D] of their own
        assert prefixes == (("[Q]", "[D]") if markers else ("", ""))
        assert (config["query_length"], config["do_query_expansion"]) == (12, True)


def test_token_ids_without_a_models_markers_are_refused(encoder_folder, untrained):
    _, model = untrained(encoder_folder, OPTIONS | {"markers": MARKERS})
    tokens, _ = untrained(encoder_folder, OPTIONS, name="plain")
    dual = load_dual(model.folder / "dual")
    with pytest.raises(
        UserError, match=r"was made with the markers \{\}, but the model has .*'query': '\[Q\]'"
    ):
        require_prompts(dual.prompts, dual.options.side_markers, tokens)


@pytest.mark.parametrize("marker", ["", "[Q] ", "query marker"])
def test_a_marker_is_one_word(marker):
    with pytest.raises(ValidationError):
        Multi.model_validate({"type": "multi", "markers": {"query": marker}})


def test_a_marker_is_part_of_a_texts_length(make_job, dataset, encoder, tmp_path):
    params = {"query_length": 1, "passage_length": 24, "markers": MARKERS}
    inputs = {"dataset": dataset, "encoder": encoder}
    with pytest.raises(
        UserError, match=r"lengths.query is 1, but the marker \[Q\] has 1 tokens: raise it"
    ):
        tokenisation.run(make_job("tokens", tmp_path / "short-0123456789", params, inputs))
    job = make_job("tokens", tmp_path / "ids-0123456789", params | {"query_length": 3}, inputs)
    tokenisation.run(job)
    ids = Tokens.open(open_artifact(job.out))
    assert (ids.queries.longest, ids.passages.longest) == (3, 24)  # markers count


def test_only_what_reads_markers_has_token_ids_with_them(configured):
    late = {
        "like": "de_bm25neg",
        "representation": {"type": "multi", "markers": {"query": "[unused0]"}},
    }
    config = configured("models.late", late) | {"systems": ["late", "bm25+late", "de_bm25neg"]}
    plan = Plan(config, ROOT)
    stages = {(stage.kind, stage.name): stage for stage in plan.stages.values()}
    marked = stages["token_vectors", "late.passages"].upstream["tokens"]
    assert marked.values["markers"] == {"query": "[unused0]"}
    assert stages["token_vectors", "late.test"].upstream["tokens"] is marked
    assert stages["model", "late"].upstream["tokens"] is marked
    assert stages["rerank", "bm25+late.test"].upstream["tokens"] is marked
    for stage in (stages["model", "de_bm25neg"], stages["embeddings", "de_bm25neg.passages"]):
        assert "markers" not in stage.upstream["tokens"].values


@pytest.mark.parametrize("kind", learned_tokenizers.KINDS)
def test_a_marker_as_text_is_the_marker_and_the_texts_own_tokens(kind, tmp_path):
    tokenizer = learned_tokenizers.learn_tokenizer(kind)
    add_markers(tokenizer, {"query": "[Q]", "passage": "[D]"})
    tokenizer.save_pretrained(tmp_path)
    saved, texts = (
        load_tokenizer(tmp_path),
        [text for text in learned_tokenizers.ORDINARY if text and text == text.strip()],
    )
    for prompt in ("", "query: "):
        before = mark_prompt(saved, "[D]", prompt)
        own, _ = PlainTextTokenizer(saved).tokenise([prompt + text for text in texts])
        read = saved([before + text for text in texts], add_special_tokens=False)["input_ids"]
        assert read == [[saved.convert_tokens_to_ids("[D]"), *row] for row in own]
        assert find_leading_token(saved, before) == "[D]"
        assert mark_prompt(saved, "[D]", before) == before
        assert find_leading_token(saved, prompt) == ""
