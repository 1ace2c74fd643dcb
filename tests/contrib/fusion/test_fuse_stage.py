"""The stage `fuse`: what it writes, query by query, and what does not fit together."""

import numpy as np
import pytest
from messages import other_dataset
from trec import iter_trec

from tandem.contrib.fusion.fuse import fuse_pools, iterate_pools, pool_lists, run
from tandem.contrib.fusion.options import FuseParams
from tandem.data import runs
from tandem.data.collection import Collection
from tandem.data.runs import order_by_score
from tandem.errors import UserError
from tandem.stages.retrieval import fusion
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import writing

RRF = {"method": "rrf", "k": 60.0, "depth": 8, "split": "test"}
WEIGHTED = {"method": "weighted", "normalize": "min_max", "depth": 8, "split": "test"}


@pytest.fixture
def fuse(make_job, dataset, tmp_path):
    """`fuse(params, *runs, tuned=None)`: the artifact of the fused runs."""

    def make(params, *runs, tuned=None):
        inputs = {"dataset": dataset, **{f"run.{at}": artifact for at, artifact in enumerate(runs)}}
        out = tmp_path / "fuse" / f"both{len(list(tmp_path.glob('fuse/*')))}-0123456789"
        run(make_job("fuse", out, params, inputs | ({"tuned": tuned} if tuned else {})))
        return open_artifact(out, "fuse")

    return make


@pytest.fixture
def tuned(make_job, dataset, tmp_path):
    """`tuned(settings, runs, method)`: an artifact as the stage `tune_fusion` writes it."""

    def make(settings, runs, method="weighted"):
        inputs = {"dataset": dataset, **{f"run.{at}": artifact for at, artifact in enumerate(runs)}}
        job = make_job(
            "tune_fusion", tmp_path / "tune_fusion" / "t-0123456789", {"method": method}, inputs
        )
        with writing(job) as draft:
            write_json(draft.path("chosen.json"), settings)
        return open_artifact(job.out)

    return make


def lines(artifact):
    """(query, document, rank, score) of each line of a run."""
    text = artifact.path("run.trec").read_text().splitlines()
    assert {line.split()[5] for line in text} <= {artifact.key}
    return [(q, doc, int(rank), float(score)) for q, _, doc, rank, score, _ in map(str.split, text)]


def test_ranks_are_fused_query_by_query(fuse, release, random_hits, dataset):
    queries = list(Collection(dataset).queries("test"))
    first, second = (
        random_hits("test", 1, queries[2:]),
        random_hits("test", 2, [*queries[1:9], *queries[10:]]),
    )
    fused = fuse(RRF, release(first), release(second))
    expected = []
    for query in queries[1:]:
        scores = {}
        for lists in (first, second):
            for name, docs, values in lists:
                for rank, (doc, _) in enumerate(
                    order_by_score(docs, values) if name == query else (), 1
                ):
                    scores[doc] = scores.get(doc, 0) + 1 / (60 + rank)
        ranked = sorted(
            ((np.float32(score), doc) for doc, score in scores.items()), key=lambda p: (-p[0], p[1])
        )[:8]
        expected += [
            (query, doc, rank, pytest.approx(score, rel=1e-6))
            for rank, (score, doc) in enumerate(ranked, 1)
        ]
    assert lines(fused) == expected
    assert (fused.manifest.facts["queries"], fused.manifest.facts["lines"]) == (19, 19 * 8)


def test_weights_decide_whose_order_it_is(fuse, release, random_hits):
    lists = random_hits("test", 1), random_hits("test", 2)
    runs = [release(hits) for hits in lists]
    for at, weights in enumerate(([1.0, 0.0], [0.0, 1.0])):
        fused = {
            query: docs
            for query, docs, _ in iter_trec(
                fuse(WEIGHTED | {"weights": weights}, *runs).path("run.trec")
            )
        }
        for query, docs, scores in lists[at]:
            above = [doc for doc, score in order_by_score(docs, scores) if score > scores.min()][:8]
            assert fused[query][: len(above)] == above


def test_tuned_settings_are_those_of_the_artifact(fuse, tuned, release, random_hits):
    runs = [release(random_hits("test", seed)) for seed in (1, 2)]
    explicit = fuse(WEIGHTED | {"weights": [0.3, 0.7]}, *runs)
    fused = fuse(WEIGHTED, *runs, tuned=tuned({"weights": [0.3, 0.7]}, runs))
    assert lines(fused) == lines(explicit)
    assert fused.manifest.facts["tuned"] == {"weights": [0.3, 0.7]}
    assert lines(fused) != lines(fuse(WEIGHTED | {"weights": [0.7, 0.3]}, *runs))


def test_below_its_depth_a_reranked_run_has_ranks_and_no_scores(fuse, release):
    reranked = release(
        [("test-otter", ["bat-2", "bat-1", "bat-3"], [0.5, 0.25, -1])], kind="rerank", depth=2
    )
    other = release([("test-otter", ["heron-1", "bat-3"], [2, 1])])
    weighted = WEIGHTED | {"weights": [1.0, 1.0]}
    fused = [
        (doc, pytest.approx(score, abs=1e-6))
        for _, doc, _, score in lines(fuse(weighted, reranked, other))
    ]
    assert fused == [("bat-2", 1), ("heron-1", 1), ("bat-1", 0), ("bat-3", 0)]
    assert [doc for _, doc, _, _ in lines(fuse(RRF, reranked, other))] == [
        "bat-3",
        "bat-2",
        "heron-1",
        "bat-1",
    ]


