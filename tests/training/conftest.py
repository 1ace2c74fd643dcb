"""Lists over tiny texts, and objectives with fresh tiny models."""

from training_jobs import (  # noqa: F401
    batch,
    gradients,
    lists,
    make_objective,
    model_job,
    quick_job,
    runs,
)
