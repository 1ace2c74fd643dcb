import gzip
import json

import pytest
import pytrec_eval

from tandem.contrib.released_runs.imported import run_imported as run
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.evaluation.scores import read_scores
from tandem.evaluation.scores import run as score
from tandem.store.artifact import open_artifact
from tandem.store.files import fingerprint
from tandem.store.job import Job


@pytest.fixture
def dataset(beir, make):
    """Four passages d1 … d4, the test queries q2 and q3."""
    records = [{"_id": f"d{i}", "text": f"text {i}"} for i in range(1, 5)]
    (beir / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (beir / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{i}", "text": "?"}) + "\n" for i in (1, 2, 3))
    )
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq2\td2\t1\nq3\td2\t1\n")
    return make("dataset", {"source": "beir"}, path=str(beir))


@pytest.fixture
def imported(tmp_path, dataset):
    """`imported(text, format, depth)`: a file's run as (query, documents, scores), and the manifest."""

    def run_stage(text, kind, depth=100, of=dataset, **options):
        path = tmp_path / "released.run"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        params = {"format": kind, "split": "test", "depth": depth, **options}
        run(Job("imported", tmp_path / "out", params, {"dataset": of}, {"path": str(path)}))
        artifact = open_artifact(tmp_path / "out", "imported")
        return [(q, d, s.tolist()) for q, d, s in iter_run(artifact, of)], artifact.manifest

    return run_stage


def test_ranks_become_scores(imported):
    ranked, manifest = imported("q3\td4\t2\nq3\td1\t1\nq2\td2\t1\n", "ranks")
    assert ranked == [("q3", ["d1", "d4"], [-1, -2]), ("q2", ["d2"], [-1])]
    assert (manifest.facts["queries"], manifest.facts["lines"], manifest.facts["without_run"]) == (
        2,
        3,
        0,
    )
    assert manifest.facts["warnings"] == []


def test_a_file_that_has_changed_since_it_was_planned_is_refused(imported, tmp_path):
    path = tmp_path / "released.run"
    path.write_text("q3\td4\t1\n")
    planned = fingerprint(path)
    imported("q3\td4\t1\n", "ranks", fingerprint=planned)
    with pytest.raises(UserError, match="released.run: has changed since this stage was planned"):
        imported("q3\td1\t1\n", "ranks", fingerprint=planned)


def test_ranks_count_more_than_the_scores_beside_them(imported):
    # Equal scores: by score d1 would come before d3.
    ranked, _ = imported("q3\td3\t1\t80.5\nq3\td1\t2\t80.5\nq3\td2\t3\t7\n", "ranks", depth=2)
    assert ranked == [("q3", ["d3", "d1"], [-1, -2])]


def test_a_trec_run_goes_by_score_and_ties_by_id(imported):
    text = "q3 Q0 d3 1 2.5 x\nq3 Q0 d1 2 2.5 x\nq3\tQ0\td2\t3\t9.25\tx\n"
    ranked, _ = imported(gzip.compress(text.encode()), "trec")
    # the next lower float32
    assert ranked == [("q3", ["d2", "d1", "d3"], [9.25, 2.5, 2.5 - 2**-22])]


def test_ties_as_trec_eval_breaks_them(imported):
    # The higher id first, in the cut too; where d1 is relevant, trec_eval has it third.
    text = "q3 Q0 d1 1 2.5 x\nq3 Q0 d3 2 2.5 x\nq3 Q0 d2 3 2.5 x\n"
    ranked, _ = imported(text, "trec", depth=2, ties="trec_eval")
    assert [(query, docs) for query, docs, _ in ranked] == [("q3", ["d3", "d2"])]
    ranked, _ = imported(text, "trec", ties="trec_eval")
    measure = {"recip_rank"}
    run = {query: dict(zip(docs, scores, strict=True)) for query, docs, scores in ranked}
    tied = {"q3": {"d1": 2.5, "d2": 2.5, "d3": 2.5}}
    ours, theirs = (
        pytrec_eval.RelevanceEvaluator({"q3": {"d1": 1}}, measure).evaluate(r) for r in (run, tied)
    )
    assert ours == theirs == {"q3": {"recip_rank": 1 / 3}}


def test_what_the_dataset_lacks_is_dropped_and_counted(imported):
    text = "q1\td1\t1\nq3\t0\t1\nq3\td2\t2\nq3\td1\t3\nq3\td2\t4\nq3\t0\t5\nq9\td1\t1\nq9\td2\t2\n"
    ranked, manifest = imported(text, "ranks")
    assert ranked == [("q3", ["d2", "d1"], [-2, -3])]
    assert manifest.facts["warnings"] == [
        "1 lines name passages that the corpus lacks, which keep their ranks where the run is scored",
        "3 lines name queries that the split lacks and were dropped",
        "2 lines name a passage of their query again and were dropped",
    ]
    assert manifest.facts["without_run"] == 1


ABSENT = """q2 Q0 gone-1 1 9 x
q2 Q0 d1 2 8 x
q2 Q0 gone-2 3 7 x
q2 Q0 d2 4 6 x
q3 Q0 judged 1 5 x
q3 Q0 gone-1 2 4 x
q3 Q0 d2 3 3 x
"""


@pytest.mark.parametrize("depth", [3, 100])
def test_a_run_that_names_passages_the_corpus_lacks_is_scored_as_trec_eval_scores_it(
    tmp_path, beir, make, dataset, imported, depth
):
    with open(beir / "qrels/test.tsv", "a") as judgements:  # of those of `dataset`
        judgements.write("q3\tjudged\t1\n")
    judging = make("judging", {"source": "beir"}, path=str(beir))
    judged = {"q2": {"d2": 1}, "q3": {"d2": 1, "judged": 1}}
    ranked, _ = imported(ABSENT, "trec", depth, of=judging)
    assert ranked[0][1] == (["d1"] if depth == 3 else ["d1", "d2"])
    run_lines = {}
    for line in ABSENT.splitlines():
        query, _, doc, rank, value, _ = line.split()
        if int(rank) <= depth:
            run_lines.setdefault(query, {})[doc] = float(value)
    theirs = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank", "map", "recall_5"}).evaluate(
        run_lines
    )
    sources = {"dataset": judging, "run": open_artifact(tmp_path / "out")}
    score(
        Job(
            "score",
            tmp_path / "score/a-0",
            {"measures": ["RR", "AP", "R@5"], "split": "test"},
            sources,
        )
    )
    queries, values = read_scores(open_artifact(tmp_path / "score/a-0"), ["RR", "AP", "R@5"])
    for query, own in zip(queries, values.tolist(), strict=True):
        assert own == [theirs[query][name] for name in ("recip_rank", "map", "recall_5")]
    assert theirs["q3"]["map"] == (1 + 2 / 3) / 2
    # and the lines that other tools read are those of the file, down to the depth
    written = [
        tuple(line.split()[:4]) for line in (tmp_path / "out/run.trec").read_text().splitlines()
    ]
    assert written == [
        (*line.split()[:4],) for line in ABSENT.splitlines() if int(line.split()[3]) <= depth
    ]


