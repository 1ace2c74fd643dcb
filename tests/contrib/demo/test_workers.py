"""Which processes of `tandem search` get a GPU."""

import os
import subprocess
import sys

import pytest

# A worker that answers, instead of questions, which GPUs it sees.
WORKER = """
import os, sys
from tandem.contrib.demo import workers
def serve(role, questions, answers):
    print(os.environ.get("CUDA_VISIBLE_DEVICES"), file=answers, flush=True)
workers.serve = serve
workers.main(sys.argv[1:])
"""


@pytest.mark.parametrize(("role", "visible"), [("models", "0"), ("vectors", "None")])
def test_the_process_of_models_leases_a_gpu(role, visible, tmp_path):
    """It took the first GPU, whoever computed there."""
    hidden = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"TANDEM_LEASES": str(tmp_path), "TANDEM_GPUS": "0,1"}
    answer = subprocess.run(
        [sys.executable, "-c", WORKER, role],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == [visible]
