"""The explorer's data: which queries, which passages, and how much of them."""

import json

from toy_world import World

from tandem.data import tables
from tandem.data.collection import EXCLUDED
from tandem.data.runs import iter_run
from tandem.evaluation.scores import run as score
from tandem.extras.report import compare as module
from tandem.extras.report.charts import read_vega
from tandem.extras.report.compare import collect_page_data, find_ranks, select_queries
from tandem.stages import declaration
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import Job, load
from tandem.store.lineage import input_of


def systems(artifact_of):
    return {
        ("BM25", ""): artifact_of("BM25"),
        ("CE w/ DE Neg", "BM25"): artifact_of("CE w/ DE Neg", "BM25"),
    }


def test_choice_depends_on_ids_only():
    queries = [f"q{n}" for n in range(1000)]
    assert len(select_queries(queries)) == 300
    assert set(select_queries(queries)) == set(select_queries(queries[::-1]))
    assert select_queries(queries) == [
        query for query in queries if query in set(select_queries(queries))
    ]
    assert select_queries(queries[:10]) == queries[:10]
    assert set(select_queries(queries[:500], 20)) >= set(select_queries(queries, 20)) & set(
        queries[:500]
    )


def test_content(artifact_of):
    data = collect_page_data(systems(artifact_of))
    assert data["systems"] == ["BM25", "CE w/ DE Neg on BM25"]
    assert data["measures"] == ["RR@10", "nDCG@10", "Success@1", "Success@50", "R@50"]
    assert data["total"] == data["shown"] == len(data["queries"]) == 24
    for query in data["queries"]:
        assert [len(top) for top in query["top"]] == [10, 10]
        (relevant,) = query["relevant"]
        for top, values, (rank,) in zip(query["top"], query["values"], query["ranks"], strict=True):
            assert values[0] == (round(1 / (top.index(relevant) + 1), 4) if relevant in top else 0)
            assert rank == top.index(relevant) + 1 if relevant in top else rank is None or rank > 10
    assert len({passage[0] for passage in data["passages"]}) == len(data["passages"])


def test_a_result_that_judgements_exclude_has_no_rank(artifact_of):
    run, dataset = (input_of(artifact_of("BM25"), role) for role in ("run", "dataset"))
    query, docs, _ = next(iter_run(run, dataset))
    ranks = find_ranks(
        run, dataset, {query: {docs[0]: EXCLUDED, docs[11]: 1}}, {query: {docs[11]: 1}}
    )
    assert list(ranks[query].items()) == [
        *zip(docs[1:11], range(1, 11), strict=True),
        (docs[11], 11),
    ]


def test_the_query_s_own_id_has_no_rank_where_the_score_ignores_it(
    make_dataset, documents, write_ranked, make_job, tmp_path
):
    dataset = make_dataset(
        tmp_path / "dataset/own-0123456789", [("test-otter", "", "how it swims"), *documents]
    )
    lists = [("test-otter", ["test-otter", "hare-1", "otter-2"], [3, 2, 1])]
    params = {"depth": 3, "split": "test"}
    run = write_ranked(
        "bm25", tmp_path / "bm25/bm25-0123456789", params, {"dataset": dataset}, lists
    )
    for ignored, rank in ((False, 3), (True, 2)):
        params = {"measures": ["RR@10"], "split": "test", "ignore_identical_ids": ignored}
        job = make_job(
            "score", tmp_path / f"score/{rank}-0123456789", params, {"dataset": dataset, "run": run}
        )
        score(job)
        query = next(
            q
            for q in collect_page_data({("BM25", ""): open_artifact(job.out)})["queries"]
            if q["id"] == "test-otter"
        )
        assert (query["values"], query["ranks"]) == ([[round(1 / rank, 4)]], [[rank]])


def test_ranks_below_the_top_are_known_and_stand_above_those_that_are_none(artifact_of):
    data = collect_page_data(systems(artifact_of))
    ranks = [rank for query in data["queries"] for (rank,) in query["ranks"] if rank]
    assert max(ranks) > 10
    assert data["none"] == 2 * max(ranks)
    y = data["movement"]["encoding"]["y"]
    assert y["scale"]["domain"] == [1, data["none"]]
    assert y["axis"]["values"][:4] == [1, 2, 5, 10]
    assert y["axis"]["values"][-1] == data["none"]


