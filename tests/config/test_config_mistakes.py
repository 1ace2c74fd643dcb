"""Every mistake in a configuration is one line: its dotted path, what was found, what is allowed."""

import copy
from pathlib import Path

import pytest
from tiny_project import put

from tandem.config.loading import load_settings, read_bands, read_layout
from tandem.config.models import Candidates
from tandem.config.parsing import parse, read
from tandem.config.table_layouts import LAYOUT_FILES
from tandem.errors import UserError, nearest

ROOT = Path(__file__).parents[2]
CE = "models.ce_bm25neg"
LOSSES = "listwise, pointwise, approx_ndcg, hinge, ranknet, lambdarank"


def mistakes(config):
    with pytest.raises(UserError) as error:
        load_settings(config, ROOT)
    return str(error.value).splitlines()


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("encodr", "minilm", "encodr is not a known key; did you mean encoder?"),
        ("rerank.depht", 5, "rerank.depht is not a known key; did you mean depth?"),
        ("seed", "many", 'seed is "many"; allowed: integer'),
        ("seed", True, "seed is true; allowed: integer"),
        ("plugins", [1], "plugins.0 is 1; allowed: string"),
        ("seed", 3.0, "seed is 3.0; allowed: integer"),
        ("seeds", [1, 1], "seeds names a value twice; list each once"),
        ("seeds", [], "seeds is []; allowed: 1 or more"),
        ("bm25", [1], "bm25 is [1]; allowed: mapping"),
        ("bm25.b", 1.5, "bm25.b is 1.5; allowed: ≤ 1"),
        ("bm25.k1", float("nan"), "bm25.k1 is nan; allowed: finite numbers below 2^53"),
        (
            "bm25.analyzer",
            "english",
            'bm25.analyzer is "english"; allowed: default, porter, krovetz, none, whitespace',
        ),
        ("bm25.analyzer", "english", ", jieba, null"),
        (
            "depth.test",
            2**60,
            "depth.test is 1152921504606846976; allowed: finite numbers below 2^53",
        ),
        ("recipes", "rocketqav2", 'recipes is "rocketqav2"; allowed: list'),
        ("recipes", ["rocketqa2"], "recipes: rocketqa2 is unknown; did you mean rocketqav2?"),
        ("stand_in", 3, "stand_in is 3; allowed: string or mapping or null"),
        ("stand_in", {"msmarco": 3}, "stand_in.msmarco is 3; allowed: string"),
        ("execution.mirrors", [{"to": "b"}], "execution.mirrors.0.from is missing"),
        (f"{CE}.train.lr", "fast", f'{CE}.train.lr is "fast"; allowed: number'),
        (f"{CE}.train.lr", 0, f"{CE}.train.lr is 0; allowed: > 0"),
        (f"{CE}.train.seed", -1, f"{CE}.train.seed is -1; allowed: ≥ 0"),
        (f"{CE}.train.steps", "few", f'{CE}.train.steps is "few"; allowed: integer or null'),
        (f"{CE}.train.loss", "triplet", f'{CE}.train.loss is "triplet"; allowed: {LOSSES}'),
        (f"{CE}.train.passage_centric", 0.1, f"{CE}.train.passage_centric is not a known key"),
        (f"{CE}.objective", "triple", f"{CE}.objective is 'triple'; allowed: dual, cross, joint"),
        (f"{CE}.candidates.denoise", {}, f"{CE}.candidates.denoise.by is missing"),
        (
            f"{CE}.candidates.denoise",
            {"by": 3},
            f"{CE}.candidates.denoise.by is 3; allowed: string or list",
        ),
        (
            f"{CE}.candidates.denoise",
            {"by": [3]},
            f"{CE}.candidates.denoise.by.0 is 3; allowed: string",
        ),
        (
            f"{CE}.candidates.denoise",
            {"by": "ce_deneg", "negative_below": 0.95},
            f"{CE}.candidates.denoise.negative_below is 0.95, above positive_above (0.9)",
        ),
        (
            f"{CE}.candidates.denoise",
            {"by": "ce_deneg", "negative_below": 5},
            f"{CE}.candidates.denoise.negative_below is 5; allowed: ≤ 1",
        ),
        (
            f"{CE}.candidates.denoise",
            {"by": "ce_deneg", "backfill": {"first_rank": 40, "depth": 20}},
            f"{CE}.candidates.denoise.backfill.depth is 20, before first_rank (40); allowed: ≥ 40",
        ),
        (
            f"{CE}.candidates.first_rank",
            30,
            f"{CE}.candidates.depth is 20, before first_rank (30); allowed: ≥ 30",
        ),
        (
            f"{CE}.like",
            "ce_denge",
            f"{CE}.like is ce_denge, which is not a model; did you mean ce_deneg?",
        ),
        (f"{CE}.like", "ce_bm25neg", f"{CE}.like forms a cycle: ce_bm25neg -> ce_bm25neg"),
        (
            "models.ce_bm25ng",
            {},
            "models.ce_bm25ng.objective is missing; allowed: dual, cross, joint; did you mean ce_",
        ),
        ("datasets.scifct", {}, "datasets.scifct.source is missing; allowed: pydocs, rocketqa"),
        ("datasets.scifct", {"language": "en"}, "; did you mean scifact?"),
        (CE, "x", f'{CE} is "x"; allowed: mapping'),
        (
            "models.de_bm25neg.train.regularise",
            {"query": {"flop": 1}},
            "regularise.query.flop is not a known key",
        ),
        ("datasets", ["pydocs"], 'datasets is ["pydocs"]; allowed: mapping'),
        ("datasets.mine", {"source": "beer"}, "datasets.mine.source is 'beer'; did you mean beir?"),
        (
            "datasets.mine",
            {"path": "x"},
            "datasets.mine.source is missing; allowed: pydocs, rocketqa",
        ),
        (
            "datasets.mine",
            {"source": "beir", "pth": "x"},
            "datasets.mine.pth is not a known key; did you mean path?",
        ),
        ("datasets.mine", {"source": "windows"}, "datasets.mine.of is missing"),
        (
            "datasets.mine",
            {"source": "windows", "of": "pydoc"},
            "datasets.mine.of is pydoc, which is not a dataset; did",
        ),
        (
            "datasets.mine",
            {"source": "windows", "of": "mine"},
            "datasets form a cycle: mine -> mine",
        ),
        (
            "datasets.mine",
            {"source": "windows", "of": "pydocs", "stride": 200},
            "datasets.mine.stride is 200, which skips words between windows of length 150; allowed: ≤ 150",
        ),
        (
            "datasets.mine",
            {"source": "union", "of": ["squad"]},
            "datasets.mine.of names one dataset; allowed: two",
        ),
        (
            "datasets.mine",
            {"source": "beir", "files": {"a": {"url": "ftp://x"}}},
            'datasets.mine.files.a.url is "ftp://x"; allowed: what matches ^(https?|file)://',
        ),
        (
            "encoders.mine",
            {"source": "disk"},
            'encoders.mine.source is "disk"; allowed: package, folder, hub',
        ),
        ("indexes.mine", {"type": "ivf"}, "indexes.mine.type is 'ivf'; did you mean"),
        ("indexes.mine", {"type": "flat", "nlist": 3}, "indexes.mine.nlist is not a known key"),
        (
            "indexes",
            {"a/b": {"type": "flat"}},
            "indexes.a/b: a name is letters, digits, '_', '-' and '.'",
        ),
        (
            "sweeps.mine",
            {"grid": {}, "systems": ["bm25"]},
            "sweeps.mine.grid is empty; name a path and its values",
        ),
        (
            "sweeps.mine",
            {"grid": {"seed": []}, "systems": ["bm25"]},
            "sweeps.mine.grid.seed is []; name at least one",
        ),
        (
            "sweeps.mine",
            {"grid": {"seed": [1]}, "systems": 3},
            "sweeps.mine.systems is 3; allowed: mapping",
        ),
        ("fusions", {"a\nb": {"of": []}}, 'fusions."a\\nb": not a name'),
    ],
)
def test_a_mistake_is_one_line(configured, path, value, line):
    lines = mistakes(configured(path, value))
    assert len(lines) == 1
    assert line in lines[0]


