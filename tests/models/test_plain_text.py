"""Special tokens that a text spells are ordinary text, in tokenizers of every kind; in prompts they are tokens."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from learned_tokenizers import KINDS, ORDINARY, learn_tokenizer
from tiny_project import write_collection

from tandem.models.hub import load_tokenizer
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.ragged import Ragged
from tandem.models.tokenisation import run
from tandem.models.tokens import Tokens
from tandem.store.artifact import open_artifact
from tandem.store.job import writing

QUERY = "what is [SEP] for, and [MASK]"


@pytest.fixture(params=KINDS)
def tokenizer(request):
    return learn_tokenizer(request.param)


def spelled(tokenizer):
    """Texts with special tokens in every position: alone, within a word, at both ends."""
    names = tokenizer.all_special_tokens
    return [
        *names,
        *(f"fish{name}es eat {name} and crabs {name}" for name in names),
        "".join(names),
        " ".join(names),
    ]


def test_ids_of_ordinary_texts_are_the_tokenizers_own(tokenizer):
    plain = PlainTextTokenizer(tokenizer)
    ids, cut = plain.tokenise(ORDINARY)
    assert ids == tokenizer(ORDINARY, add_special_tokens=False)["input_ids"]
    assert not any(cut)
    short, cut = plain.tokenise(ORDINARY, 4)
    assert (
        short
        == tokenizer(ORDINARY, add_special_tokens=False, truncation=True, max_length=4)["input_ids"]
    )
    assert cut == [len(row) > 4 for row in ids]


def test_no_text_spells_a_special_token(tokenizer):
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    texts = spelled(tokenizer)
    meant = tokenizer(texts, add_special_tokens=False)["input_ids"]
    # which the tokenizer itself takes for tokens
    assert all(special & set(row) for row in meant[-2:])
    ids, _ = PlainTextTokenizer(tokenizer).tokenise(texts)
    assert not special & set(np.concatenate(ids).tolist())
    assert all(ids)


def test_a_prompt_may_spell_them_and_the_text_behind_it_may_not(tokenizer):
    plain, name = PlainTextTokenizer(tokenizer), tokenizer.all_special_tokens[-1]
    for prompt in (f"{name} ", f"query{name}", f"to {name} of: "):
        behind = [plain.prompt(prompt) + text for text in ORDINARY]
        expected = tokenizer([prompt + text for text in ORDINARY], add_special_tokens=False)[
            "input_ids"
        ]
        assert plain.tokenise(behind)[0] == expected
        (with_token,), _ = plain.tokenise([plain.prompt(prompt) + name])
        assert with_token.count(tokenizer.convert_tokens_to_ids(name)) == 1
    # A token that only prompt and text together spell is none.
    (halves,), _ = plain.tokenise([plain.prompt(name[:2]) + name[2:]])
    assert tokenizer.convert_tokens_to_ids(name) not in halves


def test_texts_are_cut_where_the_tokenizer_cuts_them(encoder_folder):
    tokenizer = load_tokenizer(encoder_folder)
    tokenizer.truncation_side = "left"
    long, short = tokenizer(["the otter eats the crab", "the otter"], add_special_tokens=False)[
        "input_ids"
    ]
    ids, cut = PlainTextTokenizer(tokenizer).tokenise(["the otter eats the crab", "the otter"], 3)
    assert ids == [long[-3:], short]
    assert cut == [True, False]


@pytest.fixture
def stored(make_job, encoder, tmp_path):
    """`stored(**params)`: token ids of a collection whose titles, texts and first query spell special tokens."""
    passages = [
        ("a", "the [SEP] title", "the [CLS] otter [SEP] [PAD]"),
        ("b", "", "[MASK] [MASK]"),
        ("c", "x", "y"),
    ]
    collection = make_job(
        "dataset", tmp_path / "spelled-0123456789", {"source": "written by a test"}
    )
    with writing(collection) as draft:
        write_collection(draft.folder, passages)
        path = draft.folder / "queries.parquet"
        queries = pq.read_table(path).to_pylist()
        queries[0]["text"] = QUERY
        pq.write_table(pa.Table.from_pylist(queries), path)

    def make(**params):
        sizes = {"query_length": 16, "passage_length": 24}
        inputs = {"dataset": open_artifact(collection.out), "encoder": encoder}
        job = make_job("tokens", tmp_path / "ids-0123456789", sizes | params, inputs)
        run(job)
        return open_artifact(job.out)

    return make


def test_the_stage_stores_no_special_token_that_a_text_spells(stored, encoder):
    tokenizer, tokens = load_tokenizer(encoder.folder / "hf"), Tokens.open(stored())
    special = [
        tokenizer.convert_tokens_to_ids(name) for name in ("[CLS]", "[SEP]", "[PAD]", "[MASK]")
    ]
    assert not np.isin(tokens.passages.ids, special).any()
    assert not np.isin(tokens.queries.ids, special).any()
    # A pair has the three special tokens that the template puts around it, and none within.
    pairs = tokens.template.pair_inputs(
        tokens.queries.take(np.array([0])), tokens.passages.take(np.array([0]))
    )
    assert np.isin(pairs.ids, special).sum() == 3
    assert pairs.types.sum() == len(tokens.passages[0]) + 1


def test_a_prompts_special_token_is_stored(stored, encoder):
    tokenizer = load_tokenizer(encoder.folder / "hf")
    tokens = Tokens.open(stored(prompts={"query": "[MASK] "}))
    mask = tokenizer.mask_token_id
    assert [tokens.queries[row].tolist().count(mask) for row in (0, 1)] == [1, 1]
    assert not np.isin(tokens.passages.ids, mask).any()


def test_a_title_ends_where_its_tokens_end_and_not_at_a_separator(stored, encoder):
    tokens, plain = (
        Tokens.open(stored(titled=True)),
        PlainTextTokenizer(load_tokenizer(encoder.folder / "hf")),
    )
    title = len(plain.tokenise(["the [SEP] title"])[0][0])
    assert tokens.passages.titles.tolist()[0] == title
    inputs = tokens.template.single_inputs(tokens.passages, "passage")
    ends = np.cumsum(inputs.lengths)
    assert inputs.types[: ends[0]].tolist() == [0] * (1 + title + 1) + [1] * (ends[0] - title - 2)
    # By lengths alone: ids that are the separator's do not move the border.
    (separator,) = tokens.template.pair[1]
    row = Ragged.of([np.array([separator, 7, separator, 8])])
    moved = tokens.template.single_inputs(
        Ragged(row.ids, row.offsets, titles=np.array([2])), "passage"
    )
    assert moved.types.tolist() == [0, 0, 0, 0, 1, 1]
