"""Wrong results: which queries, which sample, what stands on the sheet, and the table that a filled one makes."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tandem.cli import run as run_command
from tandem.contrib.analysis import error_table
from tandem.contrib.analysis.wrong_results import (
    ENTITY,
    OTHER,
    TYPES,
    find_wrong_queries,
    read_types,
    run,
)
from tandem.data.collection import EXCLUDED, Collection
from tandem.data.runs import iter_run
from tandem.data.splits import compute_position
from tandem.errors import UserError
from tandem.evaluation.measures import skip_excluded
from tandem.store.artifact import open_artifact

PRINTED = Path(__file__).parents[3] / "config/papers/printed.csv"


@pytest.fixture(scope="module")
def ranked(tmp_path_factory, write_ranked, dataset):
    """A run of the test queries: first the hare's passages, then their own subject's second and third one.

    The positive is a subject's second passage, so that it stands at rank 4; for the hare at rank 2.
    """
    folder = tmp_path_factory.mktemp("errors")
    lists = []
    for query in Collection(dataset).queries("test"):
        name = query.removeprefix("test-")
        docs = list(dict.fromkeys(["hare-1", "hare-2", "hare-3", f"{name}-2", f"{name}-3"]))
        lists.append((query, docs, list(range(len(docs), 0, -1))))
    out, params = folder / "tiny/bm25/bm25.test-00000000e0", {"depth": 9, "split": "test"}
    return write_ranked("bm25", out, params, {"dataset": dataset}, lists)


@pytest.fixture(scope="module")
def artifact(ranked, make_job, dataset):
    """The wrong results of six queries, three each."""
    job = make_job(
        "errors",
        ranked.folder.parents[1] / "errors/bm25.test-00000000e1",
        {"split": "test", "top": 3, "queries": 6},
        {"dataset": dataset, "run": ranked},
    )
    run(job)
    return open_artifact(job.out)


def rows_of(path):
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_queries_without_a_positive_at_the_top_are_sampled_by_their_hash(artifact, dataset):
    wrong = [query for query in Collection(dataset).queries("test") if query != "test-hare"]
    lowest = sorted(wrong, key=compute_position)[:6]
    rows = rows_of(artifact.path("sheet.csv"))
    assert len(rows) == 18
    assert {row["query_id"] for row in rows} == set(lowest)
    summary = json.loads(artifact.path("summary.json").read_text())
    assert {key: summary[key] for key in ("queries", "without_positive", "percent", "sampled", "pairs")} == {
        "queries": 20, "without_positive": 19, "percent": 95.0, "sampled": 6, "pairs": 18
    }  # fmt: skip
    assert sum(summary["guesses"].values()) == 18
    assert summary["guesses"][ENTITY] == 18  # each asks for another animal than the hare


def test_a_query_without_any_result_counts_and_has_no_row(
    ranked, write_ranked, make_job, dataset, tmp_path
):
    lists = [
        (query, docs, scores)
        for query, docs, scores in iter_run(ranked, dataset)
        if query != "test-otter"
    ]
    params = {"depth": 9, "split": "test"}
    shorter = write_ranked(
        "bm25", tmp_path / "bm25/bm25-0123456789", params, {"dataset": dataset}, lists
    )
    params = {"split": "test", "top": 3, "queries": 20}
    job = make_job(
        "errors", tmp_path / "errors/e-0123456789", params, {"dataset": dataset, "run": shorter}
    )
    run(job)
    summary = json.loads((job.out / "summary.json").read_text())
    assert {key: summary[key] for key in ("without_positive", "percent", "sampled", "pairs")} == {
        "without_positive": 19, "percent": 95.0, "sampled": 18, "pairs": 54
    }  # fmt: skip


def test_a_result_that_judgements_exclude_has_no_rank(ranked, dataset):
    judged = {"test-otter": {"otter-2": 1}}
    run = list(iter_run(ranked, dataset))
    [wrong] = find_wrong_queries(run, 3, judged, {"test-otter"})
    assert ([doc for doc, _ in wrong.top], wrong.positives) == (
        ["hare-1", "hare-2", "hare-3"],
        {"otter-2": 4},
    )
    judged["test-otter"]["hare-1"] = EXCLUDED
    assert list(find_wrong_queries(skip_excluded(run, judged), 3, judged, {"test-otter"})) == []


def test_a_query_is_not_wrong_for_its_own_id_where_the_score_ignores_it(
    make_dataset, documents, write_ranked, make_job, tmp_path
):
    dataset = make_dataset(
        tmp_path / "dataset/own-0123456789", [("test-otter", "", "how it swims"), *documents]
    )
    lists = [
        (f"test-{name}", [f"test-{name}", "bat-1", f"{name}-2"], [3, 2, 1])
        for name in ("otter", "hare")
    ]
    lists[1][1][0] = "bat-2"
    params = {"depth": 3, "split": "test"}
    ranked = write_ranked(
        "bm25", tmp_path / "bm25/bm25-0123456789", params, {"dataset": dataset}, lists
    )
    wrong = {}
    for ignored in (False, True):
        params = {"split": "test", "top": 2, "queries": 20, "ignore_identical_ids": ignored}
        job = make_job(
            "errors",
            tmp_path / f"errors/{ignored}-0123456789",
            params,
            {"dataset": dataset, "run": ranked},
        )
        run(job)
        wrong[ignored] = {row["query_id"] for row in rows_of(job.out / "sheet.csv")}
    assert wrong == {False: {"test-otter", "test-hare"}, True: {"test-hare"}}


def test_passages_that_the_corpus_lacks_have_ranks_and_no_row(
    write_ranked, make_job, dataset, tmp_path
):
    lists = [("test-otter", ["gone-1", "otter-1", "gone-2", "otter-2"], [4, 3, 2, 1])]
    params = {"depth": 4, "split": "test"}
    ranked = write_ranked(
        "imported",
        tmp_path / "imported/theirs-0123456789",
        params,
        {"dataset": dataset},
        lists,
        keep_absent=True,
    )
    job = make_job(
        "errors",
        tmp_path / "errors/e-0123456789",
        {"split": "test", "top": 3, "queries": 20},
        {"dataset": dataset, "run": ranked},
    )
    run(job)
    rows = [
        (row["query_id"], row["doc_id"], row["rank"], row["positive_rank"])
        for row in rows_of(job.out / "sheet.csv")
    ]
    assert rows == [("test-otter", "otter-1", "2", "4")]


def test_a_row_shows_texts_ranks_the_guess_and_leaves_the_annotator_s_columns_empty(artifact):
    row = next(row for row in rows_of(artifact.path("sheet.csv")) if row["rank"] == "2")
    name = row["query_id"].removeprefix("test-")
    assert (row["doc_id"], row["positive_rank"]) == ("hare-2", "4")
    assert row["query"] == f"how does the {name} behave"
    assert f"the {name} " in row["positive"]
    assert (row["guess"], row["why"]) == (ENTITY, f"no {name}")
    assert (row["type"], row["note"]) == ("", "")
    assert pq.read_metadata(artifact.path("pairs.parquet")).num_rows == 18


def test_no_wrong_query_is_one_line(ranked, make_job, dataset, tmp_path):
    job = make_job(
        "errors",
        tmp_path / "e-0000000000",
        {"split": "test", "top": 5, "queries": 6},
        {"dataset": dataset, "run": ranked},
    )
    with pytest.raises(
        UserError, match=r"every query has a positive in the top 5 of .*lower analysis\.errors\.top"
    ):
        run(job)


def test_queries_without_a_result_are_said_to_be_why_nothing_is_wrong(
    ranked, write_ranked, make_job, dataset, tmp_path
):
    lists = list(iter_run(ranked, dataset))  # of 20 queries, each with its positive in the top 5
    for number, (left, why) in enumerate(
        [
            (lists[:17], r"3 of 20 queries have no result, and all others have .* in the top 5"),
            ([], "none of the 20 queries has a result"),
        ]
    ):
        run_params = {"depth": 9, "split": "test"}
        out = tmp_path / f"bm25/{number}-0123456789"
        shorter = write_ranked("bm25", out, run_params, {"dataset": dataset}, left)
        params = {"split": "test", "top": 5, "queries": 6}
        inputs = {"dataset": dataset, "run": shorter}
        with pytest.raises(UserError, match=why):
            run(make_job("errors", tmp_path / f"errors/{number}-0123456789", params, inputs))


@pytest.fixture
def filled(artifact, tmp_path):
    """`filled({row: type})`: the sheet with some types filled in, saved as a German spreadsheet does."""

    def make(types, delimiter=";"):
        rows = rows_of(artifact.path("sheet.csv"))
        for at, label in types.items():
            rows[at]["type"] = label
        with open(tmp_path / "filled.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
        return tmp_path / "filled.csv"

    return make


def test_a_filled_sheet_is_read_back(artifact, filled):
    path = filled({0: "entity", 1: "ENTITY MISMATCH", 5: " other "})
    assert read_types(path, artifact) == [ENTITY, ENTITY, OTHER]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: text.replace(";entity", ";entitie", 1),
            r"filled\.csv:2: type is 'entitie'; allowed are entity, ",
        ),
        (
            lambda text: text.replace("hare-1", "hare-9", 1),
            r"filled\.csv:2: hare-9 for query test-\w+ is not, or twice",
        ),
        (
            lambda text: text.replace("type;", "kind;", 1),
            r"filled\.csv:1: no column type \(found: query_id, ",
        ),
    ],
)
def test_a_mistake_on_the_sheet_is_one_line(artifact, filled, change, message):
    path = filled({0: "entity"})
    path.write_text(change(path.read_text()))
    with pytest.raises(UserError, match=message):
        read_types(path, artifact)


def table(artifact, out, *more):
    run_command(
        [
            "error-table",
            "--errors",
            str(artifact.folder),
            "--printed",
            str(PRINTED),
            "--out",
            str(out),
            *more,
        ]
    )
    return rows_of(out)


def test_table_10_from_a_filled_sheet(artifact, filled, tmp_path):
    types = {0: "entity", 1: "numeral", 2: "other", 3: "other"}
    rows = table(artifact, tmp_path / "t/table10.csv", "--sheet", str(filled(types, ",")))
    lines = {(row["category"], row["type"]): row for row in rows}
    assert len(rows) == 8 + 3 + 1
    assert lines["Others", "Others"] == {
        "category": "Others", "type": "Others", "printed": "8.2", "printed_pairs": "41.0", "pairs": "2",
        "share": "50.0000", "difference": "41.8000",
    }  # fmt: skip
    salient = lines["Salient Phrase Mismatch", ""]
    assert (salient["printed"], salient["pairs"], salient["share"]) == ("53.4", "2", "50.0000")
    assert (lines["", ""]["printed"], lines["", ""]["printed_pairs"], lines["", ""]["pairs"]) == (
        "100.0",
        "500.0",
        "4",
    )
    page = (tmp_path / "t/table10.md").read_text()
    assert "Own: 4 pairs, annotated." in page
    assert "The printed shares add up to 100 %; all are whole numbers of 500 pairs." in page
    assert (
        r"Salient Phrase Mismatch, all & 53.4 & 267 & 2 & 50.0 & \ensuremath{-}3.4 \\"
        in (tmp_path / "t/table10.tex").read_text()
    )
    html = (tmp_path / "t/table10.html").read_text()
    assert "+41.8" in html
    assert "−3.4" in html  # a minus, as in every table


def test_without_a_sheet_the_table_says_that_it_guesses(artifact, tmp_path):
    rows = table(artifact, tmp_path / "table10.csv")
    assert rows[0]["pairs"] == "18"
    assert "guessed from words, not annotated" in (tmp_path / "table10.md").read_text()


def test_an_empty_sheet_makes_no_table(artifact, filled, tmp_path):
    with pytest.raises(UserError, match=r"filled\.csv: no row has a type yet"):
        table(artifact, tmp_path / "table10.csv", "--sheet", str(filled({})))


def test_printed_shares_that_cannot_be_counts_are_told():
    printed = error_table.read_printed_shares(PRINTED)
    assert list(printed) == list(TYPES)
    assert list(printed.values()) == [39, 5, 9.4, 1, 1.6, 21, 14.8, 8.2]
    sentence = error_table.check_arithmetic({**printed, ENTITY: 39.1})
    assert sentence == f"The printed shares add up to 100.1 %; no whole number: {ENTITY}."
