"""Compute statistics of a dataset: lengths, positives and repetitions. White space separates words."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tandem.data import tables
from tandem.data.collection import LITERAL_MATCH
from tandem.data.sources import Judgement, Query
from tandem.data.validate import TextHashes

# white space of Python's `str.split` beyond ASCII
_WIDE_SPACE = r"[\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"


class Distribution(TypedDict):
    """Mean, median, 90th percentile and maximum, rounded to two digits."""

    mean: float
    median: float
    p90: float
    max: int


class PassageStatistics(TypedDict):
    """Hold a number of passages and the lengths of those that exist."""

    count: int
    words: Distribution | None
    characters: Distribution | None


class CorpusSummary(PassageStatistics):
    """Statistics of a corpus: also passages without a word, and passages that repeat an earlier text."""

    empty: int
    duplicates: int


class SplitStatistics(TypedDict):
    """Statistics of a split; `relevant` counts the passages of positive judgements, once for each judgement."""

    queries: int
    words: Distribution | None
    characters: Distribution | None
    qrels: int
    positives: Distribution | None
    without_positive: int
    relevant: PassageStatistics


def describe_distribution(values: Iterable[int] | NDArray[np.uint32]) -> Distribution | None:
    """Return the distribution of some values; None if there are none."""
    numbers = np.asarray(values if isinstance(values, array | np.ndarray) else list(values))
    if numbers.size == 0:
        return None
    return {
        "mean": round(float(numbers.mean()), 2),
        "median": round(float(np.median(numbers)), 2),
        "p90": round(float(np.percentile(numbers, 90)), 2),
        "max": int(numbers.max()),
    }


def count_text_words(texts: pa.Array) -> NDArray[np.int64]:
    """Count the words of each text, as `len(text.split())` does.

    White space is found among the bytes; texts with white space beyond ASCII, few in most languages, are split singly.
    """
    letters, bounds = tables.get_utf8(texts)
    space = (letters - 9 <= 4) | (letters - 28 <= 4)  # \t to \r, and \x1c to space, modulo 256
    # A word begins where a byte is not a space and the one before it is, or is of another text.
    begins = ~space
    begins[1:] &= space[:-1]
    is_filled = bounds[:-1] < bounds[1:]
    firsts = bounds[:-1][is_filled]
    begins[firsts] = ~space[firsts]
    counts = tables.count_marked(begins, bounds)

    wide = np.flatnonzero(tables.count_marked(letters > 127, bounds))
    has_wide_space = pc.match_substring_regex(texts.take(pa.array(wide)), _WIDE_SPACE)
    wide = wide[np.asarray(has_wide_space)]
    counts[wide] = [len(text.split()) for text in texts.take(pa.array(wide)).to_pylist()]
    return counts


def measure_lengths(
    titles: pa.Array, texts: pa.Array
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return words and characters of each passage's contents."""
    titled = pc.not_equal(titles, "")
    if pc.any(titled).as_py():
        texts = pc.if_else(titled, pc.binary_join_element_wise(titles, texts, " "), texts)
    return count_text_words(texts).astype(np.uint32), np.asarray(pc.utf8_length(texts)).astype(
        np.uint32
    )


class CorpusStatistics:
    """Measure lengths and repetitions of streamed passages; 16 bytes a passage, 16 more to count repetitions.

    `texts` takes the contents of every passage; `empty` are those without a word.
    """

    def __init__(self) -> None:
        self._words = array("I")
        self._characters = array("I")
        self.texts = TextHashes()
        self.empty = 0

    def measure(self, titles: pa.Array, texts: pa.Array) -> None:
        """Count words and characters of passages' contents."""
        self.add(*measure_lengths(titles, texts))

    def add(self, words: NDArray[np.uint32], characters: NDArray[np.uint32]) -> None:
        """Take the counts of passages' words and characters."""
        self._words.frombytes(words.tobytes())
        self._characters.frombytes(characters.tobytes())
        self.empty += int((words == 0).sum())

    def of_rows(self, rows: NDArray[np.int64]) -> PassageStatistics:
        """Return statistics of the passages in some rows; row -1 is a passage that does not exist."""
        present = rows[rows >= 0]
        words, characters = (
            np.frombuffer(counts, np.uint32)[present] for counts in (self._words, self._characters)
        )
        return {
            "count": len(rows),
            "words": describe_distribution(words),
            "characters": describe_distribution(characters),
        }

    def summary(self) -> CorpusSummary:
        """Return statistics of all passages."""
        return {
            "count": len(self._words),
            "empty": self.empty,
            "duplicates": self.texts.count_repeats(),
            "words": describe_distribution(self._words),
            "characters": describe_distribution(self._characters),
        }


def describe_splits(
    queries: Iterable[Query], judged: Iterable[Judgement], ids: TextHashes, corpus: CorpusStatistics
) -> dict[str, SplitStatistics]:
    """Return split → statistics."""
    texts: defaultdict[str, list[str]] = defaultdict(list)
    positives: defaultdict[str, dict[str, int]] = defaultdict(dict)
    qrels: Counter[str] = Counter()
    relevant: defaultdict[str, TextHashes] = defaultdict(TextHashes)
    for query, text, split in queries:
        texts[split].append(text)
        positives[split][query] = 0
    for query, doc, relevance, split in judged:
        if relevance == LITERAL_MATCH:
            continue
        qrels[split] += 1
        if relevance > 0:
            positives[split][query] += 1
            relevant[split].add([doc])
    return {
        split: {
            "queries": len(own),
            "words": describe_distribution(len(text.split()) for text in own),
            "characters": describe_distribution(map(len, own)),
            "qrels": qrels[split],
            "positives": describe_distribution(positives[split].values()),
            "without_positive": sum(n == 0 for n in positives[split].values()),
            "relevant": corpus.of_rows(ids.rows(relevant[split])),
        }
        for split, own in texts.items()
    }
