"""Classical scores by hand on five passages, and those of engines against Lucene's and scikit-learn's own."""

import math
from collections import Counter

import numpy as np
import pytest
from trec import iter_trec

from tandem.contrib.lexical import bm25s, vector_space
from tandem.errors import UserError
from tandem.retrieval.lexical.bm25 import run as search
from tandem.store.artifact import open_artifact

WORDS = {"analyzer": "whitespace", "language": "en"}
DOCS = {
    "a": "otter river otter fish",
    "b": "river stone",
    "c": "otter fish fish fish",
    "d": "moon night owl stone river river",
    "e": "owl night",
}
QUERIES = {
    "one": "otter",
    "two": "otter river",
    "twice": "fish fish river",
    "absent": "lynx",
    "half": "otter lynx",
}
SEARCH = {"depth": 10, "split": "test"}
COUNTS = {name: Counter(text.split()) for name, text in DOCS.items()}
LENGTHS = {name: len(text.split()) for name, text in DOCS.items()}
N, TERMS = len(DOCS), sum(LENGTHS.values())  # 5 and 18
DF = Counter(term for counts in COUNTS.values() for term in counts)
CF = sum(COUNTS.values(), Counter())


def hits(folder):
    """A run as query → document → score."""
    run = iter_trec(folder / "run.trec")
    return {query: dict(zip(docs, scores.tolist(), strict=True)) for query, docs, scores in run}


def scored(query, score, every=False):
    """The positive sums of `score(term, document)` over a query's terms, of documents with any term or with every."""
    sums = {}
    for doc, counts in COUNTS.items():
        terms = QUERIES[query].split()
        if (all if every else any)(term in counts for term in terms):
            sums[doc] = sum(score(term, doc) for term in terms if term in counts)
    return sums


def probability(term):
    """A term's share of the collection, as Lucene has it."""
    return (CF[term] + 1) / (TERMS + 1)


def dirichlet(term, doc, mu=100):
    value = math.log(1 + COUNTS[doc][term] / (mu * probability(term))) + math.log(
        mu / (LENGTHS[doc] + mu)
    )
    return max(0, value)


def jelinek_mercer(term, doc, weight=0.3):
    return math.log(
        1 + (1 - weight) * COUNTS[doc][term] / LENGTHS[doc] / (weight * probability(term))
    )


def in_l2(term, doc):
    frequency = COUNTS[doc][term] * math.log2(1 + TERMS / N / LENGTHS[doc])
    return frequency / (frequency + 1) * math.log2((N + 1) / (DF[term] + 0.5))


def relevance_weight(term, doc):
    return math.log(1 + (N - DF[term] + 0.5) / (DF[term] + 0.5))


def test_lucenes_similarities_by_hand(stages, words, collection, tmp_path):
    collection(DOCS, QUERIES)
    both = {"dataset": "dataset", "lucene": "index"}
    expected = {
        "dirichlet": ({"similarity": {"type": "dirichlet", "mu": 100}}, dirichlet, False),
        "jm": (
            {"similarity": {"type": "jelinek_mercer", "collection_weight": 0.3}},
            jelinek_mercer,
            False,
        ),
        "dfr": ({"similarity": {"type": "dfr"}}, in_l2, False),
        "boolean": ({"similarity": {"type": "boolean"}}, lambda term, doc: 1.0, False),
        "bim": ({"k1": 0, "b": 0}, relevance_weight, False),
        "and": ({"similarity": {"type": "boolean"}, "match": "all"}, lambda term, doc: 1.0, True),
        "and_jm": (
            {"similarity": {"type": "jelinek_mercer", "collection_weight": 0.3}, "match": "all"},
            jelinek_mercer,
            True,
        ),
    }
    lines = [words("bm25", name, SEARCH | how, both) for name, (how, *_) in expected.items()]
    index = words("lucene", "index", WORDS, {"dataset": "dataset"})
    assert stages(index, *lines, JAVA_TOOL_OPTIONS="-Xcheck:jni") == [None] * 8
    for name, (_, score, every) in expected.items():
        results = hits(tmp_path / name)
        for query in QUERIES:
            assert results.get(query, {}) == pytest.approx(scored(query, score, every), rel=1e-5), (
                name,
                query,
            )
    # Otter and river are together in a alone; no passage has all terms of a query with a term that none has.
    assert hits(tmp_path / "and").keys() == {"one", "two", "twice"}
    assert hits(tmp_path / "and")["two"] == {"a": 2.0}
    assert hits(tmp_path / "and")["twice"] == {"a": 3.0}


def test_ties_are_in_order_of_ids(stages, words, collection, tmp_path):
    collection({"z": "x", "y": "x w", "b": "w x", "a": "w"}, {"q": "x"})
    boolean = SEARCH | {"depth": 2, "similarity": {"type": "boolean"}}
    both = {"dataset": "dataset", "lucene": "index"}
    runs = [words("bm25", match, boolean | {"match": match}, both) for match in ("any", "all")]
    assert stages(words("lucene", "index", WORDS, {"dataset": "dataset"}), *runs) == [None] * 3
    assert list(hits(tmp_path / "any")["q"]) == list(hits(tmp_path / "all")["q"]) == ["b", "y"]


@pytest.fixture
def search_by_cosine(make_job, tmp_path):
    """`search_by_cosine(similarity)`: the run of a vector space's similarity over the collection that is there."""

    def make(similarity, name="run"):
        if not (tmp_path / "index").exists():
            bm25s.run(
                make_job("bm25s", tmp_path / "index", WORDS, {"dataset": tmp_path / "dataset"})
            )
        inputs = {"dataset": tmp_path / "dataset", "bm25s": tmp_path / "index"}
        if similarity["type"] == "lsi":
            params = {key: value for key, value in similarity.items() if key != "type"}
            vector_space.run(make_job("lsi", tmp_path / f"{name}-lsi", params, inputs))
            inputs["lsi"] = tmp_path / f"{name}-lsi"
        search(
            make_job(
                "bm25", tmp_path / name, SEARCH | {"similarity": similarity}, inputs, {"workers": 2}
            )
        )
        return hits(tmp_path / name)

    return make


