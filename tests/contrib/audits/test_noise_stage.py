"""The whole audit on a collection small enough to count by hand, and on real ones."""

import csv
import json
import random

import ir_measures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.contrib.audits.duplicates import Duplicates, pack_rows
from tandem.contrib.audits.labels import JudgedSplit, count_holes
from tandem.contrib.audits.noise import run
from tandem.data.collection import EXCLUDED
from tandem.data.dataset import run as make_dataset
from tandem.data.rows import IdRows
from tandem.data.runs import order_by_score, write_run
from tandem.errors import UserError
from tandem.store.artifact import open_artifact
from tandem.store.job import Job, writing

PARAMS = {
    "threshold": 0.7,
    "permutations": 64,
    "shingle": {"unit": "words", "size": 1},
    "seed": 1,
    "depths": [1, 2],
}
PARAMS["split"] = "test"
DOCS = [
    ("d1", "", "The cat sat on the mat today"),
    ("d2", "", " the CAT sat\u3000on the mat  today"),  # the text of d1
    ("d3", "", "alpha beta gamma delta epsilon zeta"),
    ("d4", "", "alpha beta gamma delta epsilon eta"),  # 5 of 7 words are those of d3
    ("d5", "", " \n"),
    ("d6", "", "quick brown fox jumps over lazy dogs"),
    ("d7", "Quick brown", "FOX jumps over lazy dogs"),  # the text of d6
    ("d8", "", "one two three four five six seven"),
    ("d9", "", "red <b>green</b> " + "blue" * 100),
]
QUERIES = {
    "train": {"t1": "Who sat?", "t2": "who  SAT?", "t3": "nothing"},
    "dev": {"v1": "which fox", "v2": "who sat?"},
    "test": {"s1": "a", "s2": "b", "s3": "c", "s4": "d", "s5": "e", "s6": "f"},
}
QRELS = {
    "train": [("t1", "d1", 1), ("t2", "d3", 1), ("t3", "dX", 1)],
    "dev": [("v1", "d7", 2), ("v2", "d4", 1)],
    "test": [
        ("s1", "d2", 1),
        ("s2", "d1", 1),
        ("s2", "dY", 1),
        ("s3", "d9", 0),
        ("s5", "d6", 1),
        ("s6", "d3", 1),
    ],
}
RUNS = {
    "one.test-1111111111": {
        "s1": ["d2", "d1", "d8"],
        "s2": ["d8", "d2", "d1"],
        "s3": ["d9", "d8"],
        "s4": ["d3"],
    },
    "two.test-2222222222": {"s5": ["d7"], "s6": ["d4"]},
}


@pytest.fixture
def collection(tmp_path):
    job = Job(
        "dataset",
        tmp_path / "results/hand/dataset/hand-0000000000",
        {"source": "written by a test"},
        {},
    )
    with writing(job) as draft:
        ids, titles, texts = zip(*DOCS, strict=True)
        table = pa.table({"doc_id": ids, "title": titles, "text": texts})
        pq.write_table(table, draft.path("corpus.parquet"), row_group_size=2)
        queries = [
            (query, text, split)
            for split, questions in QUERIES.items()
            for query, text in questions.items()
        ]
        columns = dict(zip(("query_id", "text", "split"), zip(*queries, strict=True), strict=True))
        pq.write_table(pa.table(columns), draft.path("queries.parquet"))
        qrels = [(*judgement, split) for split, judged in QRELS.items() for judgement in judged]
        columns = dict(
            zip(("query_id", "doc_id", "relevance", "split"), zip(*qrels, strict=True), strict=True)
        )
        columns["relevance"] = pa.array(columns["relevance"], pa.int32())
        pq.write_table(pa.table(columns), draft.path("qrels.parquet"))
    return open_artifact(job.out)


@pytest.fixture
def made_run(tmp_path, collection):
    def make(key, lists, split="test"):
        job = Job(
            "bm25", tmp_path / "results/hand/bm25" / key, {"split": split}, {"dataset": collection}
        )
        with writing(job) as draft:
            ranked = ((query, docs, list(range(len(docs), 0, -1))) for query, docs in lists.items())
            write_run(job, draft, ranked)
        return open_artifact(job.out)

    return make


