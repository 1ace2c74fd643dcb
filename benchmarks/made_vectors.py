"""Made-up vectors around centres, and embeddings of these in the form that the stage `embeddings` writes."""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tandem.retrieval.embeddings import name_block
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing

CENTRES, BLOCK = 2000, 16384


def vectors(count: int, dimension: int, seed: int) -> Any:
    """Return fp16 vectors of length 1 around centres that all seeds share, shape (count, dimension)."""
    centres = np.random.default_rng(0).standard_normal((CENTRES, dimension), np.float32)
    rng = np.random.default_rng([1, seed])
    points = centres[rng.integers(0, CENTRES, count)] + rng.standard_normal(
        (count, dimension), np.float32
    )
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float16)


def write_block(folder: Path, count: int, dimension: int, number: int) -> None:
    """Make and write one block of the vectors of `count` passages."""
    size = min(BLOCK, count - number * BLOCK)
    np.save(folder / name_block(number), vectors(size, dimension, 1000 + number))


def embeddings(folder: Path, count: int, dimension: int) -> Artifact:
    """Return an artifact of the vectors of `count` passages, written block by block, by a process on each core."""
    job = Job("embeddings", folder / "made.passages-0000000000", {"side": "passages"}, {})
    with writing(job) as draft, ProcessPoolExecutor(os.cpu_count()) as processes:
        numbers = range(-(-count // BLOCK))
        draft.path(name_block(0)).parent.mkdir(parents=True, exist_ok=True)
        list(processes.map(partial(write_block, draft.folder, count, dimension), numbers))
        meta = {
            "rows": count,
            "block": BLOCK,
            "dimension": dimension,
            "dtype": "fp16",
            "temperature": 1.0,
        }
        write_json(draft.path("meta.json"), meta)
    return open_artifact(job.out)
