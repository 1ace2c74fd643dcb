"""Every target with every shipped configuration: it is planned, or one line names the configurations it belongs to."""

import re
import shlex
from functools import cache, lru_cache

import pytest

from tandem import ROOT
from tandem.config.loading import read_layout
from tandem.errors import UserError
from tandem.evaluation.layouts import (
    Layout,
    LayoutRow,
    TablePlan,
    drop_rows,
    find_beside,
    load_layout,
    read_printed,
)
from tandem.extras.plan import FullPlan
from tandem.extras.targets import Configuration, read_configurations

PAPERS = (
    "config/config.yaml",
    "config/msmarco.yaml",
    "config/nq.yaml",
    "config/dureader.yaml",
    "config/plain.yaml",
)
OF_ALL = ("summary", "published", "zero_shot")  # tables of every configuration that measures theirs
OVERLAYS = ("trec_dl.yaml",)
COMMAND = re.compile(r"--configfile ((?:[\w/]+\.yaml ?)+)")


def shipped() -> list[str]:
    """The files of config/ that stand alone, and the others as the command in their first lines lays them upon some."""
    alone = [path for path in sorted((ROOT / "config").glob("*.yaml")) if path.name not in OVERLAYS]
    files = [str(path.relative_to(ROOT)) for path in alone]
    for path in [
        *(ROOT / "config" / name for name in OVERLAYS),
        *sorted((ROOT / "config/small").glob("*.yaml")),
    ]:
        commands = [names.strip() for names in COMMAND.findall(path.read_text())]
        files += [names for names in commands if path.name in names]
    return files


@lru_cache(maxsize=12)  # a plan takes a hundred megabytes
def planned(words: str) -> FullPlan:
    """The plan of a configuration as a command line has it: `--configfile a.yaml b.yaml --config …`."""
    (configuration,), rest = read_configurations(shlex.split(words))
    assert rest == []
    return Configuration([ROOT / file for file in configuration.files], configuration.values).plan()


@cache
def refused_for(words: str, target: str) -> UserError | None:
    """Return why a configuration cannot plan a target; many configurations name the same one for it."""
    try:
        planned(words).check(target)
    except UserError as error:
        return error
    return None


@pytest.fixture(scope="module", autouse=True)
def _forget():
    yield
    planned.cache_clear()
    refused_for.cache_clear()


def test_the_papers_configurations_are_among_them():
    assert {*PAPERS} < {*shipped()}
    assert "config/small/rocketqa.yaml config/small/systems.yaml" in shipped()


def needs_own_data(error: UserError) -> bool:
    """Whether a configuration was refused because a folder with the user's data is not there."""
    return "no such f" in str(error)


@pytest.mark.parametrize("files", shipped())
def test_a_target_is_planned_or_says_where_it_belongs(files):
    words = f"--configfile {files}"
    try:
        plan = planned(words)
    except UserError as error:
        if needs_own_data(error) and not files.startswith(PAPERS):
            pytest.skip(f"needs data of one's own: {error}")
        raise
    for target in plan.targets():
        if target in ("all", "report") and not plan.settings.tables:  # a sweep alone
            continue
        error = refused_for(words, target)
        if error is None:
            continue
        line = str(error)
        assert "\n" not in line, target
        if target == "fidelity":  # of every configuration that trains, once a key is set
            assert "train.checkpoints" in line
            continue
        if target in OF_ALL:
            assert " is measured here, but " in line
            continue
        commands = COMMAND.findall(line)
        assert commands, line
        for command in commands:
            refused = refused_for(f"--configfile {command.strip()}", target)
            assert refused is None or needs_own_data(refused), refused


@pytest.mark.parametrize("name", ["config", "msmarco", "nq", "fusion"])
def test_fidelity_is_planned_with_the_key_that_its_line_names(name):
    with pytest.raises(UserError) as error:
        planned(f"--configfile config/{name}.yaml").check("fidelity")
    (override,) = re.findall(r"--config '.*'", str(error.value))
    assert planned(f"--configfile config/{name}.yaml {override}").check("fidelity") == []


@pytest.mark.parametrize(
    ("configuration", "system", "model"),
    [
        ("config", "de_bm25neg+ce_deneg.test", "de_bm25neg.test"),
        ("msmarco", "m_d0+m_c.dev", "m_d0.dev"),
        ("nq", "rocketqav2.retriever+rocketqav2.reranker.test", "rocketqav2.retriever.test"),
    ],
)
def test_views_look_at_the_configurations_own_systems(configuration, system, model):
    plan = planned(f"--configfile config/{configuration}.yaml")
    assert plan.view("analysis").stage("error_analysis").name == system
    assert plan.view("tradeoffs").stage().name == model


