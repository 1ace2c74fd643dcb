"""The search for duplicates: sketch every passage, sort into buckets, compare what meets in one.

Linear in the corpus, but for the sorting of one band at a time. Band keys and the shingle sets of candidates lie on
disk, in `scratch`: 8 bytes a band and passage, 8 a shingle of a candidate. In memory are 8 bytes a candidate pair (as
much again while a band's are added); of each bucket a passage has at most `buckets.WINDOW`.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tandem.audits.noise.buckets import Firsts, bucket_pairs, first_of_equal, unpack
from tandem.audits.noise.duplicates import Duplicates
from tandem.audits.noise.hashing import Hashes
from tandem.audits.noise.jaccard import Similarities, similarities
from tandem.audits.noise.minhash import Sketcher
from tandem.audits.noise.passes import Crew, group_ends, shingle_sets, sketch
from tandem.cluster.progress import Progress
from tandem.data.rows import Rows

SETS = "shingles.u64"  # in the scratch folder
PAIRS = 20_000  # compared in one task


class Search(NamedTuple):
    """What a search did.

    Attributes:
        candidates: pairs that met in a bucket and were compared.
        skipped: pairs of large buckets that were not compared, a pair counted in each such bucket.
    """

    candidates: int
    skipped: int


def search(corpus: Path, sketcher: Sketcher, scratch: Path, workers: int, label: str) -> tuple[Duplicates, Search]:
    """Find exact and near-duplicates among the passages of a corpus; the same for any number of workers.

    Args:
        corpus: its Parquet file.
        sketcher: how passages are cut and compared.
        scratch: an empty folder.
        workers: processes.
        label: for progress.
    """
    ends = group_ends(corpus)
    with Crew(workers) as crew:
        hashes = _sketches(corpus, ends, sketcher, scratch, crew, label)
        first, empty = first_of_equal(hashes), hashes == 0
        single = np.flatnonzero((first == np.arange(len(first))) & ~empty).astype(np.uint32)
        pairs, skipped = _candidates(single, sketcher, scratch)
        similarity = _compare(corpus, ends, pairs, sketcher, scratch, crew, label)
    near = similarity >= np.float32(sketcher.threshold)
    return Duplicates(first, empty, pairs[near], similarity[near]), Search(len(pairs), skipped)


def _sketches(corpus: Path, ends: list[int], sketcher: Sketcher, scratch: Path, crew: Crew, label: str) -> Hashes:
    """Hashes of all passages; the band keys go to one file a band."""
    hashes = np.empty(ends[-1], np.uint64)
    tasks = ((corpus, group, sketcher) for group in range(len(ends)))
    with ExitStack() as stack, Progress(f"{label} sketches", ends[-1], "passages") as progress:
        files = [stack.enter_context(open(_band(scratch, band), "wb")) for band in range(sketcher.bands[0])]
        for some, keys in crew.map(sketch, tasks):
            hashes[progress.done : progress.done + len(some)] = some
            for file, band in zip(files, keys, strict=True):
                file.write(band.tobytes())
            progress.add(len(some))
    return hashes


def _band(scratch: Path, band: int) -> Path:
    return scratch / f"band-{band}.u64"


def _candidates(single: Firsts, sketcher: Sketcher, scratch: Path) -> tuple[Hashes, int]:
    """Packed pairs that share a bucket in any band, ascending, each once; and the number left out."""
    pairs, skipped = np.empty(0, np.uint64), 0
    for band in range(sketcher.bands[0]):
        path = _band(scratch, band)
        found, left_out = bucket_pairs(np.fromfile(path, np.uint64)[single], single)
        path.unlink()
        pairs, skipped = np.union1d(pairs, found), skipped + left_out
    return pairs, skipped


def _compare(
    corpus: Path, ends: list[int], pairs: Hashes, sketcher: Sketcher, scratch: Path, crew: Crew, label: str
) -> Similarities:
    """Jaccard similarity of every candidate pair."""
    lower, higher = unpack(pairs)
    rows = np.union1d(lower, higher)
    bounds = _sets(corpus, ends, rows, sketcher, scratch, crew)
    at = np.stack([np.searchsorted(rows, lower), np.searchsorted(rows, higher)], axis=1)
    tasks = (
        (scratch / SETS, np.stack([bounds[some], bounds[some + 1]], axis=2).reshape(len(some), 4))
        for some in (at[start : start + PAIRS] for start in range(0, len(at), PAIRS))
    )
    made = [np.empty(0, np.float32)]
    with Progress(f"{label} comparisons", len(pairs), "pairs") as progress:
        for some in crew.map(similarities, tasks):
            made.append(some)
            progress.add(len(some))
    return np.concatenate(made)


def _sets(corpus: Path, ends: list[int], rows: Rows, sketcher: Sketcher, scratch: Path, crew: Crew) -> Rows:
    """Write the shingle sets of some passages to one file; where each begins in it, and where the last ends."""
    cuts = np.searchsorted(rows, [0, *ends])
    tasks = (
        (corpus, group, rows[cuts[group] : cuts[group + 1]] - ([0, *ends])[group], sketcher.shingling)
        for group in range(len(ends))
        if cuts[group] < cuts[group + 1]
    )
    counts = [np.zeros(1, np.int64)]
    with open(scratch / SETS, "wb") as file:
        for values, some in crew.map(shingle_sets, tasks):
            file.write(values.tobytes())
            counts.append(some)
    return np.cumsum(np.concatenate(counts))