@pytest.fixture
def audit(tmp_path, collection, made_run):
    def run_audit(name="noise", workers=1, runs=RUNS, **changed):
        inputs = {f"run.{at}": made_run(key, lists) for at, (key, lists) in enumerate(runs.items())}
        job = Job(
            "noise",
            tmp_path / name,
            PARAMS | changed,
            {"dataset": collection, **inputs},
            {"workers": workers},
        )
        run(job)
        return open_artifact(job.out, "noise")

    return run_audit


def read(artifact, name):
    return json.loads(artifact.path(name).read_text(encoding="utf-8"))


def test_corpus_by_hand(audit):
    artifact = audit()
    assert read(artifact, "summary.json")["corpus"] == {
        "passages": 9,
        "empty": 1,
        "exact_groups": 2,
        "exact_passages": 4,
        "near_pairs": 1,
        "groups": 3,
        "group_passages": 6,
    }
    rows = pq.read_table(artifact.path("duplicates.parquet")).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (0, "exact", "d1", "d2", 1.0),
        (1, "near", "d3", "d4", pytest.approx(5 / 7)),
        (2, "exact", "d6", "d7", 1.0),
    ]


def test_labels_by_hand(audit):
    summary = read(audit(), "summary.json")
    names = "queries unjudged judged without_positive judgements unknown missing missing_all repeated_groups repeated"
    numbers = {split: list(counts.values()) for split, counts in summary["splits"].items()}
    assert list(summary["splits"]["test"]) == names.split()
    # t3 asks for dX; t1 and t2 are one text
    assert numbers["train"] == [3, 0, 3, 0, 3, 1, 1, 1, 1, 2]
    assert numbers["dev"] == [2, 0, 2, 0, 2, 0, 0, 0, 0, 0]
    # s4 is not judged, s3 has no positive, s2 lacks dY
    assert numbers["test"] == [6, 1, 5, 1, 6, 1, 1, 0, 0, 0]
    assert summary["repeated_queries"] == [
        {"split": "train", "other": "dev", "queries": 1},  # v2
        {"split": "train", "other": "test", "queries": 0},
        {"split": "dev", "other": "test", "queries": 0},
    ]


def test_overlap_by_hand(audit):
    assert read(audit(), "summary.json")["overlap"] == [
        # d4 is like d3
        {"split": "dev", "positives": 2, "shared": 0, "exact": 0, "near": 1, "queries": 1},
        # d1, d3; d2 has d1's text
        {"split": "test", "positives": 4, "shared": 2, "exact": 1, "near": 0, "queries": 3},
    ]


def test_holes_by_hand(audit):
    first, second = read(audit(), "summary.json")["runs"].values()
    # s4 is not judged, s5 and s6 have no result
    assert (first["queries"], first["missing"]) == (3, 2)
    assert first["depths"]["1"] == {
        "hole": pytest.approx(1 / 3),
        "unjudged": 1,
        "exact": 0,
        "near": 0,
        "queries": 0,
    }
    # s1: 1 of 2, s2: 2 of 2, s3: 1 of 2; d1 for s1 and d2 for s2 have a positive's text
    assert first["depths"]["2"] == {
        "hole": pytest.approx(2 / 3),
        "unjudged": 4,
        "exact": 2,
        "near": 0,
        "queries": 2,
    }
    assert (second["queries"], second["missing"]) == (2, 3)
    assert second["depths"]["2"] == {
        "hole": 1.0,
        "unjudged": 2,
        "exact": 1,
        "near": 1,
        "queries": 2,
    }


