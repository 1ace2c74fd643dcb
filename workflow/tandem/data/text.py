"""Split Chinese texts into words, and measure how similar two texts are, by trigrams."""

import logging
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


@cache
def load_segmenter() -> Callable[[str], list[str]]:
    """Return a function from a text to its words, by jieba's dictionary (accurate mode).

    Words are lower case; those without a letter or digit are left out. jieba keeps a compiled dictionary in the
    temporary folder and trusts whatever is there; here it gets a folder of its own, which costs a second.
    """
    import jieba

    jieba.setLogLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = jieba.Tokenizer()
        tokenizer.tmp_dir = folder
        tokenizer.initialize()

    def segment(text: str) -> list[str]:
        words = tokenizer.cut(text)
        return [word.lower() for word in words if any(map(str.isalnum, word))]

    return segment


WORDS_PER_GRAM = 3  # words, or tokens
Grams = NDArray[np.uint64]


def hash_token_trigrams(ids: NDArray[Any]) -> Grams:
    """Hash trigrams of token ids, each once, ascending, uint64; fewer than three ids are one gram."""
    # 21 bits a token: ids are below 2 million, and 0 is the padding of a text that is too short.
    padded = np.pad(ids.astype(np.uint64) + 1, (0, max(0, WORDS_PER_GRAM - len(ids))))
    first = padded[:-2] << 42
    second = padded[1:-1] << 21
    return np.unique(first | second | padded[2:])


def measure_similarity(some: Grams, others: Grams) -> float:
    """Return the Jaccard similarity of two sets of trigrams: those shared divided by all; 0 if both are empty."""
    shared = len(np.intersect1d(some, others, assume_unique=True))
    return shared / max(1, len(some) + len(others) - shared)
