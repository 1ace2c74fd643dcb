"""Estimates of a plugin's stages: their cost functions, and those that have none."""

import subprocess
import sys
from pathlib import Path

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


def test_a_stage_without_a_cost_function_is_named(tmp_path):
    plugin, layout, config = (tmp_path / name for name in ("my.py", "table.yaml", "mine.yaml"))
    plugin.write_text(PLUGIN)
    rows = [{"system": name, "first_stage": "BM25", "run": name} for name in ("half", "third")]
    layout.write_text(yaml.safe_dump({"title": "Mine", "columns": [{"measure": "RR@10"}], "rows": rows}))
    runs = {name: {"stage": name, "of": "bm25"} for name in ("half", "third")}
    config.write_text(yaml.safe_dump({"plugins": [str(plugin)], "runs": runs, "tables": [str(layout)]}))
    line = [sys.executable, "-m", "tandem", "estimate", "config/msmarco.yaml", str(config), "--hardware", "h200"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert "| third third.dev |" in done.stdout, done.stderr
    assert "\nno cost is known of: half\n" in done.stdout
