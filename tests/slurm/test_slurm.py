"""The short part: one training of two steps, in two slurm jobs."""

import subprocess

from slurm_kit import Slurm, finished, submitted


def test_a_training_gives_way_before_its_time_is_up_and_no_failure_is_counted(
    lab, tiny_dag, tmp_path
):
    """It is to give way ten minutes before the end of its job, which has ten minutes: each job does one step."""
    two = {"models": {"de_bm25neg": {"train": {"steps": 2}}}}
    there, other = (Slurm(tiny_dag, tmp_path / name, two) for name in ("there", "other"))
    model = other.model()
    ten = {"train": {"runtime": 10, "slurm_partition": "second", "slurm_account": "retrieval"}}
    line = other.slurm(
        f"{model}/stage.json", execution="threads: 2, stop_seconds: 600", set_resources=ten
    )
    with subprocess.Popen(there.line(f"{model}/stage.json"), stderr=subprocess.DEVNULL) as local:
        output = finished(line)
    assert local.returncode == 0
    assert "Trying to restart job" not in output
    assert submitted(output) == ["retrieval second 2 32000M 10:00"]
    assert "resumes at step 1/2" in (other.folder / model / "log.txt").read_text()
    assert other.hashes("*.safetensors", model) == there.hashes("*.safetensors", model)
    assert not (other.folder / model / "checkpoints").exists()
    assert not list(other.folder.glob("logs/slurm/**/*.log"))  # kept only where a job has failed