def test_the_summary_leaves_out_what_the_configuration_lacks():
    rows = {
        row.system: row for row, _ in planned("--configfile config/msmarco.yaml").tables["summary"]
    }
    assert list(rows) == [
        "BM25",
        "Encoder, untrained",
        "RocketQAv2 (retriever)",
        "RocketQAv2 (re-ranker)",
    ]
    whole = {row.system for row, _ in planned("--configfile config/config.yaml").tables["summary"]}
    assert {*rows} < whole
    assert "DE w/ BM25 Neg" in whole


def test_what_was_tested_against_a_row_that_is_left_out_is_tested_against_bm25():
    rows = [
        LayoutRow(system="BM25", run="bm25"),
        LayoutRow(system="DE", run="de", baseline=("BM25", "")),
        LayoutRow(system="Joint", run="joint", baseline=("DE", "")),
    ]
    left = drop_rows(Layout(title="", rows=rows), ["de"]).rows
    assert [(row.system, row.baseline) for row in left] == [("BM25", None), ("Joint", ("BM25", ""))]


def test_bm25_is_not_tested_against_itself_where_its_baseline_is_left_out():
    rows = [
        LayoutRow(system="BM25", run="bm25", baseline=("Mine", "")),
        LayoutRow(system="Mine", run="mine"),
        LayoutRow(system="DE", run="de", baseline=("Mine", "")),
    ]
    left = drop_rows(Layout(title="", rows=rows), ["mine"]).rows
    assert [(row.system, row.baseline) for row in left] == [("BM25", None), ("DE", ("BM25", ""))]


def test_captions_name_the_split_that_a_paper_prints():
    said = dict[tuple[str, str], set[str]]()
    for file in sorted((ROOT / "config/papers").rglob("*.yaml")):
        if file.name == "bands.yaml" or (source := read_layout(file).printed_from) is None:
            continue
        layout = load_layout(file)
        lines = read_printed(find_beside(file, "printed.csv"), source.source, source.table).lines
        for column in layout.columns:
            if column.dataset in layout.splits:
                # its queries are a whole collection of the paper's, and a split of what is searched here
                continue
            split = column.split or (layout.printed_on.split if layout.printed_on else "")
            for line in lines:
                named = column.dataset_name in ("", line.dataset) and column.setting in (
                    "",
                    line.setting,
                )
                if named and line.metric == column.name:
                    said.setdefault((file.stem, split), set()).add(line.split)
    # the dev split of cMedQA2 is what the paper tests on
    assert said.pop(("table7", "dev")) == {"test"}
    assert said.pop(("table6", "dev and test")) == {"dev+test duplicated queries"}
    assert all(text.startswith(split) for (_, split), texts in said.items() for text in texts), said


def test_deep_learning_queries_are_scored_as_table_1_says():
    note = (ROOT / "config/papers/review/table1.yaml").read_text()
    (values,) = re.findall(r"`(--config dataset=[^`]*)`", re.sub(r"\s+", " ", note))
    plan = planned(f"--configfile config/msmarco.yaml {values}")
    assert plan.check("review_table1") == []
    rows = {(row.system, row.column): (row, stage) for row, stage in plan.tables["review/table1"]}
    for column, split in (("msmarco", "dev"), ("trec-dl-2019", "dl19"), ("trec-dl-2020", "dl20")):
        row, stage = rows["SPLADE++", column]
        assert (row.collection, row.split, stage.values["split"]) == (column, split, split)
        assert "nDCG@10" in stage.values["measures"]
    runs = {
        column: stage.upstream["run"]
        for (system, column), (_, stage) in rows.items()
        if system == "SPLADE++"
    }
    # encoded once for all queries
    assert len({run.upstream["passages"].folder for run in runs.values()}) == 1


def test_columns_of_splits_that_are_not_there_are_told_and_the_others_made():
    plan = planned("--configfile config/msmarco.yaml config/trec_dl.yaml")
    assert {row.split for row, _ in plan.tables["trec_dl"]} == {"dl19", "dl20"}
    lines = plan.check("trec_dl")
    assert [re.findall(r"TREC DL \d+|no dl\d+", line) for line in lines] == [
        ["TREC DL 2021", "no dl21"],
        ["TREC DL 2022", "no dl22"],
    ]
    assert [*TablePlan.model_validate_json(plan.tables.to_json("trec_dl")).skipped] == [
        "trec-dl-2021",
        "trec-dl-2022",
    ]
    second = planned(
        "--configfile config/msmarco.yaml config/trec_dl.yaml --config dataset=msmarco-v2"
    )
    assert {row.split for row, _ in second.tables["trec_dl"]} == {"dl21", "dl22"}


def test_a_table_without_any_of_its_splits_says_which_it_needs():
    plan = planned("--configfile config/config.yaml")
    with pytest.raises(
        UserError,
        match=r"dataset pydocs has dev, test, train, and no dl19; .*, and no dl22",
    ):
        plan.check("trec_dl")
