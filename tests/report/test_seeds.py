"""Several seeds: mean and standard deviation by hand, tests on per-query means, a system that no seed touches."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_plans import make_table

from tandem.errors import UserError
from tandem.report.results import read_table

LAYOUT = """
title: Seeds
baseline: {system: BM25}
columns: [{measure: RR@10}]
rows:
  - {system: BM25, run: bm25}
  - {system: DE, run: de}
"""
# Rank of the relevant passage by query: BM25 always 2; the dual encoder by seed.
RANKS = {
    ("BM25", 0): [2, 2, 2, 2],
    ("DE", 1): [1, 1, 2, 2],
    ("DE", 2): [1, 1, 1, 2],
    ("DE", 3): [1, 1, 1, 1],
}


@pytest.fixture
def rows(empty_world):
    """`rows(seed, …)`: rows of BM25, the same scores for every seed, and of the dual encoder of each."""
    world = empty_world

    def files(draft):
        ids = [f"q{n}" for n in range(4)]
        pq.write_table(
            pa.table({"doc_id": ["a", "b"], "title": ["", ""], "text": ["a", "b"]}),
            draft.path("corpus.parquet"),
        )
        pq.write_table(
            pa.table({"query_id": ids, "text": ids, "split": ["test"] * 4}),
            draft.path("queries.parquet"),
        )
        columns = {"query_id": ids, "doc_id": ["a"] * 4, "relevance": pa.array([1] * 4, pa.int32())}
        pq.write_table(pa.table({**columns, "split": ["test"] * 4}), draft.path("qrels.parquet"))
        draft.path("statistics.json").write_text("{}")

    data = world.make("dataset", "toy", {}, files)

    def make(*seeds, trained=True):
        folders = {}
        for (system, seed), ranks in RANKS.items():
            lists = [
                (f"q{n}", ["a", "b"] if rank == 1 else ["b", "a"], [2, 1])
                for n, rank in enumerate(ranks)
            ]
            inputs = {"dataset": data}
            if trained and seed:
                inputs["model"] = world.make("model", "de", {"seed": seed}, dataset=data)
            run = world.make("bm25", system.lower(), {"seed": seed}, lists, **inputs)
            folders[system, seed] = world.score(system, "", run, data).folder
        scores = [("BM25", seed, folders["BM25", 0]) for seed in seeds]
        scores += [("DE", seed, folders["DE", seed]) for seed in seeds]
        return [
            {
                "system": system,
                "first_stage": "",
                "scores": str(folder),
                "dataset": "toy",
                "seed": seed,
            }
            for system, seed, folder in scores
        ]

    return make


def table(tmp_path, rows, layout=LAYOUT):
    (tmp_path / "layout.yaml").write_text(layout)
    out = tmp_path / "t.csv"
    make_table(tmp_path, tmp_path / "layout.yaml", rows, out)
    return read_table(out.with_suffix(".json")), out


def test_mean_and_deviation_over_seeds(tmp_path, rows):
    filled, out = table(tmp_path, rows(1, 2, 3))
    bm25, de = (row.cells[0] for row in filled.rows)
    # Means over four queries: 75, 87.5 and 100; their mean is 87.5, their deviation (n - 1) 12.5.
    assert (de.value, de.sd, de.seeds) == (87.5, 12.5, [75.0, 87.5, 100.0])
    assert (bm25.value, bm25.sd, bm25.seeds) == (50.0, None, [50.0, 50.0, 50.0])
    assert filled.seeds == [1, 2, 3]
    text = out.with_suffix(".md").read_text()
    assert "**87.50 ± 12.50 " in text
    assert "| 50.00 " in text
    assert "over the seeds 1, 2, 3" in text
    assert "87.50 ± 12.50" in out.with_suffix(".html").read_text()
    assert r"87.50 \ensuremath{\pm} 12.50" in out.with_suffix(".tex").read_text()
    assert "12.5000,75.0000 87.5000 100.0000," in out.read_text()


def test_tests_are_on_per_query_means(tmp_path, rows):
    de = table(tmp_path, rows(1, 2, 3))[0].rows[1].cells[0]
    # Per-query differences of the means, in sixths: 3, 3, 2, 1. Two of 16 sign patterns reach 9.
    assert (de.change, de.p) == (37.5, 0.125)
    alone = table(tmp_path, rows(1))[0].rows[1].cells[0]
    # two queries differ: 2 of 4 patterns
    assert (alone.value, alone.sd, alone.p) == (75.0, None, 0.5)


@pytest.mark.parametrize(("seeds", "warned"), [((1,), 1), ((1, 2), 1), ((1, 2, 3), 0)])
def test_p_of_few_seeds_of_a_training_is_warned_of(tmp_path, rows, seeds, warned):
    assert table(tmp_path, rows(*seeds, trained=False))[0].warnings == []
    read, out = table(tmp_path, rows(*seeds))
    assert len(read.warnings) == warned
    for suffix in (".md", ".html", ".tex"):
        assert out.with_suffix(suffix).read_text().count("Warning: ") == warned


def test_a_training_that_no_seed_touches_is_one_however_many_seeds_are_named(tmp_path, rows):
    own = rows(1, 2, 3)
    (first, *_) = [row["scores"] for row in own if row["system"] == "DE"]
    fixed = [{**row, "scores": first} if row["system"] == "DE" else row for row in own]
    (warning,) = table(tmp_path, fixed)[0].warnings
    assert warning.startswith("p is of one training of a system")


def test_a_table_without_p_has_no_such_warning(tmp_path, rows):
    layout = LAYOUT.replace("baseline: {system: BM25}\n", "")
    assert table(tmp_path, rows(1, 2), layout)[0].warnings == []


def test_a_seed_that_one_row_lacks_is_told(tmp_path, rows):
    with pytest.raises(UserError, match="DE has no scores of seed 2; every row needs every seed"):
        table(tmp_path, rows(1, 2)[:-1])


def test_every_seeds_run_is_in_the_lineage(tmp_path, rows):
    filled, out = table(tmp_path, rows(1, 2))
    de = filled.rows[1]
    assert [run.seed for run in de.lineage] == [1, 2]
    assert [run.run for run in de.lineage] == de.cells[0].stages
    page = out.with_suffix(".html").read_text()
    assert all(run.run in page for run in de.lineage)