def test_bounds(artifact_of, monkeypatch):
    monkeypatch.setattr(module, "MOST_CHARACTERS", 50)
    short = collect_page_data(systems(artifact_of))
    assert max(len(text) for _, _, text in short["passages"]) <= 51
    monkeypatch.setattr(module, "BUDGET", 3000)
    few = collect_page_data(systems(artifact_of))
    assert 0 < few["shown"] < 24
    spent = sum(len("".join(passage).encode()) for passage in few["passages"])
    assert spent <= 3000
    assert few["queries"][: few["shown"]] == short["queries"][: few["shown"]]
    # the others have their values and no passages; how many there are is bounded by how many numbers that is
    assert len(few["queries"]) == 24
    assert all(set(query) == {"id", "text", "values"} for query in few["queries"][few["shown"] :])
    monkeypatch.setattr(module, "NUMBERS", 2 * 5 * 10)
    assert len(collect_page_data(systems(artifact_of))["queries"]) == 10


def test_questions_without_qrels_show_the_passages_that_hold_an_answer(tmp_path):
    world = World(tmp_path)

    def files(draft):
        passages = [(f"d{n}", "", f"passage {n} {'krill' * (n % 2)}") for n in range(5)]
        questions = [(f"q{n}", f"question {n}", "test") for n in range(3)]
        answers = [(f"q{n}", ["krill"]) for n in range(3)]
        for name, rows, schema in (
            ("corpus", passages, tables.CORPUS_SCHEMA),
            ("queries", questions, tables.QUERIES_SCHEMA),
            ("qrels", [], tables.QRELS_SCHEMA),
            ("answers", answers, tables.ANSWERS_SCHEMA),
        ):
            tables.write_batches(
                draft.path(f"{name}.parquet"), tables.make_batches(rows, schema), schema
            )
        write_json(draft.path("statistics.json"), {})

    data, scored = world.make("dataset", "toy", {}, files), {}
    for system, top in (("A", ["d0", "d1", "d2"]), ("B", ["d3", "d0", "d2"])):
        lists = [(f"q{n}", top, [3, 2, 1]) for n in range(3)]
        run = world.make("bm25", system, {"split": "test"}, lists, dataset=data)
        params = {"match": "string", "depth": 3, "split": "test", "title": False}
        load(declaration("match").run)(
            Job(
                "match",
                tmp_path / f"match/{system}-0123456789",
                params,
                {"dataset": data, "run": run},
            )
        )
        inputs = {
            "dataset": data,
            "run": run,
            "match": open_artifact(tmp_path / f"match/{system}-0123456789"),
        }
        score(
            Job(
                "score",
                tmp_path / f"score/{system}-0123456789",
                {"measures": ["RR@3"], "split": "test"},
                inputs,
            )
        )
        scored[system, ""] = open_artifact(tmp_path / f"score/{system}-0123456789")
    page = collect_page_data(scored)
    for query in page["queries"]:
        assert {page["passages"][at][0] for at in query["relevant"]} == {"d1", "d3"}
        assert [dict(zip(query["relevant"], ranks, strict=True)) for ranks in query["ranks"]] == [
            {at: {"d1": 2}.get(page["passages"][at][0]) for at in query["relevant"]},
            {at: {"d3": 1}.get(page["passages"][at][0]) for at in query["relevant"]},
        ]


def test_seven_thousand_queries_stay_small():
    # What grows with the queries is a line each: id, text, and values of seven systems and six measures.
    line = {"id": "1234567", "text": "x" * 160, "values": [[0.1234] * 6] * 7}
    texts, numbers = module.BUDGET * 1.2, 7000 * len(json.dumps(line, separators=(",", ":")))
    assert module.NUMBERS >= 7 * module.MOST_MEASURES * 7000
    assert texts + numbers + len(read_vega()) < 16_000_000