def test_keys_of_a_recipe_that_is_not_there_name_it(configured):
    # config/config.yaml has keys of models of both recipes
    lines = mistakes(configured("recipes", ["rocketqav2"]))
    assert lines
    assert all(
        line.endswith("recipe dureader_retrieval has the rest of it: add it to recipes")
        for line in lines
    )


def test_several_mistakes_are_several_lines(configured):
    config = configured("seed", "x")
    config["bm25"] = {"k1": -1, "c": 2}
    put(config, ("models", "rocketqav2", "train", "lrr"), 1)
    assert mistakes(config) == [
        "bm25.c is not a known key; allowed: analyzer, b, engine, k1, tune",
        "bm25.k1 is -1; allowed: ≥ 0",
        'seed is "x"; allowed: integer',
        "models.rocketqav2.train.lrr is not a known key; did you mean lr?",
    ]


def test_missing_keys_are_named():
    _, lines = parse(LAYOUT_FILES["sweep"][0], {}, "sweeps.mine")
    assert lines == ["sweeps.mine.grid is missing", "sweeps.mine.systems is missing"]


def test_the_python_names_of_keys_are_not_keys():
    assert read(Candidates, {"from": "bm25"}).from_ == "bm25"
    with pytest.raises(UserError, match="from_ is not a known key"):
        read(Candidates, {"from_": "bm25", "from": "bm25"})


