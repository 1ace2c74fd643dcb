"""Training lists: drawing them from a run, denoising them, and a teacher's scores of them."""

from tandem.stages.base import Kind

CANDIDATES = Kind(
    name="candidates", run="negatives.candidates:run", shard="negatives.candidates:run_shard", env="models", threads="all",
    gpu=("judge",), box="Hard negatives",
)  # fmt: skip
TEACHER = Kind(
    name="teacher", run="negatives.teacher:run", shard="negatives.teacher:run_shard", env="models", threads="all",
    retries=2, gpu=("judge",), box="Hard negatives",
)  # fmt: skip

KINDS = (CANDIDATES, TEACHER)
