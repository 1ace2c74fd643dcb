"""Datasets made of generated texts, scores of these, and runs over expanded passages."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.contrib.generation import expansion, text_scores
from tandem.contrib.generation.options import SCORES_FILE
from tandem.contrib.generation.texts import SCHEMA
from tandem.data.collection import Collection
from tandem.data.dataset import run as make_dataset_stage
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.models.tokens import Tokens
from tandem.stages.data import TEXTS_FILE
from tandem.store.artifact import open_artifact
from tandem.store.job import writing

PARAMS = {"seed": 1, "number": 3}
TEXTS = {
    "otter-1": [("what is an otter", -2.0, 4), ("river mammal", -9.0, 3), ("", -1.0, 1)],
    "otter-2": [("who floats", -3.0, 3), ("who floats", -3.0, 3), ("floating", -1.0, 1)],
    "owl-3": [("what does the owl eat", -0.5, 5), ("beetles", -8.0, 2), ("night", -6.0, 2)],
}


@pytest.fixture
def generated(make_job, dataset, generator, tmp_path):
    """`generated` artifact with the texts of three passages, in the corpus' order.

    Its second row group is of a part in which no passage was read.
    """
    job = make_job(
        "generated", tmp_path / "g-0123456789", PARAMS, {"dataset": dataset, "generator": generator}
    )
    rows = [(doc, number, *text) for doc, own in TEXTS.items() for number, text in enumerate(own)]
    columns = [
        pa.array(c, field.type) for c, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
    ]
    table = pa.table(columns, schema=SCHEMA)
    with writing(job) as draft, pq.ParquetWriter(draft.path(TEXTS_FILE), SCHEMA) as writer:
        for part in (table[:4], table[:0], table[4:8], table[8:]):
            writer.write_table(part)
    return open_artifact(job.out)


@pytest.fixture
def scored(make_job, dataset, generated, generator, tmp_path):
    """`scored(values)`: scores of the texts, in their order."""

    def make(values):
        job = make_job(
            "score_generated", tmp_path / "s-0123456789", {"number": 3, "query_length": 8, "passage_length": 24},
            {"dataset": dataset, "generated": generated, "model": generator, "tokens": dataset},
        )  # fmt: skip
        with writing(job) as draft:
            pq.write_table(
                pa.table([pa.array(values, pa.float32())], schema=text_scores.SCHEMA),
                draft.path(SCORES_FILE),
            )
        return open_artifact(job.out)

    return make


@pytest.fixture
def derived(make_job, dataset, generated, tmp_path):
    """`derived(source, **params)`: the dataset of a source; `inputs` are further ones."""

    def make(source, inputs=None, **params):
        out = tmp_path / f"{source}-{len(list(tmp_path.iterdir())):010d}"
        roles = {"of": dataset, "generated": generated} | (inputs or {})
        job = make_job("dataset", out, {"source": source, **params}, roles)
        make_dataset_stage(job)
        return open_artifact(job.out)

    return make


def corpus(artifact):
    return {
        row["doc_id"]: row["text"]
        for row in pq.read_table(artifact.path("corpus.parquet")).to_pylist()
    }


def test_queries_stand_behind_their_passages(derived, dataset):
    one, three = corpus(derived("expanded", number=1)), corpus(derived("expanded", number=3))
    before = corpus(dataset)
    assert list(one) == list(before)
    assert one["otter-1"] == "The otter is a river mammal. what is an otter"
    assert three["otter-1"] == "The otter is a river mammal. what is an otter river mammal"
    # a query that is generated twice counts twice, as its terms do
    assert three["otter-2"].endswith("the otter floats on its back. who floats who floats floating")
    assert {doc: text for doc, text in three.items() if doc not in TEXTS} == {
        doc: text for doc, text in before.items() if doc not in TEXTS
    }
    expanded = derived("expanded", number=2)
    assert Collection(expanded).qrels("test") == Collection(dataset).qrels("test")
    assert expanded.manifest.facts["source"]["appended"] == 6


def test_the_lowest_share_of_all_queries_is_dropped(derived, scored):
    values = [5.0, 1.0, np.nan, 4.0, 4.0, 0.5, 3.0, 2.0, 0.0]
    # 3 of 8: 0, 0.5 and 1
    dropped = derived("expanded", {"scores": scored(values)}, number=3, drop_share=0.4)
    texts = corpus(dropped)
    assert texts["otter-1"].endswith("river mammal. what is an otter")
    assert texts["otter-2"].endswith("who floats who floats")
    assert texts["owl-3"].endswith("what does the owl eat beetles")
    facts = dropped.manifest.facts["source"]
    assert (facts["appended"], facts["dropped"]) == (5, 3)
    # of the first query of each passage the lowest third is another one
    first = corpus(derived("expanded", {"scores": scored(values)}, number=1, drop_share=0.4))
    assert first["owl-3"].endswith("a night bird.")


def queries(artifact):
    return Collection(artifact).queries("train")


def test_generated_queries_have_their_passage_as_positive(derived, dataset):
    made = derived("generated_queries", number=3)
    assert queries(made) == {
        "otter-1.0": "what is an otter", "otter-1.1": "river mammal", "otter-2.0": "who floats",
        "otter-2.2": "floating", "owl-3.0": "what does the owl eat", "owl-3.1": "beetles", "owl-3.2": "night",
    }  # fmt: skip
    assert Collection(made).qrels("train")["otter-2.2"] == {"otter-2": 1}
    assert corpus(made) == corpus(dataset)


def test_the_best_by_likelihood_of_a_token_or_by_scores(derived, scored):
    # means: -0.5, -3, -1, -1 (floating), -0.1, -4, -3
    assert list(queries(derived("generated_queries", number=3, best=3))) == [
        "otter-1.0",
        "otter-2.0",
        "owl-3.0",
    ]
    values = [0.0, 9.0, np.nan, 1.0, 1.0, 8.0, 2.0, 7.0, 3.0]
    best = derived("generated_queries", {"scores": scored(values)}, number=3, best=3)
    assert list(queries(best)) == ["otter-1.1", "otter-2.2", "owl-3.1"]


def test_a_query_stays_where_its_passage_is_found_for_it(derived, write_ranked, tmp_path):
    every = derived("generated_queries", number=3)
    lists = [
        ("otter-1.0", ["otter-2", "otter-1"], np.array([2.0, 1.0])),
        ("otter-2.0", ["otter-2", "owl-1"], np.array([2.0, 1.0])),
        ("owl-3.0", ["owl-1", "owl-2"], np.array([2.0, 1.0])),
    ]
    params = {"depth": 2, "split": "train"}
    run = write_ranked("bm25", tmp_path / "bm25-0123456789", params, {"dataset": every}, lists)
    inputs = {"all": every, "run": run}
    few = derived("generated_queries", inputs, number=3, found_within=1)
    assert list(queries(few)) == ["otter-2.0"]
    (warning,) = few.manifest.facts["warnings"]
    assert warning.startswith("1 of 7 generated queries find their passage among the first 1")
    found = derived("generated_queries", inputs, number=3, found_within=2)
    assert list(queries(found)) == ["otter-1.0", "otter-2.0"]
    assert found.manifest.facts["source"]["found"] == 2
    assert found.manifest.facts["warnings"] == []


def test_queries_of_another_dataset_are_refused(derived, write_ranked, tmp_path):
    fewer = derived("generated_queries", number=1)
    lists = [("otter-1.0", ["otter-1"], np.array([1.0]))]
    run = write_ranked(
        "bm25",
        tmp_path / "bm25-0123456789",
        {"depth": 1, "split": "train"},
        {"dataset": fewer},
        lists,
    )
    with pytest.raises(UserError, match="has other queries"):
        derived("generated_queries", {"all": fewer, "run": run}, number=3, found_within=1)


def test_what_does_not_belong_together_is_one_line(
    derived, make_dataset, documents, scored, tmp_path
):
    with pytest.raises(UserError, match="number is 4, but .* has 3"):
        derived("expanded", number=4)
    other = make_dataset(tmp_path / "other-0000000009", documents[:6])
    with pytest.raises(UserError, match="expected passages of other"):
        derived("expanded", {"of": other}, number=1)


@pytest.mark.parametrize("part", ["cross", "dual"])
def test_scores_are_those_of_the_model(
    part, make_job, dataset, generated, tokens, cross_model, dual_model, tmp_path
):
    model = {"cross": cross_model, "dual": dual_model}[part]
    inputs = {"dataset": dataset, "generated": generated, "model": model, "tokens": tokens}
    params = {
        "number": 2,
        "query_length": 16,
        "passage_length": 24,
        "precision": "fp32",
        "batch_tokens": 128,
    }
    job = make_job(
        "score_generated", tmp_path / f"{part}-0123456789", params, inputs, {"workers": 1}
    )
    text_scores.run(job)
    found = pq.read_table(job.out / SCORES_FILE)["score"].to_numpy()
    assert np.isnan(found).tolist() == [False, False, True, False, False, True, False, False, True]
    assert found[3] == found[4]  # the same query twice
    from tandem.models.hub import load_tokenizer
    from tandem.models.ragged import Ragged
    from tandem.retrieval.pair_scores import find_tokenizer, load_scorer

    scorer, opened = load_scorer(model.folder / part).eval(), Tokens.open(tokens)
    tokenizer = load_tokenizer(find_tokenizer(model.folder / part))
    query = np.array(tokenizer("what does the owl eat", add_special_tokens=False)["input_ids"])
    row = list(corpus(dataset)).index("owl-3")
    expected = scorer.score(
        Ragged.of([query]), opened.passages.take(np.array([row])), opened.template, "fp32", 128
    )
    assert found[6] == pytest.approx(expected[0], abs=1e-3)


def test_a_run_over_expanded_passages_becomes_one_over_the_passages(
    make_job, derived, dataset, write_ranked, tmp_path, make_dataset, documents
):
    expanded = derived("expanded", number=1)
    lists = [("test-otter", ["otter-2", "owl-1", "bat-1"], np.array([5.0, 4.0, 3.0]))]
    run = write_ranked(
        "bm25", tmp_path / "bm25-0123456789", {"depth": 3}, {"dataset": expanded}, lists
    )
    inputs = {"dataset": dataset, "expanded": expanded, "run": run}
    job = make_job("expansion", tmp_path / "e-0123456789", {"depth": 2}, inputs)
    expansion.run(job)
    [(query, docs, values)] = iter_run(open_artifact(job.out), dataset)
    assert (query, list(docs), list(values)) == ("test-otter", ["otter-2", "owl-1"], [5.0, 4.0])
    other = make_dataset(tmp_path / "other-0000000009", documents)
    wrong = make_job(
        "expansion", tmp_path / "w-0123456789", {"depth": 2}, inputs | {"dataset": other}
    )
    with pytest.raises(UserError, match="expected those of other"):
        expansion.run(wrong)
