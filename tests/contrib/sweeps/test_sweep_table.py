"""A sweep's numbers from real score artifacts, against values worked out by hand, and the files that show them."""

import copy
import csv
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy_world import World

from tandem.cli import run
from tandem.contrib.sweeps import sweep_numbers
from tandem.contrib.sweeps.sweep_numbers import SweepPlan, compute_sweep
from tandem.contrib.sweeps.sweep_page import tabulate_sweep
from tandem.errors import UserError
from tandem.evaluation.scores import QUERY_SCORES_FILE
from tandem.extras import sweep_results as results
from tandem.extras.sweep_results import label_point, shorten_path
from tandem.store.files import write_json

PATH, TAU = "models.m.train.list_size", "models.m.train.temperature"
# Four queries' RR@10: at size 8 with seeds 1 and 2, at size 32 with both.
VALUES = {
    "a1": [0.5, 0.5, 0.0, 1.0],  # 50
    "a2": [0.5, 0.5, 0.0, 0.2],  # 30
    "b1": [1.0, 1.0, 0.5, 1.0],  # 87.5
    "b2": [1.0, 1.0, 0.5, 0.6],  # 77.5
    "flat": [0.25, 0.25, 0.25, 0.25],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory, make_job):
    """Name → folder of a score artifact with its values."""
    return write_scores(tmp_path_factory.mktemp("sweep"), make_job)


def write_scores(root, make_job, inputs=None, measure="RR@10"):
    """Write a score artifact for each of `VALUES`; its inputs matter to what is told of a sweep alone."""
    from tandem.store.job import writing

    paths = {}
    for at, (name, values) in enumerate(VALUES.items()):
        measures = ["AP", measure] if name == "a1" else [measure]
        params = {"measures": measures, "split": "test"}
        job = make_job("score", root / f"score/{name}-{at:010}", params, inputs)
        with writing(job) as draft:
            columns = {
                "query_id": [f"q{n}" for n in range(4) for _ in measures],
                "measure": measures * 4,
                "value": [value for value in values for _ in measures],
            }
            pq.write_table(pa.table(columns), draft.path(QUERY_SCORES_FILE))
        paths[name] = str(job.out)
    return paths


@pytest.fixture
def plan(folders):
    """A planned sweep: two sizes, two seeds, and a system that neither touches."""
    rows = [
        {"point": {PATH: size}, "seed": seed, "system": "New", "scores": folders[f"{name}{seed}"]}
        for name, size in (("a", 8), ("b", 32))
        for seed in (1, 2)
    ]
    rows += [
        {"point": {PATH: size}, "seed": seed, "system": "Old", "scores": folders["flat"]}
        for size in (8, 32)
        for seed in (1, 2)
    ]
    printed = [
        {
            "point": {PATH: 32},
            "system": "New",
            "measure": "RR@10",
            "value": 41.9,
            "source": "Table 3",
        }
    ]
    return {
        "name": "sizes", "title": "Sizes <b>", "paths": [PATH], "x": PATH, "scale": "log", "baseline": {PATH: 8},
        "measures": None, "note": "Of lists.", "printed": printed, "dataset": "toy", "split": "test",
        "stands_in_for": "msmarco", "rows": rows,
    }  # fmt: skip


def computed(plan):
    return compute_sweep(SweepPlan.model_validate(plan))


def test_means_deviations_and_tests_by_hand(plan):
    new_8, new_32, old_8, old_32 = computed(plan).lines
    assert (new_8.value, new_8.runs, new_8.change, new_8.p) == (40.0, 2, None, None)
    # of 50 and 30: each 10 from the mean, over n - 1 = 1
    assert new_8.sd == pytest.approx(200**0.5, abs=1e-3)
    assert (new_32.value, new_32.sd) == (82.5, pytest.approx(50**0.5, abs=1e-3))
    assert new_32.change == 42.5
    # All four queries gain, so of 2^4 signs only all plus and all minus reach the sum: p = 2 / 16; one comparison.
    assert new_32.p == 0.125
    assert new_32.printed == 41.9
    assert new_8.printed is None
    # No seed and no size touches the other system: one run, nothing to test.
    assert (old_32.value, old_32.runs, old_32.sd, old_32.change, old_32.p) == (
        25.0,
        1,
        None,
        None,
        None,
    )
    assert old_8.stages == old_32.stages == ["flat-0000000004"]
    assert (old_8.low, old_8.high) == (25.0, 25.0)
    # of each query's mean over seeds, all of them between .0 and .6
    assert 0 <= new_8.low < 40 < new_8.high <= 60


