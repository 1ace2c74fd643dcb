"""Which passages repeat others: sketch every passage, sort into buckets, compare what meets in one, group what repeats.

Linear in the corpus, but for the sorting of one band at a time. Band keys and the shingle sets of candidates lie on
disk: 8 bytes a band and passage, 8 a shingle of a candidate. In memory are 8 bytes a candidate pair (as much again
while a band's are added); of each bucket a passage has at most `WINDOW`.
"""

import hashlib
import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tandem.cluster.progress import Progress
from tandem.cluster.work import map_in_order
from tandem.data import tables
from tandem.data.collection import join_contents
from tandem.data.rows import IdHashes, IdRows, Rows
from tandem.data.tables import open_parquet
from tandem.extras.audits.minhash import Shingling, Sketcher, normalised, pieces

Firsts = np.ndarray[Any, np.dtype[np.uint32]]
Similarities = np.ndarray[Any, np.dtype[np.float32]]

SETS, BAND = "shingles.u64", "band-{}.u64"  # in the scratch folder
COMPARED = 20_000  # pairs of one task
# A passage is compared with at most so many that follow it in a bucket. Buckets are almost always smaller; in a large
# one (thousands of passages from one template) all pairs would be quadratic, and neighbours still join the group.
WINDOW = 32
HIGH = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
LETTER = re.compile(r"[^\W_]")  # or a digit: "..." and an emoji say nothing that could be repeated
EXACT = 2.0  # `Duplicates.likeness` of the same text
SCHEMA = pa.schema([
    ("group", pa.int64()), ("kind", pa.string()), ("first", pa.string()), ("second", pa.string()),
    ("similarity", pa.float32()),
])  # fmt: skip


def pack(lower: Any, higher: Any) -> IdHashes:
    """Two rows below 2^32 as one 64-bit number that sorts by the lower, then the higher."""
    return np.asarray((np.asarray(lower).astype(np.uint64) << HIGH) | np.asarray(higher).astype(np.uint64))


def unpack(pairs: IdHashes) -> tuple[Rows, Rows]:
    """`pack` undone: the lower and the higher rows."""
    return (pairs >> HIGH).astype(np.int64), (pairs & LOW).astype(np.int64)


def first_of_equal(hashes: IdHashes) -> Firsts:
    """For each passage the first row with the same hash; for an empty passage (hash 0) its own row.

    Two different texts share a 64-bit hash with odds of about 1 to 500,000 in a corpus of 8.8 million.
    """
    _, begins, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    first: Firsts = begins.astype(np.uint32)[inverse]
    empty = np.flatnonzero(hashes == 0)
    first[empty] = empty
    return first