@pytest.fixture
def cosines(search_by_cosine, collection):
    """`cosines(similarity)`: the same over the five passages."""
    collection(DOCS, QUERIES)
    return search_by_cosine


def test_cosine_of_one_term_by_hand(cosines):
    # otter is in two of five passages: its weight in a is 2 ln(5/2) beside ln(5/3) of river and ln(5/2) of fish.
    otter, river, fish = 2 * math.log(5 / 2), math.log(5 / 3), math.log(5 / 2)
    results = cosines({"type": "tf_idf"})
    assert results["one"]["a"] == pytest.approx(otter / math.hypot(otter, river, fish))
    assert results["one"]["c"] == pytest.approx(1 / math.hypot(1, 3))
    assert results["one"].keys() == {"a", "c"}
    assert "absent" not in results
    assert results["half"] == results["one"]  # what no passage has is not a dimension


@pytest.mark.parametrize("sublinear", [False, True])
def test_cosines_are_those_of_scikit_learn(cosines, sublinear):
    text = pytest.importorskip("sklearn.feature_extraction.text")
    counter = text.CountVectorizer(tokenizer=str.split, token_pattern=None)
    counts = counter.fit_transform(DOCS.values())
    transformer = text.TfidfTransformer(sublinear_tf=sublinear, smooth_idf=False).fit(counts)
    transformer.idf_ = transformer.idf_ - 1  # which scikit-learn adds
    passages = transformer.transform(counts)
    queries = transformer.transform(counter.transform(QUERIES.values()))
    expected = (queries @ passages.T).toarray()
    results = cosines({"type": "tf_idf", "sublinear": sublinear})
    for name, row in zip(QUERIES, expected, strict=True):
        found = {doc: value for doc, value in zip(DOCS, row, strict=True) if value > 0}
        assert results.get(name, {}) == pytest.approx(found, rel=1e-6)


def test_lsi_is_the_truncated_decomposition_of_scikit_learn(cosines, tmp_path):
    text = pytest.importorskip("sklearn.feature_extraction.text")
    decomposition = pytest.importorskip("sklearn.decomposition")
    pairwise = pytest.importorskip("sklearn.metrics.pairwise")
    results = cosines({"type": "lsi", "dimensions": 2})
    counter = text.CountVectorizer(tokenizer=str.split, token_pattern=None)
    counts = counter.fit_transform(DOCS.values())
    transformer = text.TfidfTransformer(smooth_idf=False).fit(counts)
    transformer.idf_ = transformer.idf_ - 1
    latent = decomposition.TruncatedSVD(2, algorithm="arpack", random_state=0)
    passages = latent.fit_transform(transformer.transform(counts))
    queries = latent.transform(transformer.transform(counter.transform(QUERIES.values())))
    expected = pairwise.cosine_similarity(queries, passages)
    for name, row in zip(QUERIES, expected, strict=True):
        found = {doc: value for doc, value in zip(DOCS, row, strict=True) if value > 1e-6}
        assert {d: v for d, v in results.get(name, {}).items() if v > 1e-6} == pytest.approx(
            found, abs=1e-5
        )
    facts = open_artifact(tmp_path / "run-lsi").manifest.facts
    assert facts["squares_kept"] == pytest.approx((latent.singular_values_**2).sum() / N, abs=1e-4)


def test_lsi_of_passages_that_all_have_the_same_terms_is_one_line(make_job, collection, tmp_path):
    collection({"a": "otter river", "b": "river otter", "c": "otter otter river"}, {"q": "otter"})
    bm25s.run(make_job("bm25s", tmp_path / "index", WORDS, {"dataset": tmp_path / "dataset"}))
    job = make_job("lsi", tmp_path / "lsi", {"dimensions": 1}, {"bm25s": tmp_path / "index"})
    with pytest.raises(UserError, match="every term of .* is in all of its 3 passages"):
        vector_space.run(job)


def test_lsi_finds_what_shares_no_term(cosines):
    plain, latent = cosines({"type": "tf_idf"}), cosines({"type": "lsi", "dimensions": 3}, "latent")
    assert "b" not in plain["one"]
    assert latent["one"]["b"] > 0  # through the river beside the otter


def test_lsi_finds_nothing_for_a_query_of_which_its_directions_hold_nothing(
    search_by_cosine, collection, tmp_path
):
    docs = {"a": "otter fish", "b": "otter fish river", "c": "fish river", "d": "moon owl night"}
    collection(docs, {"within": "otter", "without": "moon owl"})
    results = search_by_cosine({"type": "lsi", "dimensions": 1})
    vectors = np.load(tmp_path / "run-lsi" / "passages.npy")
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1, 0])
    assert set(results["within"]) == {"a", "b", "c"}
    assert not results.get("without")


def test_lsi_has_the_same_bytes_again_and_refuses_too_many_dimensions(cosines, tmp_path):
    for name in ("first", "second"):
        cosines({"type": "lsi", "dimensions": 4}, name)
    read = [
        (tmp_path / f"{name}-lsi" / "passages.npy").read_bytes() for name in ("first", "second")
    ]
    assert read[0] == read[1]
    vectors = np.load(tmp_path / "first-lsi" / "passages.npy")
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(N), rel=1e-6)
    with pytest.raises(UserError, match="dimensions is 5, but .* has 5 passages and 7 terms"):
        cosines({"type": "lsi", "dimensions": 5}, "many")
