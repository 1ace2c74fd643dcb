"""Runs in TREC's format, as tests read them."""

from itertools import groupby
from pathlib import Path

import numpy as np


def iter_trec(path: Path):
    """(query, documents, scores as float32) of each query of a run.trec, in the order of the file."""
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    for query, group in groupby(lines, key=lambda line: line[0]):
        _, _, docs, _, scores, _ = zip(*group, strict=True)
        yield query, list(docs), np.array(scores, np.float32)