def test_counts_are_shown_as_they_are(plan, make_job, tmp_path):
    from tandem.contrib.sweeps.sweep_page import draw_sweep

    percent = copy.deepcopy(plan)
    scores = write_scores(tmp_path, make_job, measure="NumRet")
    for row in plan["rows"]:
        row["scores"] = scores[Path(row["scores"]).name.partition("-")[0]]
    plan["printed"] = []
    result = computed(plan)
    new_8, new_32, _, old_32 = result.lines
    assert (new_8.value, new_32.value, new_32.change) == (0.4, 0.825, 0.425)
    assert (old_32.low, old_32.high) == (0.25, 0.25)
    assert "Values as the measures have them, not in percent" in tabulate_sweep(result).notes[0]
    assert "NumRet, %" not in json.dumps(draw_sweep(result, "NumRet").to_dict())
    assert "Values in percent, ±" in tabulate_sweep(computed(percent)).notes[0]


def test_holm_counts_the_comparisons_of_a_measure(plan, folders):
    plan["rows"] += [
        {"point": {PATH: 64}, "seed": 1, "system": "New", "scores": folders["b1"]},
        {"point": {PATH: 64}, "seed": 1, "system": "Old", "scores": folders["flat"]},
    ]
    tested = [line.p for line in computed(plan).lines if line.p is not None]
    assert tested == [0.25, 0.25]  # 2 x 0.125, and the second not below the first


def test_cells_of_the_same_runs_are_one_comparison(plan):
    """Where a second path does not touch a system, its p is that of a sweep over the first one."""
    rows = [
        {**row, "point": {**row["point"], "k1": k1}} for k1 in (0.9, 1.2) for row in plan["rows"]
    ]
    plan |= {"rows": rows, "paths": [PATH, "k1"], "baseline": {PATH: 8, "k1": 0.9}}
    tested = [line.p for line in computed(plan).lines if line.p is not None]
    assert tested == [0.125, 0.125]


def test_a_printed_value_is_shown_as_it_was_written(plan):
    for written, shown in ((41.87, "41.87"), (41.9, "41.9"), (42, "42.0")):
        plan["printed"][0]["value"] = written
        grid = tabulate_sweep(computed(plan))
        column = grid.head.index("RR@10 printed")
        assert [row[column] for row in grid.rows] == ["–", shown, "–", "–"]


def test_p_of_few_seeds_of_a_training_is_warned_of(plan, make_job, tmp_path):
    assert computed(plan).warnings == []  # nothing was trained
    scores = write_scores(tmp_path, make_job, {"run": World(tmp_path).make("model", "m", {})})
    for row in plan["rows"]:
        row["scores"] = scores[Path(row["scores"]).name.partition("-")[0]]
    (warning,) = computed(plan).warnings
    assert f"Warning: {warning}." in tabulate_sweep(computed(plan)).notes
    same = [row | {"seed": 3} for row in plan["rows"] if row["seed"] == 1]
    assert computed(plan | {"rows": plan["rows"] + same}).warnings == [
        warning
    ]  # still two trainings
    third = {8: scores["b1"], 32: scores["a1"]}
    more = [row | {"scores": third[row["point"][PATH]]} for row in same if row["system"] == "New"]
    assert computed(plan | {"rows": plan["rows"] + more}).warnings == []


def test_what_stages_warn_of_is_told_with_the_sweep(plan, make_job, tmp_path):
    scores = write_scores(tmp_path, make_job)
    manifest = Path(scores["b1"]) / "stage.json"
    written = json.loads(manifest.read_text())
    written["facts"]["warnings"] = ["2 of 4 queries have no result and count as 0"]
    write_json(manifest, written)
    for row in plan["rows"]:
        row["scores"] = scores[Path(row["scores"]).name.partition("-")[0]]
    warning = "score b1: 2 of 4 queries have no result and count as 0"
    assert computed(plan).warnings == [warning]
    assert f"Warning: {warning}." in tabulate_sweep(computed(plan)).notes


