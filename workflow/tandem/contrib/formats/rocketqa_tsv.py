"""RocketQA's training files as a collection of their own.

They hold texts without ids, `dual` for dual encoders and `cross` for cross-encoders. Passages and training queries are
identified by their texts; an id is 64 bits of a blake2b hash (odds of one collision among 8.8 million passages: 1 to
500,000).
"""

from array import array
from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tandem.contrib.formats.options import RocketQATsv
from tandem.data.dataset_files import DatasetFiles
from tandem.data.mentions import Mentions
from tandem.data.sources import (
    DatasetJob,
    Judgement,
    Listed,
    Listing,
    Passage,
    Query,
    Source,
    dataset_format,
)
from tandem.data.sources.rocketqa import read_mentions
from tandem.errors import UserError
from tandem.stages.base import Json


@dataset_format("rocketqa_tsv")
class RocketQaTsvSource(Source):
    """Reads the files `dual` and `cross`, or one of them, in the folder of `path`. All queries are training queries."""

    def __init__(self, job: DatasetJob, entry: RocketQATsv) -> None:
        super().__init__(job, entry)
        if not entry.dual and not entry.cross:
            raise UserError(
                "dual, cross: neither is set; name a training file of the folder, as dual: dual.train.tsv"
            )
        files = DatasetFiles(job)
        self._dual = files.find(entry.dual) if entry.dual else None
        self._cross = files.find(entry.cross) if entry.cross else None
        self.places = {"corpus": "passage", "queries": "query"}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        keys: Json = {}
        for kind in ("dual", "cross"):
            for name in listing.matching(f"{kind}.train.tsv"):
                keys[kind] = name
        return keys or None

    def read_corpus(self) -> Iterator[Passage]:
        """Yield each passage at its first mention."""
        _, digests = self._mentions
        repeated = pd.Index(digests).duplicated()
        mentions = read_mentions(self._dual, self._cross)
        for is_repeated, (_, title, text, _) in zip(repeated, mentions, strict=True):
            if not is_repeated:
                yield f"{hash_texts(title, text):016x}", title, text

    def read_queries(self) -> Iterator[Query]:
        return ((f"{hash_texts(text):016x}", text, "train") for text in self._mentions[0].queries)

    def read_qrels(self) -> Iterator[Judgement]:
        return ((query, doc, 1, "train") for query, doc, label, _ in self.read_lists() if label > 0)

    def read_lists(self) -> Iterator[Listed]:
        """Yield each pair once; a passage that is both positive and negative is a positive, and is counted."""
        mentions, digests = self._mentions
        queries = [f"{hash_texts(text):016x}" for text in mentions.queries]
        distinct, rows = np.unique(digests, return_inverse=True)
        pairs, self.facts["both_positive_and_negative"] = mentions.pairs(rows)
        for query, row, label in zip(pairs.queries, pairs.rows, pairs.labels, strict=True):
            yield queries[query], f"{distinct[row]:016x}", int(label), None

    @cached_property
    def _mentions(self) -> "tuple[Mentions, NDArray[np.uint64]]":
        """Return all pairs, and the digest of the passage of each."""
        digests = array("Q")

        def pairs() -> Iterator[tuple[str, int]]:
            for query, title, text, label in read_mentions(self._dual, self._cross):
                digests.append(hash_texts(title, text))
                yield query, label

        return Mentions(pairs()), np.frombuffer(digests, np.uint64)


def hash_texts(*texts: str) -> int:
    """Return 64 bits of the blake2b hash of texts that hold no tab."""
    return int.from_bytes(blake2b("\t".join(texts).encode(), digest_size=8).digest(), "big")