@pytest.mark.parametrize(("ignored", "hole"), [(True, 0.0), (False, 1.0)])
def test_a_querys_own_passage_is_no_unjudged_result(
    make_job, make_collection, make_run, tmp_path, ignored, hole
):
    passages = [("p1", "", "one two three"), ("p2", "", "four five six")]
    queries = [("p1", "one two three", "test")]
    qrels = [("p1", "p2", 1, "test")]
    made = make_collection(tmp_path / "d" / "own-0123456789", passages, queries, qrels)
    found = make_run(tmp_path / "r" / "bm25.test-0123456789", made, "test", {"p1": ["p1", "p2"]})
    params = PARAMS | {"ignore_identical_ids": ignored}
    job = make_job(
        "noise", tmp_path / "noise", params, {"dataset": made, "run.0": found}, {"workers": 1}
    )
    run(job)
    (counts,) = read(open_artifact(job.out), "summary.json")["runs"].values()
    assert counts["depths"]["1"]["hole"] == hole


def test_excluded_passages_are_no_results(make_collection, make_run, make_job, tmp_path):
    """Without e, a is first and unjudged, and the judged b second; with it, one of two would be judged, too."""
    passages = [(name, "", f"{name} words of {name}") for name in "abe"]
    queries = [("q", "which words", "test"), ("r", "none", "test")]
    qrels = [("q", "e", EXCLUDED, "test"), ("q", "b", 1, "test"), ("r", "e", EXCLUDED, "test")]
    data = make_collection(tmp_path / "d" / "own-0123456789", passages, queries, qrels)
    ranked = make_run(
        tmp_path / "r" / "bm25.test-0123456789", data, "test", {"q": ["e", "a", "b"], "r": ["e"]}
    )
    out = tmp_path / "noise-0123456789"
    run(make_job("noise", out, PARAMS, {"dataset": data, "run.0": ranked}))
    (holes,) = read(open_artifact(out), "summary.json")["runs"].values()
    assert (holes["queries"], holes["missing"]) == (1, 1)
    unjudged = {depth: counts["unjudged"] for depth, counts in holes["depths"].items()}
    assert unjudged == {"1": 1, "2": 1}
    assert [counts["hole"] for counts in holes["depths"].values()] == [1.0, 0.5]


