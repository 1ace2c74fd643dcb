"""Tables of one's own layouts: what their rows and columns are planned as, and which systems the report compares."""

from pathlib import Path

import pytest
import yaml

from tandem.errors import UserError
from tandem.extras.plan import FullPlan

ROOT = Path(__file__).parents[2]
BM25 = {"system": "BM25", "run": "bm25"}
SLOW = {"system": "Slow", "run": "de_bm25neg", "with": {"models.de_bm25neg.train.lr": 1e-6}}


@pytest.fixture
def plan(configured, tmp_path):
    """`plan({name: layout, …}, key=value, …)`: the default's plan with these tables and keys."""

    def make(layouts, **more):
        for name, layout in layouts.items():
            (tmp_path / f"{name}.yaml").write_text(
                yaml.safe_dump({"title": name, "rows": [BM25], **layout})
            )
        return FullPlan(
            configured() | {"tables": [str(tmp_path / f"{name}.yaml") for name in layouts]} | more,
            ROOT,
        )

    return make


def shown(planned, name="mine"):
    return {f"{row.system} | {row.first_stage}": stage for row, stage in planned.tables[name]}


def compared(planned):
    return [
        (row["system"], row["scores"].split("/")[-1].partition(".")[0])
        for row in planned.tables.systems()
    ]


def test_a_row_is_made_from_the_row_that_it_calls_its_first_stage(plan):
    """Else the table would test it against a list that it does not re-rank."""
    rows = [
        BM25,
        {"system": "DE", "run": "de_bm25neg"},
        {"system": "CE", "first_stage": "DE", "run": "bm25+ce_bm25neg"},
    ]
    with pytest.raises(
        UserError, match=r"mine.yaml: CE re-ranks bm25\.test, its first_stage is de_bm25neg\.test"
    ):
        plan({"mine": {"rows": rows}})
    rows[2]["first_stage"] = "BM25"
    assert len(plan({"mine": {"rows": rows}}).tables["mine"]) == 3


@pytest.mark.parametrize(
    "layout",
    [
        {"rows": [{**BM25, "dataset": "squat"}]},
        {"columns": [{"measure": "RR@10", "dataset": "squat"}]},
    ],
    ids=["row", "column"],
)
def test_an_unknown_dataset_is_told_with_the_layout_that_names_it(plan, layout):
    with pytest.raises(
        UserError, match=r"mine.yaml: dataset: squat is unknown; did you mean squad"
    ):
        plan({"mine": layout})


def test_a_first_stage_that_re_ranks_itself_is_looked_at_too(plan):
    rows = [
        BM25,
        {"system": "CE", "first_stage": "BM25", "run": "bm25+ce_bm25neg"},
        {"system": "Again", "first_stage": "CE", "run": "de_bm25neg+ce_deneg"},
    ]
    with pytest.raises(
        UserError,
        match=r"Again re-ranks de_bm25neg\.test, its first_stage is bm25\+ce_bm25neg\.test",
    ):
        plan({"mine": {"rows": rows}})
    rows[2]["run"] = "bm25+ce_bm25neg+ce_deneg"
    assert len(plan({"mine": {"rows": rows}}).tables["mine"]) == 3


def test_a_changed_row_does_not_stand_for_the_system_that_it_changes(plan):
    systems = ["de_bm25neg", "de_bm25neg+ce_bm25neg"]
    stages = shown(plan({"mine": {"rows": [BM25, SLOW], "systems": "all"}}, systems=systems))
    assert [*stages] == ["BM25 | ", "Slow | ", "de_bm25neg | ", "ce_bm25neg | de_bm25neg"]
    runs = {name: stage.upstream["run"] for name, stage in stages.items()}
    assert (
        runs["ce_bm25neg | de_bm25neg"].upstream["run"]
        is runs["de_bm25neg | "]
        is not runs["Slow | "]
    )


def test_a_row_may_change_a_model_of_the_layouts_own_recipe(plan):
    row = {"system": "slow", "run": "tas_b", "with": {"models.tas_b.train.lr": 1e-6}}
    layout = {"recipes": ["tas_b"], "rows": [BM25, row]}
    stages = shown(plan({"mine": layout}, depth={"train": 1000, "test": 1000}))
    model = stages["slow | "].upstream["run"].upstream["passages"].upstream["model"]
    assert (model.name, model.values["train"]["lr"]) == ("tas_b", 1e-6)


