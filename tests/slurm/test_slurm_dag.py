"""The whole tiny graph and the default on a real slurm."""

import csv
import subprocess
import sys

from slurm_kit import Slurm, finished, long
from tiny_project import ROOT

pytestmark = long


def test_the_whole_graph_gives_the_same_bytes(lab, tiny_dag, tmp_path):
    other = Slurm(tiny_dag, tmp_path / "whole", ignored=["results"])
    finished(other.slurm())
    there = Slurm(tiny_dag, tmp_path / "there")
    for name in (
        "run.trec",
        "run.parquet",
        "*.safetensors",
        "*.npy",
        "candidates.parquet",
        "tiny.csv",
    ):
        assert other.hashes(name) == there.hashes(name)
    assert not list(other.folder.glob("logs/slurm/**/*.log"))  # kept only where a job has failed


def test_the_default_runs_as_the_readme_says(lab, tmp_path):
    line = [sys.executable, "-m", "snakemake", "--profile", "slurm", "--directory", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader((tmp_path / "results/tables/summary.csv").open()))
    assert len({(row["system"], row["first_stage"]) for row in rows}) == 7
    assert (tmp_path / "results/report.html").exists()
