"""Papers' tables on other datasets than their own: what is searched, trained on, planned by seed, or absent."""

import json
import re
from pathlib import Path

import pytest

from tandem.config.datasets import DATASET_ENTRIES, PyDocs
from tandem.config.settings import Settings
from tandem.config.table_layouts import PrintedOn
from tandem.errors import UserError
from tandem.evaluation.layouts import Layout
from tandem.extras.plan import FullPlan
from tandem.plan.dataset_stages import StandIns, choose_dataset

ROOT = Path(__file__).parents[2]
OURS = {"msmarco", "natural-questions"}


@pytest.fixture
def plan(configured, tmp_path):
    """`plan(…)`: the default's plan with three small BEIR folders a, b and c, and with more keys."""

    def make(**more):
        datasets = {}
        for name in "abc":
            qrels = tmp_path / name / "qrels"
            qrels.mkdir(parents=True, exist_ok=True)
            for file in ("corpus.jsonl", "queries.jsonl"):
                (tmp_path / name / file).write_text(json.dumps({"_id": name, "text": name}) + "\n")
            for split in ("train", "dev", "test"):
                (qrels / f"{split}.tsv").write_text(f"{name}\t{name}\t1\n")
            datasets[name] = {"source": "beir", "path": str(tmp_path / name)}
        config = configured()
        config["datasets"] = {**config["datasets"], **datasets, **more.pop("datasets", {})}
        return FullPlan(config | more, ROOT)

    return make


def rows(plan, table):
    return {(row.system, row.column, row.seed): (row, stage) for row, stage in plan.tables[table]}


def trained_on(stage):
    """The dataset of the dual encoder behind a score."""
    return stage.upstream["run"].upstream["passages"].upstream["model"].upstream["dataset"].name


@pytest.mark.parametrize(
    ("stand_in", "line"),
    [
        ("pydoc", "stand_in: pydoc is not a dataset; did you mean pydocs?"),
        ({"msmarco": "pydoc"}, "stand_in.msmarco: pydoc is not a dataset; did you mean pydocs?"),
        ({"msmarko": "pydocs"}, "stand_in: no table is of msmarko; did you mean msmarco?"),
    ],
)
def test_a_stand_in_that_is_misspelt_is_named(plan, stand_in, line):
    with pytest.raises(UserError) as error:
        plan(stand_in=stand_in)
    assert str(error.value).startswith(line)


@pytest.mark.parametrize(
    ("stand_in", "configured", "expected"),
    [
        ("squad", "msmarco", "squad"),
        ({"msmarco": "squad"}, "pydocs", "squad"),
        ({"natural-questions": "squad"}, "pydocs", "pydocs"),
        (None, "natural-questions", "msmarco"),
        (None, "pydocs", "pydocs"),
    ],
)
def test_what_is_searched_for_a_papers_dataset(stand_in, configured, expected):
    assert choose_dataset("msmarco", stand_in, configured, OURS, configured) == expected


def test_queries_without_labels_make_no_other_collection():
    datasets = {
        "u": DATASET_ENTRIES["unlabelled"](source="unlabelled", of="titles"),
        "titles": PyDocs(source="pydocs"),
    }
    settings = Settings(dataset="u", encoder="minilm")
    printed_on = PrintedOn(dataset="msmarco", name="M", split="dev")
    layout = Layout(title="", printed_on=printed_on, same={"msmarco": ["titles"]})
    stand_ins = StandIns(settings, datasets, layout)
    assert stand_ins.collection("u") == "msmarco"
    # the paper's collection is configured, under another name
    assert stand_ins.searched("msmarco") == "u"
    assert stand_ins.changed({"train_on": "msmarco", "seed": 3}) == {"train_on": "u", "seed": 3}


def test_a_stand_in_is_searched_and_trained_on(plan):
    planned = plan(stand_in={"msmarco": "a"})
    for row, stage in planned.tables["rocketqav2/table4"]:
        assert (row.dataset, stage.dataset, trained_on(stage)) == ("a", "a", "a")
    assert {stage.dataset for _, stage in planned.tables["dureader_retrieval/table4"]} == {"pydocs"}


def test_nothing_stands_in_for_the_datasets_of_ones_own_layout(plan, tmp_path):
    layout = tmp_path / "mine.yaml"
    layout.write_text(
        "{title: Mine, columns: [{measure: RR@10}], rows: ["
        "{system: Here, run: de_bm25neg}, "
        "{system: There, run: de_bm25neg, dataset: b}, "
        "{system: From there, run: de_bm25neg, with: {train_on: b}}]}"
    )
    for stand_in in (None, "a"):
        table = rows(plan(dataset="a", tables=[str(layout)], stand_in=stand_in), "mine")
        places = {
            system: (row.dataset, trained_on(stage))
            for (system, _, _), (row, stage) in table.items()
        }
        assert places == {"Here": ("a", "a"), "There": ("b", "b"), "From there": ("a", "b")}


