"""Every mistake that only a plan can see is one line with its dotted path: names, depths, cycles, options of losses."""

import re
from pathlib import Path

import pytest
from messages import unknown_key

from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.plan.context import plans_view
from tandem.plan.planned_tables import RULE_NAMES
from tandem.stages import KINDS, rule_names

ROOT = Path(__file__).parents[2]
CE = "models.ce_bm25neg"


def mistakes(config):
    with pytest.raises(UserError) as error:
        FullPlan(config, ROOT)
    return str(error.value).splitlines()


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (
            f"{CE}.train.margin",
            0.2,
            f"{CE}.train.margin is 0.2, but listwise takes none; used by hinge",
        ),
        (
            "models.rocketqav2.train.temperature",
            2,
            "models.rocketqav2.train.temperature is 2.0, but listwise or paper takes none; used by kl, kl_t2",
        ),
        (f"{CE}.init", "nowhere", f"{CE}.init: nowhere is neither a model nor an encoder"),
        (
            f"{CE}.candidates.from",
            "bm52",
            f"{CE}.candidates.from: bm52 is not a model; did you mean bm25?",
        ),
        (
            f"{CE}.candidates.from",
            "randm",
            f"{CE}.candidates.from: randm is not a model; did you mean random?",
        ),
        (
            f"{CE}.candidates.from",
            "zz",
            "zz is not a model; allowed: bm25, de_bm25neg, encoder, given, random, ",
        ),
        (
            f"{CE}.candidates.denoise",
            {"by": "zz"},
            "zz is not a model; allowed: bge-reranker-v2-m3, ce_bm25neg, ",
        ),
        (
            "systems",
            ["bm25+minlm-l6"],
            "systems: minlm-l6 is not a model; did you mean ms-marco-minilm-l6?",
        ),
        ("systems", ["minilmm"], "systems: minilmm is not a model; did you mean minilm?"),
        (
            f"{CE}.candidates.from",
            "ce_deneg",
            f"{CE}.candidates.from: ce_deneg is a cross model, needed is dual",
        ),
        ("dataset", "pydoc", "dataset: pydoc is unknown; did you mean pydocs?"),
        ("encoder", "minilmm", "encoder: minilmm is unknown"),
        ("encoder", "", "encoder:  is unknown"),
        ("systems", ["bm25+"], "systems:  is not a model; allowed: "),
        (
            "tables",
            ["rocketqav2/table5"],
            "tables: rocketqav2/table5 is unknown; did you mean rocketqav2/table4?",
        ),
        (
            "rerank.depth",
            5000,
            "rerank.depth is 5000, but runs on test are 1000 deep; raise depth.test",
        ),
        (
            "score.measures",
            ["RR@10", "nDCG@10", "Success@1", "Success@50", "R@50", "R@2000"],
            "score.measures: R@2000 looks deeper than the runs go (1000); raise depth.test",
        ),
        (
            "score.usual",
            ["RR@10", "nDGC@10"],
            "score.usual: nDGC@10 is not a measure; did you mean nDCG?",
        ),
        (
            "score.measures",
            ["RR@10", "RR@10"],
            "score.measures: RR@10 is RR@10 again; each is listed once",
        ),
        ("score.measures", ["MRR@10"], "score.measures: MRR@10 is written RR@10 here"),
        ("bm25.tune.measure", "RRR", "bm25.tune.measure: RRR is not a measure"),
        ("datasets.pydocs.measures", ["R"], "datasets.pydocs.measures: R is malformed; write R@10"),
        ("tables", ["baselin"], "tables: baselin is unknown; did you mean baseline?"),
        ("train_on", "scifct", "train_on: scifct is unknown"),
        (
            "models.rocketqav2.candidates.depth",
            500,
            "models.rocketqav2.candidates.depth is 500, but de_bm25neg retrieves only 50 passages per training query; "
            "raise depth.train (depth: {train: 500}) or lower candidates.depth",
        ),
        (
            "models.rocketqav2.train.list_size",
            128,
            "models.rocketqav2.train.list_size is 128, but its candidates give at most 30 negatives per query",
        ),
        (
            f"{CE}.train.positives",
            4,
            f"{CE}.train.positives is 4, but lists have 4 passages; raise list_size",
        ),
        (
            f"{CE}.candidates",
            {"labels": "answers", "least_grade": 2},
            f"{CE}.candidates.least_grade is 2, but labels is answers, which has no grades",
        ),
        ("score.measures", ["RR@10"], "shows Success@1; add it to score.measures (RR@10)"),
    ],
)
def test_a_mistake_is_one_line(configured, path, value, line):
    lines = mistakes(configured(path, value))
    assert any(line in mistake for mistake in lines), lines