def test_a_row_that_changes_an_unknown_model_is_refused(plan):
    row = {"system": "slow", "run": "tas_b", "with": {"models.tasb.train.lr": 1}}
    with pytest.raises(UserError, match=r"models.tasb.train.lr: models has no tasb; did you mean"):
        plan({"mine": {"recipes": ["tas_b"], "rows": [BM25, row]}})


def test_a_measure_that_only_a_layout_names_is_computed(plan):
    planned = plan({"mine": {"columns": [{"measure": "RR@10"}, {"measure": "P(rel=2)@5"}]}})
    assert "P(rel=2)@5" in shown(planned)["BM25 | "].values["measures"]
    assert not planned.tables.lacking(["mine"])


def test_columns_that_cannot_be_measured_are_told(plan):
    columns = [{"measure": "RR@10"}, {"measure": "Success@50"}, {"measure": "P@30"}]
    planned = plan({"mine": {"columns": columns}}, depth={"train": 50, "test": 20})
    assert planned.tables.lacking(["mine"]) == [
        "mine leaves out Success@50, P@30: not measured (score.measures, depth.test)"
    ]


def test_a_column_says_the_split_of_printed_numbers_alone(plan):
    column = {"measure": "RR@10", "split": "dev"}
    row = {"system": "BM25", "run": "bm25"}
    plan({"mine": {"columns": [column], "rows": [row | {"printed": {"RR@10": 18.7}}]}})
    with pytest.raises(UserError, match="columns.0: split is that of printed numbers, .*`splits`"):
        plan({"mine": {"columns": [column], "rows": [row]}})


def test_a_table_none_of_whose_measures_can_be_computed_is_refused_before_anything_runs(plan):
    columns = [{"measure": "Success@50"}, {"measure": "R@100"}]
    planned = plan({"mine": {"columns": columns}}, depth={"test": 20}, rerank={"depth": 10})
    with pytest.raises(UserError) as error:
        planned.check("mine")
    have = "RR@10, nDCG@10, Success@1, AP"
    reason = f"mine.yaml: none of Success@50, R@100 is measured here, but {have}"
    assert str(error.value).startswith("table mine cannot be made: ")
    assert str(error.value).endswith(reason)


def test_a_row_of_a_split_that_is_not_there_is_absent_and_the_others_are_made(plan):
    deep = {"measure": "nDCG@10", "dataset": "dl", "dataset_name": "Deep"}
    layout = {
        "splits": {"dl": {"split": "dl19"}},
        "columns": [{"measure": "RR@10"}, deep],
        "rows": [BM25, {"system": "Theirs", "run": "bm25", "columns": ["dl"]}],
    }
    planned = plan({"mine": layout})
    reason = "dataset pydocs has dev, test, train, and no dl19"
    rows = {row.system: row.absent for row in planned.tables.rows("mine")}
    assert rows == {"BM25": "", "Theirs": reason}
    assert f"mine lacks Theirs: {reason}" in planned.tables.lacking(["mine"])


def test_a_rows_own_seed_is_that_of_all_seeds(plan):
    own = {"system": "Seven", "run": "de_bm25neg", "with": {"seed": 7}}
    planned = plan({"mine": {"rows": [BM25, own]}}, seeds=[42, 1])
    models = [
        stage.upstream["run"].upstream["passages"].upstream["model"]
        for row, stage in planned.tables["mine"][2:]
    ]
    assert [model.values["train"]["seed"] for model in models] == [7, 7]


def test_the_report_compares_systems_on_the_same_queries(plan):
    assert compared(plan({"whole": {}, "some": {"subset": "pooled"}})) == [("BM25", "bm25")]


def test_the_report_shows_a_run_once_and_another_of_the_same_name_with_its_table(plan):
    slow = {**SLOW, "system": "DE"}
    layouts = {
        "first": {"rows": [BM25, {"system": "DE", "run": "de_bm25neg"}]},
        # BM25's scores are others, its run is not
        "second": {"rows": [BM25, slow], "columns": [{"measure": "P@7"}]},
    }
    assert compared(plan(layouts)) == [
        ("BM25", "bm25"),
        ("DE", "de_bm25neg"),
        ("DE (second)", "de_bm25neg"),
    ]