def test_the_default_searches_the_configured_dataset_with_the_plans_own_stages(plan):
    planned = plan()
    own = planned.planner.run("rocketqav2_8.retriever", "test", "here")
    assert (
        rows(planned, "rocketqav2/table4")["RocketQAv2 (retriever)", "", 42][1].upstream["run"]
        is own
    )


def test_zero_shot_is_trained_elsewhere_and_fine_tuned_goes_on_where_it_is_searched(plan):
    planned = plan(stand_in={"dureader-retrieval": "a", "cmedqa2": "b"})
    table = rows(planned, "dureader_retrieval/table7")
    zero, tuned = (table[f"DE w/ BM25 Neg ({how})", "", 42] for how in ("zero-shot", "fine-tuned"))
    assert (zero[1].dataset, trained_on(zero[1])) == ("b", "a")
    assert zero[0].instead == "a for dureader-retrieval"
    model = tuned[1].upstream["run"].upstream["passages"].upstream["model"]
    assert (tuned[1].dataset, model.upstream["dataset"].name, model.upstream["start"].upstream["dataset"].name) == (
        ("b", "b", "a")
    )  # fmt: skip
    assert model.upstream["start"] is zero[1].upstream["run"].upstream["passages"].upstream["model"]


@pytest.mark.parametrize(
    ("table", "stand_in", "both"),
    [
        (
            "dureader_retrieval_table7",
            None,
            "pydocs stands in for both dureader-retrieval, .* and cmedqa2, ",
        ),
        (
            "dureader_retrieval_table7",
            "a",
            "a stands in for both dureader-retrieval, .* and cmedqa2, ",
        ),
        (
            "dureader_retrieval_table7",
            {"cmedqa2": "a", "dureader-retrieval": "same"},
            "same stands in for both ",
        ),
        (
            "dureader_retrieval_table8",
            None,
            "pydocs stands in for both dureader-retrieval, .* and ccovid-news, ",
        ),
        (
            "dureader_retrieval_table9",
            None,
            "for both dureader-retrieval, .* and dureader-retrieval-en, ",
        ),
        ("out_of_domain", None, "pydocs is both trained on and searched"),
        ("cross_lingual", None, "pydocs is both trained on and searched"),
    ],
)
def test_one_dataset_in_the_place_of_two_is_refused(plan, table, stand_in, both):
    planned = plan(
        stand_in=stand_in, datasets={"same": {"source": "unlabelled", "of": "a", "share": 0.5}}
    )
    with pytest.raises(UserError, match=both) as error:
        planned.check(table)
    assert re.search(r"; it belongs to --configfile \S*config/\w+\.yaml", str(error.value))
    assert "\n" not in str(error.value)


def test_rows_that_the_configuration_does_not_tell_apart_are_marked(plan, configured):
    models = configured()["models"]
    models["rocketqav2"]["candidates"]["denoise"] = None
    # without denoised lists it needs no second visit
    models["rocketqav2_8_nodenoise"] = {"train": {"epochs": 3}}
    same, seeds = plan(models=models), plan(models=models, seeds=[42, 7])
    for planned in (same, seeds):
        marks = {
            row.system: row.same_as for row, _ in planned.tables["rocketqav2/table4"] if row.same_as
        }
        assert marks == {"w/o Denoised Instances": "RocketQAv2 (retriever)"}
    assert (
        "rocketqav2/table4: w/o Denoised Instances is the same run as RocketQAv2 (retriever) here"
        in (same.check("rocketqav2_table4"))
    )
    models["rocketqav2"]["candidates"]["denoise"] = {"by": "ce_deneg"}
    assert not [row for row, _ in plan(models=models).tables["rocketqav2/table4"] if row.same_as]


def test_a_hidden_row_marks_none_and_columns_of_two_datasets_are_each_for_themselves(
    plan, tmp_path
):
    layout = tmp_path / "mine.yaml"
    layout.write_text(
        "{title: Mine, columns: [{measure: RR@10, dataset: a}, {measure: RR@10, dataset: b}], rows: ["
        "{system: Hidden, run: bm25, hidden: true}, {system: Shown, run: bm25}, "
        "{system: Again, run: bm25, columns: [b]}, {system: Other, run: encoder, columns: [a]}]}"
    )
    table = rows(plan(dataset="a", tables=[str(layout)]), "mine")
    marks = {(system, column): row.same_as for (system, column, _), (row, _) in table.items()}
    assert marks == {
        **dict.fromkeys([("Hidden", "a"), ("Hidden", "b"), ("Shown", "a"), ("Shown", "b")], ""),
        ("Again", "b"): "Shown",
        ("Other", "a"): "",
    }