def test_a_list_size_that_the_data_decide_is_not_compared_with_the_lists(configured):
    config = configured("models.de_bm25neg.candidates.negatives", 2)
    config["models"]["de_bm25neg"]["train"] = {"list_size": 8}
    assert any("de_bm25neg.train.list_size is 8" in line for line in mistakes(config))
    config["models"]["de_bm25neg"]["train"] |= {"sizes": "data", "budget_minutes": 5}
    FullPlan(config, ROOT)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("bm25", {"candidates": {"from": "random"}}),
        ("bm25.porter", {}),
        ("encoder", {"init": "minilm"}),
        ("given", {}),
    ],
)
def test_no_model_takes_the_place_of_a_run_that_is_always_there(configured, name, entry):
    config = configured()
    config["models"][name] = {"like": "de_bm25neg", **entry}
    assert mistakes(config) == [
        f"models.{name} has the name of a run that every configuration has; name it otherwise"
    ]


def test_a_cycle_of_models_is_named(configured):
    config = configured(
        "models.de_bm25neg.candidates", {"from": "rocketqav2.retriever", "depth": 50}
    )
    assert any(
        "models form a cycle: de_bm25neg -> rocketqav2 -> de_bm25neg" in line
        for line in mistakes(config)
    )


def test_a_cycle_of_starts_is_named(configured):
    lines = mistakes(configured("models.ce_bm25neg.init", "ce_deneg"))
    assert any(
        "models form a cycle" in line and "ce_bm25neg -> ce_deneg -> ce_bm25neg" in line
        for line in lines
    )


def test_a_missing_folder_is_named(configured, tmp_path):
    config = configured(
        "datasets", {"mine": {"source": "beir", "path": str(tmp_path / "none")}}
    ) | {"dataset": "mine"}
    assert mistakes(config) == [
        f"datasets.mine.path is {tmp_path / 'none'}; no such file or folder"
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("corpus", "none.tsv"),
        ("corpus", "part-*.tsv"),
        ("queries", {"test": "queries.tsv", "dev": "none.tsv"}),
        ("qrels", {"test": "none.txt"}),
    ],
)
def test_a_file_that_a_folder_does_not_hold_is_named_before_anything_runs(
    configured, tmp_path, key, value
):
    """Packed ones are found, and others of the folder count for nothing."""
    for name in ("collection.tsv.gz", "queries.tsv", "qrels.txt", "none.tsv.bak"):
        (tmp_path / name).touch()
    there = {
        "source": "files",
        "path": str(tmp_path),
        "corpus": "collection.tsv",
        "queries": {"test": "queries.tsv"},
        "qrels": {"test": "qrels.txt"},
    }
    FullPlan(configured("datasets", {"mine": there}) | {"dataset": "mine"}, ROOT)
    broken = configured("datasets", {"mine": there | {key: value}}) | {"dataset": "mine"}
    name = list(value.values())[-1] if isinstance(value, dict) else value
    assert mistakes(broken) == [f"datasets.mine.{key}: {tmp_path} holds no {name}, plain or packed"]


