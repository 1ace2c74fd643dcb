"""`report --compare`: the tables of two configurations beside each other."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from table_plans import make_table

from tandem.cli import run
from tandem.errors import UserError
from tandem.store.artifact import open_artifact
from tandem.store.lineage import input_of


@pytest.fixture
def tables(four_queries, tmp_path, monkeypatch):
    """Of the default: S is Old, T is Same, U is Old; of mine.yaml: S is New, T is Same, V is Old."""
    monkeypatch.chdir(tmp_path)
    scores = {row["system"].split()[0]: row["scores"] for row in four_queries.rows}
    default, mine = {"S": "Old", "T": "Same", "U": "Old"}, {"S": "New", "T": "Same", "V": "Old"}
    for folder, systems in (("results", default), ("results/mine", mine)):
        rows = [
            {"system": row, "first_stage": "", "scores": scores[name]}
            for row, name in systems.items()
        ]
        layout = {"title": "Two", "columns": [{"measure": "RR@10"}]}
        layout["rows"] = [{"system": row["system"], "run": "bm25"} for row in rows]
        Path("two.yaml").write_text(yaml.safe_dump(layout))
        make_table(tmp_path, Path("two.yaml"), json.dumps(rows), Path(folder, "tables/two.csv"))


def test_values_differences_and_p_by_hand(tables, capsys):
    # Old finds the passage at rank 2 and New at rank 1, for each of four queries: 2 of 16 patterns are as far apart
    assert run(["report", "--compare", "config", "mine.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = {line.split()[0]: line.split()[1:] for line in lines}
    assert cells["S"] == ["–", "50.00", "100.00", "+50.00", "0.125"]
    assert cells["T"] == ["–", "50.00", "50.00", "+0.00", "–"]  # the same run
    assert "Only in config: U." in lines
    assert "Only in mine.yaml: V." in lines


# Of two seeds one gains 1/2 on every query and the other nothing: the mean square of seeds is 4 x 2 x (1/4)^2, 1/2, all
# others are 0; t = 1/4 / sqrt(1/2 / 8) = 1 with one degree of freedom: p = 1/2 (of queries alone 1/8).
@pytest.mark.parametrize(
    ("default", "mine", "cells"),
    [
        ({0: "Old"}, {0: "New", 1: "Old"}, ["50.00", "75.00", "+25.00", "0.500"]),
        # of a third seed of one configuration nothing is known of the other
        (
            {0: "Old", 1: "Old"},
            {0: "New", 1: "Old", 2: "New"},
            ["50.00", "83.33", "+33.33", "0.500"],
        ),
        # wherever it stands
        (
            {0: "New", 1: "Old"},
            {7: "Same", 0: "New", 1: "New"},
            ["75.00", "83.33", "+8.33", "0.500"],
        ),
    ],
)
def test_the_chance_of_seeds_counts_as_in_a_table(
    tables, four_queries, tmp_path, capsys, default, mine, cells
):
    scores = {row["system"].split()[0]: row["scores"] for row in four_queries.rows}
    for folder, systems in (("results", default), ("results/mine", mine)):
        rows = [
            {"system": "S", "scores": scores[name], "seed": seed} for seed, name in systems.items()
        ]
        layout = {
            "title": "Two",
            "columns": [{"measure": "RR@10"}],
            "rows": [{"system": "S", "run": "bm25"}],
        }
        Path("two.yaml").write_text(yaml.safe_dump(layout))
        make_table(tmp_path, Path("two.yaml"), rows, Path(folder, "tables/two.csv"))
    assert run(["report", "--compare", "config", "mine"]) == 0
    shown = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert shown["S"] == ["–", *cells]


def test_a_dataset_that_stands_in_for_two_counts_each_seed_once(
    tables, four_queries, tmp_path, capsys
):
    scores = {row["system"].split()[0]: row["scores"] for row in four_queries.rows}
    columns = [{"measure": "RR@10", "dataset": name} for name in ("msmarco", "nq")]
    layout = {"title": "Two", "columns": columns, "rows": [{"system": "S", "run": "bm25"}]}
    Path("two.yaml").write_text(yaml.safe_dump(layout))
    systems = {"results": ["Old", "Old"], "results/mine": ["New", "Old"]}
    for folder, names in systems.items():
        rows = []
        for column in ("msmarco", "nq"):
            for seed, name in enumerate(names):
                rows.append({"system": "S", "scores": scores[name], "seed": seed, "column": column})
        make_table(tmp_path, Path("two.yaml"), rows, Path(folder, "tables/two.csv"))
    assert run(["report", "--compare", "config", "mine"]) == 0
    shown = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    # two seeds, as above, in each column
    assert shown["S"] == ["–", *["50.00", "75.00", "+25.00", "0.500"] * 2]


def test_counts_are_compared_as_they_are(counted, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    layout = (
        "{title: T, columns: [{measure: NumRet}, {measure: RR@10}], rows: [{system: S, run: a}]}"
    )
    Path("two.yaml").write_text(layout)
    for folder, row in zip(("results", "results/mine"), counted, strict=True):
        rows = [{**row, "system": "S"}]
        make_table(tmp_path, Path("two.yaml"), rows, Path(folder, "tables/two.csv"))
    assert run(["report", "--compare", "config", "mine"]) == 0
    shown = capsys.readouterr().out
    [line] = [line for line in shown.splitlines() if line.startswith("S ")]
    assert line.split()[2:5] == ["3.00", "2.00", "−1.00"]
    assert "Values in percent (NumRet as they are); Δ is" in shown


def test_p_of_few_seeds_of_a_training_is_warned_of(world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scores = {row["system"]: row["scores"] for row in world.rows}
    pairs = {"S": ("DE w/ BM25 Neg", "RocketQAv2 (retriever)"), "B": ("BM25", "Encoder, untrained")}
    for name, warned in (("S", 1), ("B", 0)):
        for folder, system in zip(("results", "results/mine"), pairs[name], strict=True):
            layout = {
                "title": "Two",
                "columns": [{"measure": "RR@10"}],
                "rows": [{"system": name, "run": "bm25"}],
            }
            Path("two.yaml").write_text(yaml.safe_dump(layout))
            rows = [{"system": name, "scores": scores[system]}]
            make_table(tmp_path, Path("two.yaml"), rows, Path(folder, "tables/two.csv"))
        assert run(["report", "--compare", "config", "mine"]) == 0
        assert capsys.readouterr().out.count("Warning: ") == warned


def test_a_dataset_that_was_edited_in_between_is_warned_of(tables, four_queries, tmp_path, capsys):
    """The same queries with other labels are tested against each other, and the reader is told."""
    assert run(["report", "--compare", "config", "mine"]) == 0
    assert "Warning: " not in capsys.readouterr().out
    data = input_of(open_artifact(Path(four_queries.rows[0]["scores"])), "dataset")

    def edited(draft):
        for name in ("corpus.parquet", "queries.parquet", "statistics.json"):
            shutil.copy(data.path(name), draft.path(name))
        qrels = pq.read_table(data.path("qrels.parquet")).to_pylist()
        qrels[0]["doc_id"] = "b"
        pq.write_table(pa.Table.from_pylist(qrels), draft.path("qrels.parquet"))

    other = four_queries.make("dataset", "toy", {"source": "edited"}, edited)
    lists = [(f"q{n}", ["b", "a", "c"], [3, 2, 1]) for n in range(4)]
    four_queries.score("S", "", four_queries.make("bm25", "s", {}, lists, dataset=other), other)
    rows = [{"system": "S", "scores": four_queries.rows[-1]["scores"]}]
    layout = {
        "title": "Two",
        "columns": [{"measure": "RR@10"}],
        "rows": [{"system": "S", "run": "bm25"}],
    }
    Path("two.yaml").write_text(yaml.safe_dump(layout))
    make_table(tmp_path, Path("two.yaml"), rows, Path("results/mine/tables/two.csv"))
    assert run(["report", "--compare", "config", "mine"]) == 0
    words = "Warning: config and mine have other passages, queries or labels of toy test; a difference may come"
    assert words in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["mine+k1", "mine.yaml+k1.yaml", "k1.5", "k1.5.yaml"])
def test_names_of_several_files_and_with_dots_are_folders(tables, name, capsys):
    Path("results/mine").rename(Path("results", name.replace(".yaml", "")))
    assert run(["report", "--compare", "config", name]) == 0
    assert f"Only in {name}: V." in capsys.readouterr().out.splitlines()


def test_a_plus_may_be_part_of_a_files_own_name(tables, capsys):
    Path("results/mine").rename("results/mine~2Bk1")
    Path("mine+k1.yaml").touch()
    assert run(["report", "--compare", "config", "mine+k1.yaml"]) == 0
    assert "Only in mine+k1.yaml: V." in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["mine", "other"],
            "--compare: results/other/tables has no tables; `tandem run` makes them",
        ),
        (
            ["mine", "third"],
            "--compare: mine and third have no table in common: mine has two, third has three",
        ),
    ],
)
def test_mistakes_are_a_line(tables, words, message):
    third = Path("results/third/tables/three.json")
    third.parent.mkdir(parents=True)
    third.write_text("{}")
    with pytest.raises(UserError, match=message):
        run(["report", "--compare", *words])