def test_runs_of_any_order_are_read_once(release, random_hits, dataset, monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "LINES_PER_GROUP", 24)  # two lists of twelve a row group
    first, second = random_hits("test", 1), random_hits("test", 2)
    shuffled = [second[at] for at in np.random.default_rng(3).permutation(len(second))]
    lists, read, opened = [release(first), release(shuffled)], [], []
    read_group, read_ids = runs.read_row_group, Collection.doc_ids
    monkeypatch.setattr(
        runs, "read_row_group", lambda file, group: read.append(group) or read_group(file, group)
    )
    monkeypatch.setattr(Collection, "doc_ids", lambda self: opened.append(self) or read_ids(self))
    queries = list(Collection(dataset).queries("test"))
    assert [query for query, _ in iterate_pools(lists, dataset, queries, tmp_path)] == queries
    assert read == [*range(10), *range(10)]
    assert len(opened) == 1  # the table of ids, for both


def test_queries_may_come_in_any_order(fuse, release, random_hits):
    """Files in the split's order, in the reverse and in a random one are fused alike; so are two of other orders."""
    first, second = random_hits("test", 1), random_hits("test", 2)
    expected = lines(fuse(RRF, release(first), release(second)))
    shuffled = [second[at] for at in np.random.default_rng(3).permutation(len(second))]
    assert lines(fuse(RRF, release(first), release(second[::-1]))) == expected
    assert lines(fuse(RRF, release(first[::-1]), release(shuffled))) == expected


@pytest.mark.parametrize(
    "params", [RRF, WEIGHTED | {"weights": [1.0, 2.0]}], ids=["rrf", "weighted"]
)
def test_runs_that_find_nothing_are_fused_into_one_that_finds_nothing(fuse, release, params):
    assert lines(fuse(params, release([]), release([]))) == []


def test_passages_that_the_corpus_lacks_keep_their_ranks_in_what_is_fused(fuse, release):
    first = release(
        [("test-otter", ["gone-1", "otter-1", "otter-2"], [9.0, 8.0, 7.0])], keep_absent=True
    )
    fused = fuse(
        RRF, first, release([("test-otter", ["otter-2", "gone-1"], [2.0, 1.0])], keep_absent=True)
    )
    # gone-1: 1/61 + 1/62; otter-2: 1/63 + 1/61; otter-1: 1/62
    assert [line[:3] for line in lines(fused)] == [
        ("test-otter", "gone-1", 1),
        ("test-otter", "otter-2", 2),
        ("test-otter", "otter-1", 3),
    ]


def test_ties_with_passages_that_the_corpus_lacks_go_by_their_ids(fuse, release):
    lists = [["otter-1", "gone-1"], ["gone-1", "otter-2"], ["otter-2", "otter-1"]]
    runs = [release([("test-otter", docs, [2.0, 1.0])], keep_absent=True) for docs in lists]
    fused = fuse(RRF, *runs)  # each has 1/61 + 1/62
    ranked = [line[:3] for line in lines(fused)]
    assert ranked == [
        ("test-otter", "gone-1", 1),
        ("test-otter", "otter-1", 2),
        ("test-otter", "otter-2", 3),
    ]
    scores = [line[3] for line in lines(fused)]
    assert scores[0] > scores[1] > scores[2]


def test_what_does_not_fit_is_refused(
    fuse, tuned, release, random_hits, make_dataset, documents, tmp_path
):
    good, lists = release(random_hits("test", 1)), random_hits("test", 2)
    other = make_dataset(tmp_path / "dataset" / "other-0123456789", documents)
    with pytest.raises(UserError, match=other_dataset(r"run\.1", "other-0123456789", "tiny-0")):
        fuse(RRF, good, release(lists, of=other))
    with pytest.raises(
        UserError, match="is a run of split dev, but split is test; fuse runs of one split"
    ):
        fuse(RRF, good, release(random_hits("dev", 2), "dev"))
    with pytest.raises(UserError, match="holds query dev-otter, which the split lacks"):
        fuse(RRF, good, release(random_hits("dev", 2)))
    with pytest.raises(UserError, match="query test-heron has an infinite score"):
        fuse(RRF, good, release([(lists[1][0], ["heron-1", "otter-1"], [np.inf, 1.0])]))
    with pytest.raises(
        UserError, match="was tuned for weighted of 3 runs, but this is weighted of 2"
    ):
        fuse(WEIGHTED, good, good, tuned=tuned({"weights": [0.2, 0.3, 0.5]}, [good] * 3))
    with pytest.raises(UserError, match="was tuned for rrf of 2 runs, but this is weighted of 2"):
        fuse(WEIGHTED, good, good, tuned=tuned({"k": 10.0}, [good] * 2, "rrf"))
    assert not list(tmp_path.glob("fuse/*/stage.json"))


@pytest.mark.parametrize("scores", [[1.0], [np.nan] * 99, None, ["best"] * 99])
def test_a_plugins_method_must_give_a_number_for_each_document(monkeypatch, scores):
    """Of too few, documents would be lost in silence."""
    monkeypatch.setitem(
        fusion._entries, "own", lambda pool, params: scores[: len(pool.docs)] if scores else None
    )
    pooled = pool_lists(
        [(["a", "b"], np.array([2, 1], np.float32)), (["c"], np.array([1], np.float32))]
    )
    with pytest.raises(
        UserError, match="^fuse: own, passages of q: must give a number for each of 3$"
    ):
        list(fuse_pools([("q", pooled)], FuseParams.model_construct(method="own", depth=9)))