def test_columns_of_two_datasets_are_two_runs_of_a_row(plan):
    planned = plan(stand_in={"dureader-retrieval": "a", "dureader-retrieval-en": "b"})
    table = rows(planned, "dureader_retrieval/table9")
    assert [(system, column, row.dataset) for (system, column, _), (row, _) in table.items()] == [
        ("Supervised Model", "dureader-retrieval-en", "b"),
        ("Zero-shot Model", "dureader-retrieval", "a"),
        ("Zero-shot Model", "dureader-retrieval-en", "b"),
        ("Transferred Model", "dureader-retrieval-en", "b"),
    ]
    assert {
        trained_on(table["Zero-shot Model", f"dureader-retrieval{at}", 42][1]) for at in ("", "-en")
    } == {"a"}


def test_every_row_is_planned_once_a_seed_and_bm25_once(plan):
    planned = plan(seeds=[42, 7])
    table = rows(planned, "dureader_retrieval/table4")
    assert {seed for _, _, seed in table} == {42, 7}
    assert table["BM25", "", 42][1] is table["BM25", "", 7][1]
    models = [
        table["DE w/ BM25 Neg", "", seed][1].upstream["run"].upstream["passages"].upstream["model"]
        for seed in (42, 7)
    ]
    assert [model.values["train"]["seed"] for model in models] == [42, 7]
    assert {row["system"] for row in planned.tables.systems()} == {
        "BM25", "DE w/ BM25 Neg", "RocketQAv2 (retriever)",
        "Encoder, untrained", "CE w/ BM25 Neg", "CE w/ DE Neg", "RocketQAv2 (re-ranker)",
    }  # fmt: skip


def test_what_a_dataset_lacks_is_only_printed(plan):
    planned = plan(depth={"train": 1000, "dev": 50, "test": 1000}, stand_in="a")
    absent = [row for row in planned.tables.rows("rocketqav2/table2") if row.absent]
    assert [(row.system, row.column) for row in absent] == [
        ("RocketQA", "msmarco"), ("RocketQA", "natural-questions"), ("PAIR", "msmarco"), ("PAIR", "natural-questions")
    ]  # fmt: skip
    assert "unlabelled" in absent[0].absent
    score = rows(planned, "rocketqav2/table2")["BM25 (anserini)", "msmarco", 42][1]
    assert {"RR@10", "Success@50", "Success@1000", "Success@5"} <= set(score.values["measures"])


def test_a_papers_target_is_all_that_can_be_made(plan):
    planned = plan()
    files = planned.of_paper("rocketqav2")
    assert "results/tables/rocketqav2/table4.csv" in files
    assert "results/statistics/rocketqav2_table1.csv" in files
    lines = [line for line in planned.check("rocketqav2") if " is not made: " in line]
    assert [line.split(" ")[0] for line in lines] == ["rocketqav2/table2", "rocketqav2/table3"]
    assert all("\n" not in line and "raise depth.train" in line for line in lines)
    with pytest.raises(UserError, match="rocketqav2/table2 cannot be made"):
        planned.tables.files("rocketqav2/table2")
    assert "results/tables/dureader_retrieval/table10.csv" in planned.of_paper("dureader_retrieval")
    assert "results/tables/dureader_retrieval/table10.csv" not in files


def test_a_variant_trains_without_the_similar_queries_and_is_searched_like_the_rest(plan):
    table = rows(plan(dataset="a"), "dureader_retrieval/table6")
    full, without = (table[f"{how} similar queries", "", 42][1] for how in ("with", "without"))
    models = [score.upstream["run"].upstream["model"] for score in (full, without)]
    assert [model.upstream["dataset"].values["source"] for model in models] == [
        "beir",
        "dissimilar",
    ]
    assert (
        models[1].upstream["dataset"].upstream["similar"]
        is full.upstream["subset"]
        is without.upstream["subset"]
    )
    assert full.dataset == without.dataset == "a"
    others = rows(plan(dataset="a"), "dureader_retrieval/table6_others")[
        "with similar queries", "", 42
    ][1]
    assert (others.upstream["others"].digest, others.upstream["run"].digest) == (
        full.upstream["subset"].digest,
        full.upstream["run"].digest,
    )