def test_the_command_writes_every_format(plan, tmp_path):
    points = tmp_path / "sizes.points"
    points.write_text(json.dumps(plan))
    assert run(["sweep", "--points", str(points), "--out", str(tmp_path / "sizes.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "sizes.csv").open()))
    assert [(row[PATH], row["system"], row["value"], row["p"]) for row in rows] == [
        ("8", "New", "40.0000", ""), ("32", "New", "82.5000", "0.125000"),
        ("8", "Old", "25.0000", ""), ("32", "Old", "25.0000", ""),
    ]  # fmt: skip
    assert rows[0]["stage"] == "a1-0000000000 a2-0000000001"
    again = results.read_result(tmp_path / "sizes.json")
    assert again == computed(plan)
    assert "stands in for msmarco" in again.caption
    text = (tmp_path / "sizes.md").read_text()
    assert "| 32 | New | 41.9 | 82.50 ± 7.07" in text
    drawing = (tmp_path / "sizes.svg").read_text()
    assert "var(--" not in drawing
    html = (tmp_path / "sizes.html").read_text()
    assert "Sizes &lt;b&gt;" in html
    assert "<b>" not in html


def test_every_value_of_the_page_leads_to_its_run(plan, tmp_path):
    points = tmp_path / "sizes.points"
    points.write_text(json.dumps(plan))
    run(["sweep", "--points", str(points), "--out", str(tmp_path / "sizes.csv")])
    html = (tmp_path / "sizes.html").read_text()
    assert html.count('<a href="#run-sizes-') == 4  # a value for each point and system
    for name in ("a1-0000000000", "b1-0000000002", "flat-0000000004"):
        assert f'href="#run-sizes-{name}"' in html
        assert html.count(f'id="run-sizes-{name}"') == 1
    targets = re.findall(r'<th scope="row"><a href="([^#"]+)">', html)
    assert len(targets) == len(VALUES)
    assert all((tmp_path / target).resolve().is_file() for target in targets)


def test_how_many_columns_are_resampled_at_once_changes_nothing(plan, monkeypatch):
    whole = computed(plan)
    monkeypatch.setattr(sweep_numbers, "_COLUMNS_PER_PART", 1)
    assert computed(plan) == whole


def drawn(chart):
    """The rows of a plot's data."""
    (rows,) = chart.to_dict()["datasets"].values()
    return rows


def test_bands_are_seeds_or_the_interval_and_words_are_an_axis_too(plan):
    from tandem.contrib.sweeps.sweep_page import draw_sweep

    def data(chart):
        spec = chart.to_dict()
        return spec["layer"][0]["encoding"]["x"]["type"], drawn(chart)

    kind, rows = data(draw_sweep(computed(plan), "RR@10"))
    assert kind == "quantitative"
    new, old = rows[0], rows[2]
    assert (new["low"], new["high"]) == (pytest.approx(40 - 14.1421), pytest.approx(40 + 14.1421))
    assert (old["low"], old["high"]) == (25.0, 25.0)
    for row in plan["rows"]:
        row["point"] = {PATH: "few" if row["point"][PATH] == 8 else "many"}
    plan |= {"baseline": {PATH: "few"}, "printed": []}
    kind, rows = data(draw_sweep(computed(plan), "RR@10"))
    assert kind == "nominal"
    assert rows[1]["x"] == "many"


def test_a_logarithmic_axis_shows_0(plan):
    from tandem.contrib.sweeps.sweep_page import draw_sweep, render_svg

    for row in plan["rows"]:
        row["point"][PATH] -= 8  # 0 and 24
    plan["printed"], plan["baseline"] = [], {PATH: 0}
    specification = draw_sweep(computed(plan), "RR@10").to_dict()
    scales = [layer["encoding"]["x"]["scale"] for layer in specification["layer"]]
    assert all(scale == {"type": "symlog", "constant": 24, "nice": False} for scale in scales)
    assert ">0</text>" in render_svg(computed(plan))


def test_two_paths_give_a_line_for_each_value_of_the_second(plan):
    for row in plan["rows"]:
        row["point"] = {**row["point"], TAU: 1.0}
    plan |= {"paths": [PATH, TAU], "baseline": {PATH: 8, TAU: 1.0}}
    from tandem.contrib.sweeps.sweep_page import draw_sweep

    names = {row["series"] for row in drawn(draw_sweep(computed(plan), "RR@10"))}
    assert names == {"New, m.temperature 1.0", "Old, m.temperature 1.0"}
    assert label_point(plan["baseline"]) == "m.list_size 8, m.temperature 1.0"
    assert shorten_path("bm25.k1") == "bm25.k1"


def test_two_paths_also_give_a_table_with_a_column_for_each_value_of_the_axis(plan, tmp_path):
    for row in plan["rows"]:
        row["point"] = {**row["point"], TAU: 1.0}
    plan["rows"] += [row | {"point": row["point"] | {TAU: 0.5}} for row in plan["rows"]]
    plan |= {"paths": [PATH, TAU], "baseline": {PATH: 8, TAU: 1.0}}
    (tmp_path / "sizes.points").write_text(json.dumps(plan))
    assert (
        run(
            [
                "sweep",
                "--points",
                str(tmp_path / "sizes.points"),
                "--out",
                str(tmp_path / "sizes.csv"),
            ]
        )
        == 0
    )
    lines = (tmp_path / "sizes.md").read_text().splitlines()
    assert "**RR@10 along m.list\\_size**" in lines
    assert "|  | 8 | 32 |" in lines
    for tau in ("1.0", "0.5"):
        assert f"| New, m.temperature {tau} | 40.00 ± 14.14 | 82.50 ± 7.07 |" in lines
        assert f"| Old, m.temperature {tau} | 25.00 | 25.00 |" in lines
    assert "<h4>RR@10 along m.list_size</h4>" in (tmp_path / "sizes.html").read_text()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "cannot be read: No such file"),
        ("{", "Invalid JSON"),
        ("{}", "name: Field required.*; snakemake writes it"),
        ("[]", "is not a sweep's plan"),
    ],
)
def test_a_broken_plan_is_one_line(tmp_path, content, line):
    points = tmp_path / "x.points"
    if content is not None:
        points.write_text(content)
    with pytest.raises(UserError, match=line) as error:
        run(["sweep", "--points", str(points), "--out", str(tmp_path / "x.csv")])
    assert "\n" not in str(error.value)
