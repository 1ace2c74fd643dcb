"""Texts with MS MARCO's lengths, made of words that are single tokens of a tokenizer's vocabulary; and API
documentation: real texts that every machine has.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

PASSAGE = (4.22, 0.38)  # log-normal: mean 73 tokens, one in twenty above 127
QUERY = (2.0, 0.45)  # mean 8.2
LONGEST = {"passage": 126, "query": 30}  # 128 and 32 with two special tokens


@dataclass(frozen=True)
class Examples:
    """Training lists as texts: the queries, and each query's passages, of which the first is relevant."""

    queries: list[str]
    passages: list[list[str]]


def lengths(rng: np.random.Generator, side: str, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the numbers of tokens of `count` texts, without special tokens."""
    mean, deviation = PASSAGE if side == "passage" else QUERY
    drawn = rng.lognormal(mean, deviation, count).round().astype(np.int64)
    return drawn.clip(2, LONGEST[side])


def whole_words(tokenizer: Any) -> list[str]:
    """Return the words of the vocabulary that are one token each."""
    return sorted(
        word
        for word in tokenizer.get_vocab()
        if word.isascii() and word.isalpha() and word.islower()
    )


def make(tokenizer: Any, lists: int, size: int, seed: int = 0) -> Examples:
    """Return lists of `size` passages; words are drawn at random, so that only the lengths have a meaning."""
    rng, words = np.random.default_rng(seed), np.array(whole_words(tokenizer))

    def text(length: int) -> str:
        """Return a text of `length` tokens."""
        return " ".join(words[rng.integers(len(words), size=length)])

    queries = [text(length) for length in lengths(rng, "query", lists)]
    flat = [text(length) for length in lengths(rng, "passage", lists * size)]
    return Examples(queries, [flat[i * size : (i + 1) * size] for i in range(lists)])


def documentation(lists: int, size: int, seed: int = 0) -> Examples:
    """Return lists of `size` passages of the embedded default's collection, `pydocs`; no passage occurs twice."""
    passages, queries = collected()
    if lists * size > len(passages) or lists > len(queries):
        raise SystemExit(
            f"{lists * size:,} passages are wanted, the collection has {len(passages):,}"
        )
    rng = np.random.default_rng(seed)
    drawn, order = (
        rng.permutation(len(passages))[: lists * size].reshape(lists, size),
        rng.permutation(len(queries)),
    )
    return Examples(
        [queries[i] for i in order[:lists]], [[passages[i] for i in row] for row in drawn]
    )


@cache
def collected() -> tuple[list[str], list[str]]:
    """Return the passages and queries of `pydocs`."""
    from tandem.config import datasets
    from tandem.data.sources.pydocs import PyDocsSource
    from tandem.store.job import Job

    entry = datasets.PyDocs(
        source="pydocs", packages=("numpy", "pandas", "sklearn"), passage_words=40
    )
    source = PyDocsSource(Job("dataset", Path(), {"source": "pydocs"}, {}), entry)
    return [text for _, _, text in source.read_corpus()], [
        text for _, text, _ in source.read_queries()
    ]
