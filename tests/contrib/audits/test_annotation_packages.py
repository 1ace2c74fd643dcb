"""Packages of a pool's top passages, their review by the rule of DuReader-retrieval A.3, and the labels that follow."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from tiny_project import ROOT

from tandem.cli import run as run_command
from tandem.contrib.audits.false_negatives import run as pool_stage
from tandem.contrib.audits.findings import collect_audits, write_audits_csv
from tandem.contrib.audits.options import Review
from tandem.contrib.audits.packages import (
    AnnotationFolder,
    AnnotationRule,
    Round,
    cut_packages,
    read_accepted,
)
from tandem.contrib.audits.plan import plan_relabelling
from tandem.contrib.audits.relabel import run as relabel_stage
from tandem.contrib.audits.sheets import SheetRow
from tandem.data.collection import EXCLUDED
from tandem.errors import UserError
from tandem.extras.report.page import make_environment
from tandem.extras.targets import Configuration
from tandem.store.artifact import open_artifact
from tandem.store.lineage import walk

PASSAGES = [(f"p{at}", "", f"-text {at}") for at in range(1, 8)]
QUERIES = [(f"q{at}", f"query {at}", "test") for at in (1, 2, 3)]
QRELS = [
    ("q1", "p1", 1, "test"),
    ("q1", "p2", 0, "test"),
    ("q1", "p3", EXCLUDED, "test"),
    ("q2", "p4", 2, "test"),
    ("q3", "p7", 1, "test"),
]
RANKED = {
    # p3 is left out of every result, so the top three are p1, p2, p4
    "q1": ["p3", "p1", "p2", "p4", "p5"],
    "q2": ["p1", "p4", "p5"],
    "q3": ["p1", "p2", "p3"],
}
ASKED = [("q1", doc) for doc in ("p1", "p2", "p4")] + [("q2", doc) for doc in ("p1", "p4", "p5")]
ASKED += [("q3", doc) for doc in ("p1", "p2", "p3")]
# q2's p4 was labelled wrongly
TRUTH = {pair: pair in {("q1", "p1"), ("q1", "p2"), ("q2", "p1")} for pair in ASKED}
PARAMS = {"split": "test", "depth": 50, "top": 3, "threshold": 0.5, "labelled": True}
NAMES = ("001", "002", "003")  # a query each: two of them would be six pairs
RULE = Review(package=5, reviewers=2, pairs=3, accuracy=0.93)


@pytest.fixture
def inputs(make_job, make_collection, make_run, tmp_path):
    data = make_collection(tmp_path / "d" / "mini-0123456789", PASSAGES, QUERIES, QRELS)
    run = make_run(tmp_path / "r" / "bm25.test-0123456789", data, "test", RANKED)
    out = tmp_path / "pool" / "p-0123456789"
    pool_stage(make_job("false_negatives", out, PARAMS, {"dataset": data, "run.0": run}))
    return {"dataset": data, "pool": open_artifact(out)}


@pytest.fixture
def work(inputs, tmp_path):
    """The folder of packages, begun."""
    pool = inputs["pool"]
    (tmp_path / "annotation").mkdir()
    folder = AnnotationFolder(
        tmp_path / "annotation", pool, AnnotationRule(pool=pool.key, review=RULE, seed=42)
    )
    folder.write_missing()
    return folder


def fill(path: Path, wrong=(), but=()):
    """Fill in a sheet with the truth, except that `wrong` pairs are the other way round and those of `but` empty."""
    head, *lines = path.read_text(encoding="utf-8-sig").splitlines()
    rows = []
    for line in lines:
        cells = line.split(",")
        pair = cells[0], cells[1]
        cells[-1] = "" if pair in but else str(int(TRUTH[pair] != (pair in wrong)))
        rows.append(",".join(cells))
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8-sig")


def review(work, name, number, wrong=()):
    for reviewer in (1, 2):
        fill(work.path_of_review(name, number, reviewer), wrong)


def states(work):
    return {
        name: package.state.split(":")[0] for name, package in work.summarise()[1].packages.items()
    }


def relabel(make_job, out, inputs, path):
    relabel_stage(make_job("relabel", out, {"split": "test"}, inputs, {"path": str(path)}))
    artifact = open_artifact(out)
    qrels = pq.read_table(artifact.path("qrels.parquet")).to_pylist()
    labels = {(row["query_id"], row["doc_id"]): row["relevance"] for row in qrels}
    return artifact, labels, json.loads(artifact.path("changes.json").read_text())


def test_the_pools_top_is_asked_about_whether_labelled_or_not(inputs):
    head, *lines = inputs["pool"].path("sheet.csv").read_text(encoding="utf-8-sig").splitlines()
    assert head.endswith("score,rank,label,verdict")
    rows = [line.split(",") for line in lines]
    assert [(row[0], row[1]) for row in rows] == ASKED
    assert [row[-2] for row in rows] == ["1", "0", "", "", "1", "", "", "", ""]
    page = inputs["pool"].path("sheet.html").read_text()
    assert page.count("labelled relevant") == 2


def test_a_filled_sheet_corrects_labels(make_job, inputs, tmp_path):
    """p1 stays, p2 becomes positive, q2's 2 is taken back, q2's p1 is new: 3 positives before, 4 after."""
    sheet = tmp_path / "filled.csv"
    sheet.write_text(inputs["pool"].path("sheet.csv").read_text(encoding="utf-8-sig"))
    fill(sheet)
    artifact, labels, changes = relabel(make_job, tmp_path / "a-0123456789", inputs, sheet)
    assert labels == {
        ("q1", "p1"): 1,
        ("q1", "p2"): 1,
        ("q1", "p3"): EXCLUDED,
        ("q2", "p4"): 0,
        ("q2", "p1"): 1,
        ("q3", "p7"): 1,
    }
    assert (changes["new_positives"], changes["removed_positives"], changes["changed"]) == (2, 1, 2)
    assert changes["positives_per_query"] == {"before": 1.0, "after": 1.3333}
    assert changes["changes"] == {"q1": {"before": 1, "after": 2}, "q2": {"before": 1, "after": 1}}
    assert artifact.manifest.facts["verdict"] == "annotators"


def test_packages_hold_whole_queries_where_they_fit():
    rows = [
        SheetRow(query, str(at), "", "", "")
        for query, count in (("a", 3), ("b", 3), ("c", 7))
        for at in range(count)
    ]
    sizes = {
        name: [row.query_id for row in package] for name, package in cut_packages(rows, 5).items()
    }
    assert sizes == {"001": ["a"] * 3, "002": ["b"] * 3, "003": ["c"] * 5, "004": ["c"] * 2}
    assert [len(package) for package in cut_packages(rows[:6], 6).values()] == [6]
    assert cut_packages([], 5) == {}


def test_an_accuracy_of_just_the_rules_is_enough(work):
    """Of 100 pairs each 92 and 94 agree: 93 % on average, which floats would call 92.99…"""
    pairs = [("q", str(at)) for at in range(100)]
    submitted = dict.fromkeys(pairs, True)
    for agreeing, passed in (((92, 94), True), ((92, 93), False)):
        reviews = [{pair: at < count for at, pair in enumerate(pairs)} for count in agreeing]
        last = Round(1, submitted, [pairs, pairs], reviews)
        assert float(last.accuracy) == pytest.approx(sum(agreeing) / 200)
        assert work.has_passed(last) is passed


def test_a_package_is_reviewed_once_it_is_filled_in(work):
    assert states(work) == dict.fromkeys(NAMES, "to be annotated")
    fill(work.path_of_package("001"), but={("q1", "p4")})
    work.write_missing()
    assert [*work.folder.glob("reviews/*")] == []
    fill(work.path_of_package("001"))
    work.write_missing()
    names = sorted(path.name for path in work.folder.glob("reviews/*.csv"))
    assert names == ["001.round1.reviewer1.csv", "001.round1.reviewer2.csv"]
    head, *lines = (work.folder / "reviews" / names[0]).read_text(encoding="utf-8-sig").splitlines()
    assert head == "query_id,doc_id,query,title,passage,verdict"  # neither label nor score
    drawn = [tuple(line.split(",")[:2]) for line in lines]
    assert drawn == work.draw("001", 1, 1)
    assert len(drawn) == len(set(drawn)) == 3
    assert {*drawn} <= {*ASKED[:3]}
    page = (work.folder / "reviews" / names[0]).with_suffix(".html").read_text()
    assert "labelled" not in page
    assert "score" not in page.split("<article")[1].split("</article>")[0].replace(
        'data-score=""', ""
    )


def test_below_the_rule_a_package_is_revised_and_reviewed_anew(work):
    wrong = {("q1", "p2"), ("q1", "p4")}
    fill(work.path_of_package("001"), wrong)
    work.write_missing()
    review(work, "001", 1)
    work.write_missing()  # nothing was revised: no second round
    package = work.summarise()[1].packages["001"]
    assert (package.round, package.accepted, package.state) == (
        1,
        False,
        "to be revised: packages/001.csv",
    )
    assert package.reviewers == [33.33, 33.33]

    fill(work.path_of_package("001"))
    assert work.summarise()[1].packages["001"].percent == 33.33  # what was reviewed is kept
    work.write_missing()
    assert states(work)["001"] == "to be reviewed"
    review(work, "001", 2)
    verdicts, summary = work.summarise()
    assert (summary.packages["001"].round, summary.packages["001"].percent, summary.is_met) == (
        2,
        100.0,
        False,
    )
    assert verdicts == {pair: TRUTH[pair] for pair in ASKED[:3]}
    for name in ("002", "003"):
        fill(work.path_of_package(name))
        work.write_missing()
        review(work, name, 1)
    assert work.summarise()[1].is_met
    assert summary.agreement["reviewed"].pairs == 6


def test_draws_differ_by_package_round_and_reviewer(inputs, tmp_path):
    pool = inputs["pool"]
    rule = AnnotationRule(pool=pool.key, review=Review(package=9, pairs=4), seed=42)
    folder = AnnotationFolder(tmp_path / "a", pool, rule)
    draws = {
        (number, reviewer): folder.draw("001", number, reviewer)
        for number in range(1, 9)
        for reviewer in (1, 2)
    }
    assert len({*map(tuple, draws.values())}) > 8  # of 126 possible ones
    assert folder.draw("001", 1, 1) == draws[1, 1]
    drawn = [pair for draw in draws.values() for pair in draw]
    assert {*drawn} == {*ASKED}


def test_a_call_that_was_killed_goes_on(work):
    """Reviews without the file that begins their round are as if they were not there, but nothing is lost."""
    fill(work.path_of_package("001"))
    work.write_missing()
    work.path_of_submitted("001", 1).unlink()
    fill(work.path_of_review("001", 1, 1))
    assert states(work)["001"] == "to be annotated"
    work.write_missing()
    waiting = work.summarise()[1].packages["001"]
    assert (waiting.reviewers, waiting.state) == (
        [100.0, None],
        "to be reviewed: reviews/001.round1.reviewer2.csv",
    )
    work.path_of_review("001", 1, 2).unlink()
    work.write_missing()  # written anew, empty
    assert work.summarise()[1].packages["001"].state == waiting.state


def test_labels_are_those_of_the_packages_that_have_passed(make_job, inputs, work, tmp_path):
    with pytest.raises(
        UserError, match=r"none of 3 packages has passed its review \(001 to be annotated"
    ):
        relabel(make_job, tmp_path / "a-0123456789", inputs, work.folder)
    for name in NAMES:
        fill(work.path_of_package(name))
    work.write_missing()
    review(work, "002", 1)
    review(work, "003", 1)
    artifact, labels, changes = relabel(make_job, tmp_path / "b-0123456789", inputs, work.folder)
    assert labels["q1", "p2"] == 0  # of package 001
    assert (labels["q2", "p4"], labels["q2", "p1"]) == (0, 1)
    assert (changes["packages"], changes["accepted"], changes["asked_about"]) == (3, 2, 6)
    assert len(artifact.manifest.facts["warnings"]) == 1
    review(work, "001", 1)
    artifact, labels, _ = relabel(make_job, tmp_path / "c-0123456789", inputs, work.folder)
    assert labels["q1", "p2"] == 1
    assert "warnings" not in artifact.manifest.facts


def test_the_page_says_whether_the_rule_is_met(make_job, inputs, work, tmp_path):
    for name in NAMES:
        fill(work.path_of_package(name))
    work.write_missing()
    review(work, "001", 1)
    artifact, _, _ = relabel(make_job, tmp_path / "b-0123456789", inputs, work.folder)
    stages = walk([artifact, inputs["pool"]])
    page = str(
        make_environment()
        .get_template("_audits.html")
        .make_module()
        .findings(collect_audits(stages))
    )
    assert "The rule is not met: 1 of 3 packages have passed" in page
    assert "taken back" not in page  # q2's wrong label is in a package that has not passed
    assert "reviews/002.round1.reviewer1.csv" in page
    table = write_audits_csv(stages.values())
    assert "packages.001.percent,,,1.000000" in table
    assert ",rule." not in table  # a setting, no finding


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        (
            "packages/001.csv",
            "query_id,doc_id,verdict\nq1,p9,1\n",
            r"001\.csv:2: p9 for query q1 is not a pair of this",
        ),
        (
            "packages/001.csv",
            "query_id,doc_id,verdict\nq1,p1,maybe\n",
            r"001\.csv:2: verdict is 'maybe'",
        ),
        (
            "packages/001.csv",
            "query_id,doc_id,verdict,filled_by\nq1,p1,1,llm\n",
            r"filled_by names a model for p1",
        ),
        ("annotation.json", "{}", r"annotation\.json: not a rule"),
        (
            "annotation.json",
            '{"pool": "o-0", "review": {}, "seed": 1}',
            r"are of the pool o-0, not of p-0123456789",
        ),
        (
            "submitted/001.round1.csv",
            "query_id,doc_id,verdict\nq1,p1,1\n",
            r"round1\.csv: has 1 of 3 verdicts",
        ),
    ],
)
def test_a_mistake_is_one_line(inputs, work, file, text, problem):
    (work.folder / file).parent.mkdir(exist_ok=True)
    (work.folder / file).write_text(text)
    with pytest.raises(UserError, match=problem) as caught:
        read_accepted(work.folder, inputs["pool"])
    assert "\n" not in str(caught.value)


def test_a_pool_of_unlabelled_passages_has_no_packages(make_job, inputs, tmp_path):
    pool = inputs["pool"]
    out = tmp_path / "o" / "p-0123456789"
    upstream = {
        "dataset": inputs["dataset"],
        "run.0": open_artifact(tmp_path / "r" / "bm25.test-0123456789"),
    }
    pool_stage(make_job("false_negatives", out, PARAMS | {"labelled": False}, upstream))
    with pytest.raises(UserError, match="set audits.false_negatives.labelled: true"):
        AnnotationFolder(
            tmp_path / "a", open_artifact(out), AnnotationRule(pool=pool.key, review=RULE, seed=1)
        )


def test_the_command_writes_what_comes_next_and_the_labels_follow(
    make_job, make_collection, make_run, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "data")
    config = {
        "dataset": "mini",
        "datasets": {"mini": {"source": "beir", "path": "data"}},
        "audits": {
            "judges": [],
            "retriever": None,
            "systems": ["bm25"],
            "false_negatives": {
                "labelled": True,
                "top": 3,
                "queries": None,
                "review": RULE.model_dump(),
            },
        },
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    command = ["annotate", "--configfile", "mine.yaml", "--folder", "work"]
    with pytest.raises(UserError, match=r"is not made; run: snakemake .*false_negatives"):
        run_command(command)

    stage = Configuration([Path("mine.yaml")]).plan().view("audits").pool()
    data = make_collection(Path(stage.upstream["dataset"].folder), PASSAGES, QUERIES, QRELS)
    run = make_run(Path(stage.upstream["run.0"].folder), data, "test", RANKED)
    pool_stage(
        make_job(
            "false_negatives", Path(stage.folder), stage.values, {"dataset": data, "run.0": run}
        )
    )
    assert run_command(command) in (0, None)
    assert "The rule is not met: 0 of 3 packages have passed" in capsys.readouterr().out
    for name in NAMES:
        fill(tmp_path / "work/packages" / f"{name}.csv")
    run_command(command)
    for path in (tmp_path / "work/reviews").glob("*.csv"):
        fill(path)
    run_command(command)
    assert "The rule is met: 3 of 3 packages have passed" in capsys.readouterr().out
    report = (tmp_path / "work/report.csv").read_text().splitlines()
    assert report[1:] == [f"{name},3,3,1,100.00,100.00,100.00,passed" for name in NAMES]

    def planned():
        own = config["audits"]["false_negatives"] | {"sheet": "work"}
        text = yaml.safe_dump(config | {"audits": config["audits"] | {"false_negatives": own}})
        (tmp_path / "labelled.yaml").write_text(text)
        ctx = Configuration([Path("labelled.yaml")]).plan().planner.ctx
        return plan_relabelling(ctx, "mini")

    labels = planned()
    (tmp_path / "work/packages/001.csv").write_text("query_id,doc_id,verdict\n")
    assert planned().key == labels.key  # what is being worked on decides nothing yet
    os.utime(tmp_path / "work/submitted/001.round1.csv", ns=(1, 1))
    assert planned().key == labels.key
    fill(tmp_path / "work/submitted/001.round1.csv", wrong={("q1", "p1")})
    assert planned().key != labels.key

    config["audits"]["false_negatives"]["review"]["reviewers"] = 3
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(UserError, match="work: was begun with reviewers 2"):
        run_command(command)


def write_folder(folder: Path):
    """A collection in BEIR's layout, for planning alone."""
    (folder / "qrels").mkdir(parents=True)
    for name in ("corpus", "queries"):
        (folder / f"{name}.jsonl").write_text('{"_id": "q1", "text": "x"}\n')
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tq1\t1\n")
    assert (ROOT / "config/config.yaml").is_file()