def test_a_folder_without_the_files_of_its_format_is_named_before_anything_runs(
    configured, tmp_path
):
    (tmp_path / "corpus.jsonl").touch()
    beir = {"mine": {"source": "beir", "path": str(tmp_path)}}
    assert mistakes(configured("datasets", beir) | {"dataset": "mine"}) == [
        f"datasets.mine.path: {tmp_path} holds no queries.jsonl, plain or packed"
    ]


def test_an_encoder_folder_without_safetensors_is_refused(configured, tmp_path):
    (tmp_path / "pytorch_model.bin").touch()
    lines = mistakes(configured("encoder", str(tmp_path)))
    assert "model.safetensors is missing" in lines[-1]


def test_a_measure_of_a_layout_of_ones_own_is_looked_at_before_anything_runs(configured, tmp_path):
    layout = tmp_path / "mine.yaml"
    layout.write_text(
        "{title: Mine, columns: [{measure: MRR@10}], rows: [{system: BM25, run: bm25}]}"
    )
    assert mistakes(configured("tables", [str(layout)])) == [
        f"{layout}: columns: MRR@10 is written RR@10 here"
    ]


def test_a_mistake_in_a_row_of_a_layout_names_the_layout(configured, tmp_path):
    layout = tmp_path / "mine.yaml"
    layout.write_text("{title: Mine, rows: [{system: BM25, run: bm25, with: {sed: 1}}]}")
    assert mistakes(configured("tables", [str(layout)])) == [
        f"{layout}: BM25: {unknown_key('sed', 'seed')}"
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("encoder: nowhere", "encoder: nowhere is unknown"),
        ("datasets.pydocs: {source: beir, path: nowhere}", "datasets.pydocs.path is nowhere; no "),
    ],
)
def test_what_only_a_rows_stages_show_names_the_layout_too(configured, tmp_path, change, line):
    layout = tmp_path / "mine.yaml"
    layout.write_text(f"{{title: Mine, rows: [{{system: A, run: encoder, with: {{{change}}}}}]}}")
    (mistake,) = mistakes(configured("tables", [str(layout)]))
    assert mistake.startswith(f"{layout}: A: {line}")


def test_no_two_tables_have_one_name_or_target(configured, tmp_path):
    def layout(name):
        (file := tmp_path / name).parent.mkdir(exist_ok=True)
        file.write_text("{title: Mine, rows: [{system: BM25, run: bm25}]}")
        return str(file)

    assert mistakes(configured("tables", ["summary", "summary"])) == [
        "tables: summary is there twice"
    ]
    same = [layout("a/mine.yaml"), layout("b/mine.yaml")]
    assert mistakes(configured("tables", same)) == [
        f"tables: {same[1]} has the name of {same[0]}; name it otherwise"
    ]
    for name in ("all", "rocketqav2", "bm25", "own_data", "dureader_retrieval_table10"):
        file = layout(f"{name}.yaml")
        tables = [layout("own-data.yaml"), file]
        line = f"tables: {file}: {name} is the name of another target; name the file otherwise"
        assert mistakes(configured("tables", tables)) == [line]
    for name in ("rocketqav2_figure4", "sweep_lr"):
        config = configured("tables", [layout(f"{name}.yaml")])
        config["sweeps"] = {"lr": {"grid": {"rerank.depth": [2, 3]}, "systems": ["bm25+ce_deneg"]}}
        line = f"tables: {tmp_path}/{name}.yaml: {name} is the target of a sweep, too; name the file otherwise"
        assert mistakes(config) == [line]


def test_rules_are_no_names_of_tables():
    files = [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")]
    rules = re.findall(
        r"^(?:use rule stage as|rule) (\w+)", "\n".join(map(Path.read_text, files)), re.MULTILINE
    )
    added = {name for view in plans_view for name in plans_view[view].rules}
    assert {*rules} <= {*RULE_NAMES, *added, *KINDS, *rule_names()}