def test_a_rank_that_several_passages_have_is_a_warning(imported):
    ranked, manifest = imported("q2\td2\t1\nq2\td1\t1\nq3\td1\t1\nq3\td2\t2\n", "ranks")
    assert ranked[0][:2] == ("q2", ["d1", "d2"])
    assert manifest.facts["warnings"] == [
        "1 lines have a rank that their query has already, and stand in the order of their passages' ids"
    ]


def test_scored_triples_become_the_teachers_run(imported):
    # Lines in no order; d1 is q3's positive on two lines, and q2's negative; a pair keeps its first score.
    text = "9.5\t-1.25\tq3\td1\td4\n3\t2\tq2\td2\td1\n9.5\t0.5\tq3\td1\td2\n9.5\t7\tq3\td1\td4\n1\t0\tq9\td1\td2\n"
    ranked, manifest = imported(text, "margin_mse")
    assert ranked == [("q3", ["d1", "d2", "d4"], [9.5, 0.5, -1.25]), ("q2", ["d2", "d1"], [3, 2])]
    assert manifest.facts["warnings"] == [
        "2 lines name queries that the split lacks and were dropped"
    ]


def test_a_positive_that_is_also_a_negative_of_its_query_stands_once(imported):
    ranked, manifest = imported("1\t2\tq2\td1\td2\n2\t1\tq2\td2\td1\n", "margin_mse")
    assert ranked == [("q2", ["d2", "d1"], [2, 1])]
    assert manifest.facts["warnings"] == []


BAD = {
    "no triples": (
        "q2\td1\t1\n",
        "margin_mse",
        ":1: 3 columns by tabs; a line is positive's score, negative's score",
    ),
    "triples of words": (
        "1\tx\tq2\td1\td2\n",
        "margin_mse",
        ":1: score is 'x'; a number is needed",
    ),
    "another dataset's run": (
        "7\td1\t1\n",
        "ranks",
        "(1 lines name queries that the split lacks); its ids must be those of the dataset",
    ),
    "another corpus' run": (
        "q2\t7\t1\nq3\t8\t1\n",
        "ranks",
        "(2 lines name passages that the corpus lacks)",
    ),
    "empty": ("", "ranks", "holds no line about split test"),
    "no rank": ("q2\td1\t1\nq2\tsome query\tsome passage\n", "ranks", ":2: rank is 'some passage'"),
    "two columns": (
        "q2\td1\n",
        "ranks",
        ":1: 2 columns by tabs; a line is query id, passage id, rank",
    ),
    "no score": ("q2\td1\t1\tx\n", "ranks", ":1: score is 'x'; a number is needed"),
    "ranks as trec": (
        "q2\td1\t1\n",
        "trec",
        ":1: not a run line: 'q2\\td1\\t1'; it is `query Q0 doc rank score tag`",
    ),
    "a score that is none": (
        "q2 Q0 d1 1 nan x\n",
        "trec",
        ":1: score is 'nan'; a number is needed",
    ),
    "a score that has no order": (
        "q2 Q0 d1 1 -inf x\n",
        "trec",
        ":1: score is '-inf'; a number from -1e+38 to 1e+38",
    ),
    "a score below which no tie can fall": (
        "q2 Q0 d1 1 -3.4028235e38 x\n",
        "trec",
        ":1: score is '-3.4028235e38'; a number from -1e+38 to 1e+38 is needed",
    ),
    "a score as Python writes it": (
        "q2 Q0 d1 1 1_0 x\n",
        "trec",
        ":1: score is '1_0'; a number is needed",
    ),
    "a rank as Python writes it": (
        "q2\td1\t1_0\n",
        "ranks",
        ":1: rank is '1_0'; a whole number is needed",
    ),
    "a query again": (
        "q2\td1\t1\nq3\td1\t1\nq2\td2\t2\n",
        "ranks",
        ":3: query q2 again; the lines of a query must",
    ),
    "an unknown format": (
        "q2\td1\t1\n",
        "json",
        'format is "json"; allowed: trec, ranks, margin_mse',
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_file_is_named(imported, tmp_path, name):
    text, kind, message = BAD[name]
    with pytest.raises(UserError) as error:
        imported(text, kind)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "out").glob("*"))
