"""Find passages that repeat others: sketch all, sort into buckets, compare within a bucket, group repetitions.

The time is linear in the corpus, except for the sorting of one band at a time. Band keys and the shingle sets of
candidates are on disk: 8 bytes per band and passage, 8 per shingle of a candidate. Memory holds 8 bytes per candidate
pair (twice that while a band's pairs are added); within each bucket a passage has at most `WINDOW` pairs.
"""

import hashlib
import re
from collections.abc import Iterator
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
from tandem.contrib.audits.minhash import (
    Shingling,
    Sketcher,
    cut_into_pieces,
    normalise_for_equality,
)
from tandem.data import tables
from tandem.data.collection import join_contents
from tandem.data.rows import IdHashes, IdRows, Rows
from tandem.data.tables import open_parquet

Firsts = np.ndarray[Any, np.dtype[np.uint32]]
Similarities = np.ndarray[Any, np.dtype[np.float32]]

_SETS_FILE, _BAND_FILE = "shingles.u64", "band-{}.u64"  # in the scratch folder
_PAIRS_PER_TASK = 20_000
# A passage is compared with at most so many that follow it in a bucket. Almost all buckets are smaller. In a large one
# (thousands of passages from one template) the number of all pairs would be quadratic; neighbours still join the group.
WINDOW = 32
_ROW_BITS = np.uint64(32)  # bits of each of two rows in one 64-bit number
_LOW_ROW = np.uint64(0xFFFFFFFF)  # mask of the lower 32 bits
_LETTER = re.compile(r"[^\W_]")  # or a digit: "..." or an emoji has nothing to repeat
EXACT = 2.0  # result of `Duplicates.compare` for the same text
_DUPLICATES_SCHEMA = pa.schema([
    ("group", pa.int64()), ("kind", pa.string()), ("first", pa.string()), ("second", pa.string()),
    ("similarity", pa.float32()),
])  # fmt: skip


def pack_rows(lower: Any, higher: Any) -> IdHashes:
    """Return two rows below 2^32 as one 64-bit number that sorts by the lower, then the higher."""
    return np.asarray(
        (np.asarray(lower).astype(np.uint64) << _ROW_BITS) | np.asarray(higher).astype(np.uint64)
    )


def unpack_rows(pairs: IdHashes) -> tuple[Rows, Rows]:
    """Return the lower and the higher rows that `pack_rows` packed."""
    return (pairs >> _ROW_BITS).astype(np.int64), (pairs & _LOW_ROW).astype(np.int64)


def find_first_of_equal(hashes: IdHashes) -> Firsts:
    """Return for each passage the first row with the same hash; for an empty passage (hash 0) its own row.

    Two different texts share a 64-bit hash with odds of about 1 to 500,000 in a corpus of 8.8 million.
    """
    _, begins, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    first: Firsts = begins.astype(np.uint32)[inverse]
    empty = np.flatnonzero(hashes == 0)
    first[empty] = empty
    return first


