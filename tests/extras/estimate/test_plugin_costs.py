"""Estimates of a plugin's stages: their cost functions, and those that have none."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PLUGIN = """
from tandem.extras.estimate.resources import Work, cost
from tandem.stages import Kind, register_stage
from tandem.stages.retrieval import RunParams

register_stage(Kind("half", print))  # without a model of its parameters
register_stage(Kind("third", print, RunParams))
cost("third")(lambda stage, setting: Work())
"""


@pytest.fixture
def estimate(tmp_path):
    """`estimate(source)`: what `tandem estimate` says of a plugin's stages `half` and `third`."""

    def run(source):
        plugin, layout, config = (
            tmp_path / name for name in ("my.py", "mine_table.yaml", "mine.yaml")
        )
        plugin.write_text(source)
        rows = [{"system": name, "first_stage": "BM25", "run": name} for name in ("half", "third")]
        layout.write_text(
            yaml.safe_dump({"title": "Mine", "columns": [{"measure": "RR@10"}], "rows": rows})
        )
        runs = {name: {"stage": name, "of": "bm25"} for name in ("half", "third")}
        config.write_text(
            yaml.safe_dump({"plugins": [str(plugin)], "runs": runs, "tables": [str(layout)]})
        )
        line = [
            sys.executable,
            "-m",
            "tandem",
            "estimate",
            "config/msmarco.yaml",
            str(config),
            "--hardware",
            "h200",
        ]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True)

    return run


def test_a_stage_without_a_cost_function_is_named(estimate):
    done = estimate(PLUGIN)
    assert "| third third.dev |" in done.stdout, done.stderr
    assert "\nno cost is known of: half\n" in done.stdout


@pytest.mark.parametrize("work", ["stage.nothing", "None", "Work(rows=(('linez', 3),))"])
def test_a_mistake_in_a_cost_function_is_one_line(estimate, tmp_path, work):
    """`tandem run` asks it too, for the time that is left: nothing would run."""
    done = estimate(PLUGIN.replace("Work())", f"{work})"))
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tandem estimate: plugins: {tmp_path / 'my.py'}")
    assert ": cost of third: " in line
