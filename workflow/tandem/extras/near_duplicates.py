"""Passages that are nearly the same as a relevant one: they get its label (`near_duplicates` of a dataset)."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from tandem.data import tables
from tandem.data.collection import join_contents
from tandem.data.text import WORDS_PER_GRAM, Grams, measure_similarity

_GRAM_WORD = re.compile(r"[a-z0-9]+|[^\W_]")  # in any other script each letter is a word


def hash_trigrams(text: str) -> Grams:
    """Hash a text's word trigrams, each once, ascending, uint64; a shorter text is one trigram, no words give none."""
    words = _GRAM_WORD.findall(text.lower())
    if not words:
        return np.empty(0, np.uint64)
    count = max(1, len(words) - WORDS_PER_GRAM + 1)
    grams = [" ".join(words[first : first + WORDS_PER_GRAM]) for first in range(count)]
    return np.unique(pd.util.hash_array(np.array(grams, object), categorize=False))


def find_near_duplicates(corpus: Path, docs: set[str], threshold: float) -> dict[str, list[str]]:
    """Find passages of a corpus.parquet whose similarity to one of some documents reaches a threshold.

    Inherited and copied texts answer a query as well as the judged passage does. As unjudged passages they count as
    wrong in scoring and serve as negatives in training (DuReader-retrieval §2.3 names such false negatives). A passage
    without a word, such as "..." or an emoji, says nothing: it is near to no other.

    The result is exact. A set that is similar enough shares one of the document's rarest trigrams (prefix filtering,
    Bayardo et al. 2007). Only these are looked up, so that phrases which occur everywhere cost nothing. Memory: 8 bytes
    per trigram of `docs`; the corpus is read twice, a batch at a time.

    Args:
        threshold: above 0, at most 1.
    Returns:
        Document → its near-duplicates, in the order of the corpus; documents without any are left out.
    """
    names = []
    sets = []
    for doc, title, text in tables.stream_rows(corpus, "doc_id", "title", "text"):
        if doc in docs:
            names.append(doc)
            sets.append(hash_trigrams(join_contents(title, text)))
    grams, owners = _select_rarest(sets, threshold)

    copies: dict[str, list[str]] = {}
    for doc, title, text in tables.stream_rows(corpus, "doc_id", "title", "text"):
        own = hash_trigrams(join_contents(title, text))
        # The positions of the passage's trigrams among the rare ones, which are sorted.
        first = np.searchsorted(grams, own, "left")
        stop = np.searchsorted(grams, own, "right")
        candidates: set[int] = set()
        for gram in np.flatnonzero(stop > first):
            candidates.update(owners[first[gram] : stop[gram]].tolist())
        for owner in sorted(candidates):
            if names[owner] != doc and measure_similarity(sets[owner], own) >= threshold:
                copies.setdefault(names[owner], []).append(doc)
    return copies


def _select_rarest(sets: list[Grams], threshold: float) -> tuple[Grams, NDArray[np.int64]]:
    """Return the trigrams of each set by which every similar set is found, ascending, and the set of each."""
    if not sets:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    values, counts = np.unique(np.concatenate(sets), return_counts=True)
    chosen = []
    for grams in sets:
        # A set of n shares at least threshold · n of its trigrams with a similar one: all of these but one may be
        # left out.
        shared = int(np.ceil(threshold * len(grams) - 1e-9))
        frequencies = counts[np.searchsorted(values, grams)]
        rarest_first = np.argsort(frequencies, kind="stable")
        chosen.append(grams[rarest_first[: len(grams) - shared + 1]])

    rare = np.concatenate(chosen)
    owners = np.repeat(np.arange(len(sets)), [len(grams) for grams in chosen])
    order = np.argsort(rare, kind="stable")
    return rare[order], owners[order]


def label_near_duplicates(judged: pa.Table, corpus: Path, threshold: float) -> tuple[pa.Table, int]:
    """Give unjudged near-duplicates the grades of relevant passages; return all judgements and the number added.

    A passage near to several relevant ones of a query gets the highest of their grades.

    Args:
        judged: columns of `tables.QRELS_SCHEMA`.
        threshold: similarity from which two passages are near-duplicates.
    """
    relevant = [row for row in tables.iterate_rows(judged) if row[2] > 0]
    near = find_near_duplicates(corpus, {doc for _, doc, _, _ in relevant}, threshold)
    known = {(query, doc, split) for query, doc, _, split in tables.iterate_rows(judged)}

    added: dict[tuple[str, str, str], int] = {}
    for query, doc, grade, split in relevant:
        for other in near.get(doc, []):
            pair = query, other, split
            if pair not in known:
                added[pair] = max(grade, added.get(pair, grade))
    rows = [(query, doc, grade, split) for (query, doc, split), grade in added.items()]
    more = tables.make_table(rows, tables.QRELS_SCHEMA)
    return pa.concat_tables([judged, more]), len(rows)