def test_table(audit):
    with open(audit().path("noise.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["finding", "where", "count", "share"]
    assert ["empty passages", "corpus", "1", "0.111111"] in rows
    assert ["pairs of near-duplicate texts", "corpus", "1", ""] in rows
    assert ["judged queries with a positive that the corpus lacks", "test", "1", "0.200000"] in rows
    assert ["queries that another split asks too", "dev in train", "1", "0.500000"] in rows
    assert ["positives that are positives of train", "test", "2", "0.500000"] in rows
    assert ["unjudged in the top 2", "one.test-1111111111", "4", "0.666667"] in rows
    assert [
        "unjudged in the top 2 with the text of a positive",
        "one.test-1111111111",
        "2",
        "0.500000",
    ] in rows


def test_examples_can_be_read(audit):
    examples = read(audit(), "examples.json")
    (near,) = examples["Near-duplicates, the least alike"]
    assert near["note"] == "similarity 0.71"
    assert [passage["id"] for passage in near["passages"]] == ["d3", "d4"]
    hint = examples["Unjudged results of one.test-1111111111 that repeat a positive"][0]
    assert hint["note"] == "unjudged at rank 2; a positive, the same text"
    assert (hint["queries"], [passage["id"] for passage in hint["passages"]]) == (
        [{"id": "s1", "text": "a"}],
        ["d1", "d2"],
    )
    assert examples["Positives that the corpus lacks, test"][0]["note"] == "the corpus lacks dY"
    assert examples["Queries of dev that train asks too"][0]["queries"] == [
        {"id": "v2", "text": "who sat?"},
        {"id": "t1", "text": "Who sat?"},
    ]
    texts = [
        passage["text"]
        for some in examples.values()
        for example in some
        for passage in example["passages"]
    ]
    assert max(map(len, texts)) <= 201


def test_workers_change_no_byte(audit):
    first, second = audit("one"), audit("two", workers=2)
    assert first.manifest.files == second.manifest.files
    assert sorted(p.name for p in second.folder.iterdir()) == sorted(
        [*second.manifest.files, "stage.json"]
    )


def test_a_dataset_alone_can_be_audited(audit):
    summary = read(audit(runs={}, split=None), "summary.json")
    assert summary["runs"] == {}
    assert summary["corpus"]["exact_groups"] == 2


def test_holes_are_what_ir_measures_leaves_of_judged():
    draw = random.Random(4)
    docs = [f"d{n}" for n in range(60)]
    judged = {
        f"q{q}": {doc: draw.randint(0, 2) for doc in draw.sample(docs, draw.randint(1, 30))}
        for q in range(40)
    }
    lists = {f"q{q}": draw.sample(docs, draw.choice([3, 12, 60])) for q in range(45)}
    scores = {query: [draw.choice([1.0, 2.0, 3.0]) for _ in some] for query, some in lists.items()}
    split = JudgedSplit(
        {query: query for query in lists}, judged, {doc: row for row, doc in enumerate(docs)}
    )
    duplicates = Duplicates(
        np.arange(60, dtype=np.uint32),
        np.zeros(60, bool),
        pack_rows([], []),
        np.empty(0, np.float32),
    )
    ids = IdRows(pa.chunked_array([docs]), "passage", "test")
    best_first = {query: order_by_score(some, scores[query]) for query, some in lists.items()}
    run_ = (
        (query, [doc for doc, _ in pairs], np.empty(0, np.float32))
        for query, pairs in best_first.items()
    )
    depths = count_holes(run_, split, [5, 10, 50], duplicates, ids, most=5).depths
    ranked = {query: dict(zip(some, scores[query], strict=True)) for query, some in lists.items()}
    measures = {depth: ir_measures.parse_measure(f"Judged@{depth}") for depth in (5, 10, 50)}
    theirs = ir_measures.calc_aggregate(measures.values(), judged, ranked)
    for depth, measure in measures.items():
        assert depths[depth].hole == pytest.approx(1 - theirs[measure])


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"threshold": 0}, "threshold is 0; allowed: > 0"),
        ({"permutations": 1}, "permutations is 1; allowed: ≥ 16"),
        (
            {"shingle": {"unit": "bytes", "size": 3}},
            r'shingle\.unit is "bytes"; allowed: words, characters',
        ),
        ({"shingle": {"unit": "words", "size": 0}}, r"shingle\.size is 0; allowed: ≥ 1"),
        ({"depths": [0]}, r"depths\.0 is 0; allowed: ≥ 1"),
        ({"split": "eval"}, "split: eval does not exist in .*; it has train, dev, test"),
        ({"split": "dev"}, "is a run of split test, but split is dev; give a run of dev"),
    ],
)
def test_mistakes_are_one_line(audit, tmp_path, changed, line):
    with pytest.raises(UserError, match=f"{line}$") as caught:
        audit("wrong", **changed)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "wrong").exists()


REAL_COUNTS = [
    # no text of the raw CACM repeats: each ends in its own citation numbers
    (
        "cacm-raw",
        "words",
        {"exact_groups": 0, "near_pairs": 0},
        {"unknown": 55, "missing": 19, "missing_all": 0},
    ),
    ("scifact", "words", {"exact_groups": 0, "near_pairs": 0}, {"unknown": 0, "repeated": 0}),
    (
        "cn-med-im",
        "characters",
        {"exact_groups": 1, "exact_passages": 2, "empty": 0},
        {"unknown": 0},
    ),
]


@pytest.mark.parametrize(("name", "unit", "corpus", "test"), REAL_COUNTS)
def test_real_collections(tmp_path, real, name, unit, corpus, test):
    make_dataset(
        Job("dataset", tmp_path / "dataset", {"source": "beir"}, {}, {"path": str(real(name))})
    )
    params = PARAMS | {
        "threshold": 0.8,
        "shingle": {"unit": unit, "size": 3 if unit == "words" else 4},
    }
    run(Job("noise", tmp_path / "noise", params, {"dataset": open_artifact(tmp_path / "dataset")}))
    summary = read(open_artifact(tmp_path / "noise"), "summary.json")
    assert corpus.items() <= summary["corpus"].items()
    assert test.items() <= summary["splits"]["test"].items()
    if name == "scifact":
        assert summary["overlap"][0]["shared"] == 181  # of 283 positives of test
