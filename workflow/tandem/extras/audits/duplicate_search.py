"""The search for duplicates: sketch every passage, sort into buckets, compare what meets in one.

Linear in the corpus, but for the sorting of one band at a time. Band keys and the shingle sets of candidates lie on
disk, in `scratch`: 8 bytes a band and passage, 8 a shingle of a candidate. In memory are 8 bytes a candidate pair (as
much again while a band's are added); of each bucket a passage has at most `duplicates.WINDOW`.
"""

import hashlib
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.data.collection import contents
from tandem.data.rows import Rows
from tandem.data.sources import ordered_map
from tandem.data.tables import streaming
from tandem.extras.audits.duplicates import Duplicates, Firsts, Similarities, bucket_pairs, first_of_equal, unpack
from tandem.extras.audits.minhash import Hashes, Shingling, Sketcher, normalised, pieces

SETS, BAND = "shingles.u64", "band-{}.u64"  # in the scratch folder
PAIRS = 20_000  # compared in one task


class Search(NamedTuple):
    """Numbers of pairs that a search compared, and skipped: once for each large bucket that holds them."""

    candidates: int
    skipped: int


def search(corpus: Path, sketcher: Sketcher, scratch: Path, workers: int, label: str) -> tuple[Duplicates, Search]:
    """Find exact and near-duplicates among the passages of a corpus; the same for any number of workers.

    `scratch` is an empty folder, `label` names the search in lines of progress.
    """
    metadata = pq.read_metadata(corpus)
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    ends: list[int] = np.cumsum(sizes, dtype=np.int64).tolist()  # the row after the last of each row group
    hashes = _sketches(corpus, ends, sketcher, scratch, workers, label)
    first, empty = first_of_equal(hashes), hashes == 0
    single = np.flatnonzero((first == np.arange(len(first))) & ~empty).astype(np.uint32)
    pairs, skipped = _candidates(single, sketcher, scratch)
    similarity = _compare(corpus, ends, pairs, sketcher, scratch, workers, label)
    near = similarity >= np.float32(sketcher.threshold)
    return Duplicates(first, empty, pairs[near], similarity[near]), Search(len(pairs), skipped)


def _sketches(corpus: Path, ends: list[int], sketcher: Sketcher, scratch: Path, workers: int, label: str) -> Hashes:
    hashes = np.empty(ends[-1], np.uint64)
    tasks = ((corpus, group, sketcher) for group in range(len(ends)))
    with ExitStack() as stack, Progress(f"{label} sketches", ends[-1], "passages") as progress:
        files = [stack.enter_context(open(scratch / BAND.format(band), "wb")) for band in range(sketcher.bands[0])]
        for some, keys in ordered_map(sketch, tasks, workers, chunk_size=1):
            hashes[progress.done : progress.done + len(some)] = some
            for file, band in zip(files, keys, strict=True):
                file.write(band.tobytes())
            progress.add(len(some))
    return hashes


def _candidates(single: Firsts, sketcher: Sketcher, scratch: Path) -> tuple[Hashes, int]:
    """Packed pairs that share a bucket in any band, ascending, each once; and the number left out."""
    pairs, skipped = np.empty(0, np.uint64), 0
    for band in range(sketcher.bands[0]):
        path = scratch / BAND.format(band)
        met, left_out = bucket_pairs(np.fromfile(path, np.uint64)[single], single)
        path.unlink()
        pairs, skipped = np.union1d(pairs, met), skipped + left_out
    return pairs, skipped


def _compare(
    corpus: Path, ends: list[int], pairs: Hashes, sketcher: Sketcher, scratch: Path, workers: int, label: str
) -> Similarities:
    lower, higher = unpack(pairs)
    rows = np.union1d(lower, higher)
    bounds = _sets(corpus, ends, rows, sketcher, scratch, workers)
    at = np.stack([np.searchsorted(rows, lower), np.searchsorted(rows, higher)], axis=1)
    tasks = (
        (scratch / SETS, np.stack([bounds[some], bounds[some + 1]], axis=2).reshape(len(some), 4))
        for some in (at[start : start + PAIRS] for start in range(0, len(at), PAIRS))
    )
    parts = [np.empty(0, np.float32)]
    with Progress(f"{label} comparisons", len(pairs), "pairs") as progress:
        for part in ordered_map(similarities, tasks, workers, chunk_size=1):
            parts.append(part)
            progress.add(len(part))
    return np.concatenate(parts)


def _sets(corpus: Path, ends: list[int], rows: Rows, sketcher: Sketcher, scratch: Path, workers: int) -> Rows:
    """Write the shingle sets of some passages to one file; where each begins in it, and where the last ends."""
    cuts = np.searchsorted(rows, [0, *ends])
    tasks = (
        (corpus, group, rows[cuts[group] : cuts[group + 1]] - ([0, *ends])[group], sketcher.shingling)
        for group in range(len(ends))
        if cuts[group] < cuts[group + 1]
    )
    counts = [np.zeros(1, np.int64)]
    with open(scratch / SETS, "wb") as file:
        for values, some in ordered_map(shingle_sets, tasks, workers, chunk_size=1):
            file.write(values.tobytes())
            counts.append(some)
    return np.cumsum(np.concatenate(counts))


def read_group(corpus: Path, group: int) -> list[str]:
    """Normalised contents (title and text) of the passages of a row group; empty where a passage has none."""
    with streaming(corpus) as file:
        table = file.read_row_group(group, columns=["title", "text"])
    rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
    return [normalised(contents(title, text)) for title, text in rows]


def sketch(task: tuple[Path, int, Sketcher]) -> tuple[Hashes, Hashes]:
    """The hash of each passage of a row group, shape (passages,), and its band keys, (bands, passages); 0 if empty."""
    corpus, group, sketcher = task
    texts = read_group(corpus, group)
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    full = np.asarray([text != "" for text in texts], bool)
    hashes = np.frombuffer(digests, "<u8") * full
    keys = np.zeros((sketcher.bands[0], len(texts)), np.uint64)
    keys[:, full] = sketcher.keys([text for text in texts if text])
    return hashes, keys


def shingle_sets(task: tuple[Path, int, Rows, Shingling]) -> tuple[Hashes, Rows]:
    """The distinct shingles of some passages of a row group: sorted hashes, passage after passage, and their numbers.

    The task is the corpus, the row group, rows within it, and how texts are cut.
    """
    corpus, group, rows, shingling = task
    texts = read_group(corpus, group)
    sets: list[Hashes] = []
    for part in pieces([texts[row] for row in rows.tolist()]):
        hashes, counts = shingling.hashes(part)
        sets += [np.unique(some) for some in np.split(hashes, np.cumsum(counts)[:-1])]
    return np.concatenate(sets), np.asarray([len(shingles) for shingles in sets], np.int64)


def similarities(task: tuple[Path, Rows]) -> Similarities:
    """Jaccard similarity of pairs of shingle sets: common shingles over all shingles of the two; shape (pairs,).

    The task is the file of all sets' hashes, and where in it the two sets of each pair begin and end, shape (pairs, 4);
    pairs with the same first set stand together.
    """
    path, bounds = task
    values: Hashes = np.memmap(path, np.uint64, "r")

    @lru_cache(maxsize=1024)
    def members(start: int, stop: int) -> frozenset[int]:
        return frozenset(values[start:stop].tolist())

    result = np.empty(len(bounds), np.float32)
    for at, (first, first_end, second, second_end) in enumerate(bounds.tolist()):
        left, right = members(first, first_end), members(second, second_end)
        common = len(left & right)
        result[at] = common / (len(left) + len(right) - common)
    return result