def test_of_very_many_names_the_nearest_are_listed():
    known = [f"msmarco-{number}" for number in range(100)] + ["tiny"]
    listed, more = nearest("tyni", known).removeprefix("; allowed: ").split(" and ")
    assert "tiny" in listed.split(", ")
    assert len(listed.split(", ")) + int(more.removesuffix(" more")) == len(known)
    assert nearest("tyni", ["pydocs", "tiny"]) == "; allowed: pydocs, tiny"
    assert nearest("msmarco-1000", known).startswith("; did you mean msmarco-1")


def test_long_values_are_shortened(configured):
    (line,) = mistakes(configured("seed", "x" * 100_000))
    assert len(line) < 400


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("[a]", 'the whole is ["a"]; allowed: mapping'),
        ("{title: a, rows: []}", "rows is []; allowed: 1 or more"),
        (
            "{title: a, rows: [{system: a, sistem: a}]}",
            "rows.0.sistem is not a known key; did you mean system?",
        ),
        (
            "{title: a, rows: [{system: a, printed: 3}]}",
            "rows.0.printed is 3; allowed: string or mapping or null",
        ),
        (
            "{title: a, rows: [{system: a, printed: {RR@10: x}}]}",
            'rows.0.printed.RR@10 is "x"; allowed: number or null',
        ),
        (
            "{title: a, rows: [{system: a, printed: {system: x, q: y}}]}",
            "rows.0.printed.q is not a known key",
        ),
        ("{title: [", ": not valid YAML"),
        ("{title: a, rows: [{system: a}], decimals: 9}", "decimals is 9; allowed: ≤ 4"),
    ],
)
def test_mistakes_in_a_layout_begin_with_its_file(tmp_path, content, line):
    (tmp_path / "table.yaml").write_text(content)
    with pytest.raises(UserError) as error:
        read_layout(tmp_path / "table.yaml")
    (problem,) = str(error.value).splitlines()
    assert problem.startswith(str(tmp_path / "table.yaml"))
    assert line in problem


def test_a_missing_layout_is_named(tmp_path):
    with pytest.raises(UserError, match="table.yaml: no such layout; layouts are config/papers"):
        read_layout(tmp_path / "table.yaml")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (
            "[{tolerance: 1, near: 0.5, source: a}]",
            "bands.yaml: 0.near is 0.5, below tolerance (1)",
        ),
        (
            "[{tolerance: 1, near: 2, source: a, dataset: b}]",
            "bands.yaml: 0: names dataset b, but no value",
        ),
        ("[{tolerance: 1, near: 2}]", "bands.yaml: 0.source is missing"),
        ("{tolerance: 1}", "bands.yaml: the whole is not a list of bands"),
    ],
)
def test_mistakes_in_bands(tmp_path, content, line):
    (tmp_path / "bands.yaml").write_text(content)
    with pytest.raises(UserError) as error:
        read_bands(tmp_path / "bands.yaml")
    assert line in str(error.value)


def test_configurations_of_tests_are_not_changed(configured):
    config = configured()
    before = copy.deepcopy(config)
    load_settings(config, ROOT)
    assert config == before