def bucket_pairs(keys: IdHashes, rows: Firsts) -> tuple[IdHashes, int]:
    """Pairs of passages with an equal key in one band, packed, and how many of large buckets `WINDOW` left out.

    `keys` and the ascending `rows` are of the passages that count: one of each text.
    """
    order = np.argsort(keys, kind="stable")
    ordered, members = keys[order], rows[order]
    pairs = [np.empty(0, np.uint64)]
    for step in range(1, WINDOW + 1):
        same = ordered[step:] == ordered[:-step]
        if not same.any():
            break
        pairs.append(pack(members[:-step][same], members[step:][same]))
    beyond = np.maximum(np.unique(ordered, return_counts=True)[1] - WINDOW - 1, 0)
    return np.concatenate(pairs), int((beyond * (beyond + 1) // 2).sum())


@dataclass(frozen=True)
class Duplicates:
    """Passages are rows. Of passages with the same text the first stands for all of them in near-duplicate pairs."""

    first: Firsts  # for each passage the first one with the same text
    empty: np.ndarray[Any, np.dtype[np.bool_]]  # passages without a word; they repeat nothing
    pairs: IdHashes  # near-duplicates, packed, ascending
    similarity: Similarities  # of each pair

    @cached_property
    def copies(self) -> Rows:
        """Passages whose text stands earlier, ascending."""
        return np.flatnonzero(self.first != np.arange(len(self.first)))

    @cached_property
    def groups(self) -> tuple[Rows, Rows]:
        """Passages joined by any chain of repetitions: rows of all first ones, and each one's group.

        Groups count from 0 in the order of their first passage.
        """
        lower, higher = unpack(self.pairs)
        rows = np.unique(np.concatenate([self.first[self.copies].astype(np.int64), lower, higher]))
        edges = (np.searchsorted(rows, lower), np.searchsorted(rows, higher))
        graph = coo_array((np.ones(len(lower), bool), edges), shape=(len(rows), len(rows)))
        labels = connected_components(graph, directed=False)[1] if len(rows) else rows
        return rows, pd.factorize(labels)[0]

    def counts(self) -> dict[str, int]:
        """Numbers of passages, of texts that several have, of pairs of near-duplicates, and of groups of either."""
        rows, groups = self.groups
        exact = len(np.unique(self.first[self.copies]))
        return {
            "passages": len(self.first),
            "empty": int(self.empty.sum()),
            "exact_groups": exact,
            "exact_passages": exact + len(self.copies),
            "near_pairs": len(self.pairs),
            "groups": int(groups.max(initial=-1)) + 1,
            "group_passages": len(rows) + len(self.copies),
        }

    def likeness(self, some: Rows, others: Rows) -> Similarities:
        """`EXACT` for each pair (some[i], others[i]) with the same text, the similarity of near-duplicates, else 0."""
        left, right = self.first[some], self.first[others]
        packed = pack(np.minimum(left, right), np.maximum(left, right))
        at = np.searchsorted(self.pairs, packed)
        known = np.append(self.pairs, np.uint64(0))[at] == packed
        near = np.where(known & (at < len(self.pairs)), np.append(self.similarity, np.float32(0))[at], 0)
        return np.where(left == right, np.float32(EXACT), near).astype(np.float32)

    def near(self, rows: Rows) -> tuple[Rows, Rows]:
        """Near-duplicates of passages that stand for their text: (one of `rows`, the other) for each pair it is in."""
        lower, higher = unpack(self.pairs)
        low, high = np.isin(lower, rows), np.isin(higher, rows)
        return np.concatenate([lower[low], higher[high]]), np.concatenate([higher[low], lower[high]])

    def write(self, path: Path, ids: IdRows) -> None:
        """Write all relations: (group, kind, first, second, similarity), group by group.

        Kind `exact`: the second has the text of the first. Kind `near`: two different texts.
        """
        rows, groups = self.groups
        lower, higher = unpack(self.pairs)
        first = np.concatenate([self.first[self.copies].astype(np.int64), lower])
        second = np.concatenate([self.copies, higher])
        near = np.arange(len(first)) >= len(self.copies)
        similarity = np.concatenate([np.ones(len(self.copies), np.float32), self.similarity])
        group = groups[np.searchsorted(rows, first)]
        order = np.lexsort((second, first, near, group))

        def batch(some: Rows) -> pa.RecordBatch:
            kinds = pa.array(np.where(near[some], "near", "exact"), pa.string())
            names = [pa.array(ids.ids(side[some]), pa.string()) for side in (first, second)]
            return pa.record_batch([pa.array(group[some]), kinds, *names, pa.array(similarity[some])], schema=SCHEMA)

        parts = np.split(order, range(tables.ROWS_PER_GROUP, len(order), tables.ROWS_PER_GROUP))
        tables.write_batches(path, map(batch, parts), SCHEMA)


class Search:
    """A search for exact and near-duplicates among the passages of a corpus; the same for any number of workers.

    `scratch` is an empty folder, `label` names the search in lines of progress.
    """

    def __init__(self, corpus: Path, sketcher: Sketcher, scratch: Path, workers: int, label: str) -> None:
        self.corpus, self.sketcher, self.scratch, self.workers, self.label = corpus, sketcher, scratch, workers, label
        metadata = pq.read_metadata(corpus)
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self.starts: list[int] = np.cumsum([0, *sizes]).tolist()  # of the row groups; then the number of passages
        self.bands = [scratch / BAND.format(band) for band in range(sketcher.bands[0])]

    def run(self) -> tuple[Duplicates, dict[str, int]]:
        """All duplicates; numbers of pairs that were compared, and left out, once for each large bucket they are in."""
        hashes = self._sketches()
        first, empty = first_of_equal(hashes), hashes == 0
        single = np.flatnonzero((first == np.arange(len(first))) & ~empty).astype(np.uint32)
        pairs, skipped = np.empty(0, np.uint64), 0  # that share a bucket in any band, ascending, each once
        for path in self.bands:
            met, left_out = bucket_pairs(np.fromfile(path, np.uint64)[single], single)
            path.unlink()
            pairs, skipped = np.union1d(pairs, met), skipped + left_out
        similarity = self._compare(pairs)
        near = similarity >= np.float32(self.sketcher.threshold)
        counts = {"candidates": len(pairs), "skipped": skipped}
        return Duplicates(first, empty, pairs[near], similarity[near]), counts

    def _sketches(self) -> IdHashes:
        """Hashes of all passages; band keys go to files."""
        hashes = np.empty(self.starts[-1], np.uint64)
        tasks = ((self.corpus, group, self.sketcher) for group in range(len(self.starts) - 1))
        with ExitStack() as stack, Progress(f"{self.label} sketches", len(hashes), "passages") as progress:
            files = [stack.enter_context(open(path, "wb")) for path in self.bands]
            for some, keys in map_in_order(sketch, tasks, self.workers, chunk_size=1):
                hashes[progress.done : progress.done + len(some)] = some
                for file, band in zip(files, keys, strict=True):
                    file.write(band.tobytes())
                progress.add(len(some))
        return hashes

    def _compare(self, pairs: IdHashes) -> Similarities:
        lower, higher = unpack(pairs)
        rows = np.union1d(lower, higher)
        bounds = self._write_sets(rows)
        at = np.searchsorted(rows, np.stack([lower, higher], axis=1))
        some = (at[start : start + COMPARED] for start in range(0, len(at), COMPARED))
        tasks = ((self.scratch / SETS, np.stack([bounds[of], bounds[of + 1]], axis=2).reshape(-1, 4)) for of in some)
        parts = [np.empty(0, np.float32)]
        with Progress(f"{self.label} comparisons", len(pairs), "pairs") as progress:
            for part in map_in_order(similarities, tasks, self.workers, chunk_size=1):
                parts.append(part)
                progress.add(len(part))
        return np.concatenate(parts)

    def _write_sets(self, rows: Rows) -> Rows:
        """Write the shingle sets of some passages to one file; where each begins in it, and where the last ends."""
        cuts = enumerate(np.split(rows, np.searchsorted(rows, self.starts[1:-1])))
        within = ((group, own - self.starts[group]) for group, own in cuts if len(own))
        tasks = ((self.corpus, *part, self.sketcher.shingling) for part in within)
        counts = [np.zeros(1, np.int64)]
        with open(self.scratch / SETS, "wb") as file:
            for values, some in map_in_order(shingle_sets, tasks, self.workers, chunk_size=1):
                file.write(values.tobytes())
                counts.append(some)
        return np.cumsum(np.concatenate(counts))


def read_group(corpus: Path, group: int) -> list[str]:
    """Normalised contents (title and text) of the passages of a row group; empty where they have no letter or digit."""
    with open_parquet(corpus) as file:
        table = file.read_row_group(group, columns=["title", "text"])
    rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
    texts = (normalised(join_contents(title, text)) for title, text in rows)
    return [text if LETTER.search(text) else "" for text in texts]


def sketch(task: tuple[Path, int, Sketcher]) -> tuple[IdHashes, IdHashes]:
    """The hash of each passage of a row group, shape (passages,), and its band keys, (bands, passages); 0 if empty."""
    corpus, group, sketcher = task
    texts = read_group(corpus, group)
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    full = np.asarray([text != "" for text in texts], bool)
    hashes = np.frombuffer(digests, "<u8") * full
    keys = np.zeros((sketcher.bands[0], len(texts)), np.uint64)
    keys[:, full] = sketcher.keys([text for text in texts if text])
    return hashes, keys


def shingle_sets(task: tuple[Path, int, Rows, Shingling]) -> tuple[IdHashes, Rows]:
    """The distinct shingles of some passages of a row group: sorted hashes, passage after passage, and their numbers.

    The task is the corpus, the row group, rows within it, and how texts are cut.
    """
    corpus, group, rows, shingling = task
    texts = read_group(corpus, group)
    sets: list[IdHashes] = []
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
    values: IdHashes = np.memmap(path, np.uint64, "r")
    result = np.empty(len(bounds), np.float32)
    for at, (first, first_end, second, second_end) in enumerate(bounds.tolist()):
        both = len(np.intersect1d(values[first:first_end], values[second:second_end], assume_unique=True))
        result[at] = both / (first_end - first + second_end - second - both)
    return result