def pair_buckets(keys: IdHashes, rows: Firsts) -> tuple[IdHashes, int]:
    """Pair passages with an equal key in one band.

    Args:
        keys: keys of the passages that count, one passage per text.
        rows: rows of these passages, ascending.
    Returns:
        The packed pairs, and the number of pairs in large buckets that `WINDOW` left out.
    """
    order = np.argsort(keys, kind="stable")
    ordered, members = keys[order], rows[order]

    # Members of a bucket are consecutive: each is compared with those 1, 2, … places after it.
    pairs = [np.empty(0, np.uint64)]
    for step in range(1, WINDOW + 1):
        same = ordered[step:] == ordered[:-step]
        if not same.any():
            break
        pairs.append(pack_rows(members[:-step][same], members[step:][same]))

    # In a bucket of n, the first member is too far from n - WINDOW - 1 others, the next from one fewer, and so on.
    sizes = np.unique(ordered, return_counts=True)[1]
    beyond = np.maximum(sizes - WINDOW - 1, 0)
    return np.concatenate(pairs), int((beyond * (beyond + 1) // 2).sum())


@dataclass(frozen=True)
class Duplicates:
    """Which passages, by their rows, repeat others.

    In near-duplicate pairs, the first of the passages with the same text represents all of them.
    """

    first: Firsts  # for each passage, the first one with the same text
    empty: np.ndarray[Any, np.dtype[np.bool_]]  # passages without a word; they repeat nothing
    pairs: IdHashes  # near-duplicates, packed, ascending
    similarity: Similarities  # of each pair

    @cached_property
    def copies(self) -> Rows:
        """Return the passages whose text occurs earlier, ascending."""
        return np.flatnonzero(self.first != np.arange(len(self.first)))

    @cached_property
    def groups(self) -> tuple[Rows, Rows]:
        """Return passages joined by any chain of repetitions: rows of the first of each text, and the group of each.

        Groups are numbered from 0 in the order of their first passage.
        """
        lower, higher = unpack_rows(self.pairs)
        rows = np.unique(np.concatenate([self.first[self.copies].astype(np.int64), lower, higher]))
        if not len(rows):
            return rows, rows

        # A graph over positions in `rows`, whose connected parts are the groups.
        edges = (np.searchsorted(rows, lower), np.searchsorted(rows, higher))
        graph = coo_array((np.ones(len(lower), bool), edges), shape=(len(rows), len(rows)))
        _, labels = connected_components(graph, directed=False)
        return rows, pd.factorize(labels)[0]

    def count(self) -> dict[str, int]:
        """Return the numbers of passages, of texts that several share, of near-duplicate pairs, and of groups."""
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

    def compare(self, some: Rows, others: Rows) -> Similarities:
        """Return the likeness of each pair (some[i], others[i]).

        It is `EXACT` for the same text, the similarity for near-duplicates, else 0.
        """
        left, right = self.first[some], self.first[others]
        packed = pack_rows(np.minimum(left, right), np.maximum(left, right))
        # A pair after the last known one is looked up at an appended 0, which is no pair.
        at = np.searchsorted(self.pairs, packed)
        is_near = (np.append(self.pairs, np.uint64(0))[at] == packed) & (at < len(self.pairs))
        near = np.where(is_near, np.append(self.similarity, np.float32(0))[at], 0)
        return np.where(left == right, np.float32(EXACT), near).astype(np.float32)

    def find_near(self, rows: Rows) -> tuple[Rows, Rows]:
        """Return near-duplicates of passages that represent their text: (one of `rows`, the other) for each pair."""
        lower, higher = unpack_rows(self.pairs)
        low, high = np.isin(lower, rows), np.isin(higher, rows)
        return np.concatenate([lower[low], higher[high]]), np.concatenate(
            [higher[low], lower[high]]
        )

    def write(self, path: Path, ids: IdRows) -> None:
        """Write all relations: (group, kind, first, second, similarity), group by group.

        Kind `exact`: the second passage has the text of the first. Kind `near`: their texts differ.
        """
        rows, groups = self.groups
        lower, higher = unpack_rows(self.pairs)
        first = np.concatenate([self.first[self.copies].astype(np.int64), lower])
        second = np.concatenate([self.copies, higher])
        is_near = np.arange(len(first)) >= len(self.copies)
        similarity = np.concatenate([np.ones(len(self.copies), np.float32), self.similarity])
        group = groups[np.searchsorted(rows, first)]
        order = np.lexsort((second, first, is_near, group))  # by group; the last key sorts first

        def make_batch(some: Rows) -> pa.RecordBatch:
            """Return some of the pairs as rows of the table."""
            columns = [
                pa.array(group[some]),
                pa.array(np.where(is_near[some], "near", "exact"), pa.string()),
                pa.array(ids.ids(first[some]), pa.string()),
                pa.array(ids.ids(second[some]), pa.string()),
                pa.array(similarity[some]),
            ]
            return pa.record_batch(columns, schema=_DUPLICATES_SCHEMA)

        parts = np.split(order, range(tables.ROWS_PER_GROUP, len(order), tables.ROWS_PER_GROUP))
        tables.write_batches(path, map(make_batch, parts), _DUPLICATES_SCHEMA)


class DuplicateSearch:
    """Search for exact and near-duplicates among the passages of a corpus; the same for any number of workers.

    Args:
        scratch: an empty folder.
        label: the name of the search in lines of progress.
    """

    def __init__(
        self, corpus: Path, sketcher: Sketcher, scratch: Path, workers: int, label: str
    ) -> None:
        self.corpus = corpus
        self.sketcher = sketcher
        self.scratch = scratch
        self.workers = workers
        self.label = label
        metadata = pq.read_metadata(corpus)
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        # first rows of the row groups, then the number of passages
        self.starts: list[int] = np.cumsum([0, *sizes]).tolist()
        self.bands = [scratch / _BAND_FILE.format(band) for band in range(sketcher.bands[0])]

    def run(self) -> tuple[Duplicates, dict[str, int]]:
        """Return all duplicates, and the numbers of pairs compared and left out.

        A pair that is left out counts once for each large bucket that it is in.
        """
        hashes = self._sketch()
        first, empty = find_first_of_equal(hashes), hashes == 0
        is_first = first == np.arange(len(first))
        single = np.flatnonzero(is_first & ~empty).astype(np.uint32)

        # pairs that share a bucket in any band, ascending, each once
        pairs, skipped = np.empty(0, np.uint64), 0
        for path in self.bands:
            met, left_out = pair_buckets(np.fromfile(path, np.uint64)[single], single)
            path.unlink()
            pairs = np.union1d(pairs, met)
            skipped += left_out

        similarity = self._compare(pairs)
        is_near = similarity >= np.float32(self.sketcher.threshold)
        counts = {"candidates": len(pairs), "skipped": skipped}
        return Duplicates(first, empty, pairs[is_near], similarity[is_near]), counts

    def _sketch(self) -> IdHashes:
        """Return hashes of all passages; band keys go to files."""
        hashes = np.empty(self.starts[-1], np.uint64)
        tasks = ((self.corpus, group, self.sketcher) for group in range(len(self.starts) - 1))
        with (
            ExitStack() as stack,
            Progress(f"{self.label} sketches", len(hashes), "passages") as progress,
        ):
            files = [stack.enter_context(open(path, "wb")) for path in self.bands]
            for group_hashes, keys in map_in_order(sketch_group, tasks, self.workers, chunk_size=1):
                hashes[progress.done : progress.done + len(group_hashes)] = group_hashes
                for file, band in zip(files, keys, strict=True):
                    file.write(band.tobytes())
                progress.add(len(group_hashes))
        return hashes

    def _compare(self, pairs: IdHashes) -> Similarities:
        """Return the similarity of each pair."""
        lower, higher = unpack_rows(pairs)
        rows = np.union1d(lower, higher)
        bounds = self._write_sets(rows)
        # positions of each pair's sets, shape (pairs, 2)
        sets = np.searchsorted(rows, np.stack([lower, higher], axis=1))

        def list_tasks() -> Iterator[tuple[Path, Rows]]:
            """Yield the pairs a part at a time; each set is given by its beginning and end in the file."""
            for start in range(0, len(sets), _PAIRS_PER_TASK):
                part = sets[start : start + _PAIRS_PER_TASK]
                # The beginning and end of the first set, then those of the second: shape (pairs, 4).
                yield (
                    self.scratch / _SETS_FILE,
                    np.stack([bounds[part], bounds[part + 1]], axis=2).reshape(-1, 4),
                )

        parts = [np.empty(0, np.float32)]
        with Progress(f"{self.label} comparisons", len(pairs), "pairs") as progress:
            for similarities in map_in_order(
                compare_sets, list_tasks(), self.workers, chunk_size=1
            ):
                parts.append(similarities)
                progress.add(len(similarities))
        return np.concatenate(parts)

    def _write_sets(self, rows: Rows) -> Rows:
        """Write the shingle sets of some passages to one file.

        Returns:
            The position in the file where each set begins, and where the last one ends.
        """
        by_group = np.split(rows, np.searchsorted(rows, self.starts[1:-1]))

        def list_tasks() -> Iterator[tuple[Path, int, Rows, Shingling]]:
            """Yield each group's rows, if it has any, counted within the group."""
            for group, group_rows in enumerate(by_group):
                if len(group_rows):
                    yield (
                        self.corpus,
                        group,
                        group_rows - self.starts[group],
                        self.sketcher.shingling,
                    )

        counts = [np.zeros(1, np.int64)]
        with open(self.scratch / _SETS_FILE, "wb") as file:
            for shingles, set_sizes in map_in_order(
                make_shingle_sets, list_tasks(), self.workers, chunk_size=1
            ):
                file.write(shingles.tobytes())
                counts.append(set_sizes)
        return np.cumsum(np.concatenate(counts))


def read_contents(corpus: Path, group: int) -> list[str]:
    """Read the normalised contents (title and text) of a row group's passages; empty without a letter or digit."""
    with open_parquet(corpus) as file:
        table = file.read_row_group(group, columns=["title", "text"])
    rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
    texts = (normalise_for_equality(join_contents(title, text)) for title, text in rows)
    return [text if _LETTER.search(text) else "" for text in texts]


def sketch_group(task: tuple[Path, int, Sketcher]) -> tuple[IdHashes, IdHashes]:
    """Return the hash of each passage of a row group, shape (passages,), and its band keys, (bands, passages).

    Both are 0 for an empty passage.
    """
    corpus, group, sketcher = task
    texts = read_contents(corpus, group)
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    is_full = np.asarray([text != "" for text in texts], bool)
    hashes = np.frombuffer(digests, "<u8") * is_full
    keys = np.zeros((sketcher.bands[0], len(texts)), np.uint64)
    keys[:, is_full] = sketcher.hash_bands([text for text in texts if text])
    return hashes, keys


def make_shingle_sets(task: tuple[Path, int, Rows, Shingling]) -> tuple[IdHashes, Rows]:
    """Return the distinct shingles of passages of a row group: sorted hashes, passage after passage, and their counts.

    Args:
        task: the corpus, the row group, rows within it, and how texts are cut.
    """
    corpus, group, rows, shingling = task
    texts = read_contents(corpus, group)
    sets: list[IdHashes] = []
    for piece in cut_into_pieces([texts[row] for row in rows.tolist()]):
        hashes, counts = shingling.hash_texts(piece)
        sets += [np.unique(text_hashes) for text_hashes in np.split(hashes, np.cumsum(counts)[:-1])]
    return np.concatenate(sets), np.asarray([len(shingles) for shingles in sets], np.int64)


def compare_sets(task: tuple[Path, Rows]) -> Similarities:
    """Return the Jaccard similarity of pairs of shingle sets, common shingles over all in either set; shape (pairs,).

    Args:
        task: the file of all sets' hashes, and the positions in it where the two sets of each pair begin and end, shape
            (pairs, 4); pairs with the same first set are consecutive.
    """
    path, bounds = task
    values: IdHashes = np.memmap(path, np.uint64, "r")
    result = np.empty(len(bounds), np.float32)
    for pair, (first, first_end, second, second_end) in enumerate(bounds.tolist()):
        common = len(
            np.intersect1d(values[first:first_end], values[second:second_end], assume_unique=True)
        )
        result[pair] = common / (first_end - first + second_end - second - common)
    return result
