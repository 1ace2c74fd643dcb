"""A generated collection of any size: passages as long as those of MS MARCO, in a BEIR folder and as TSV.

Words are drawn by Zipf's law from a vocabulary of made-up ones, some with accents, quotes and commas. Every block of
passages has its own seed, so that the same size gives the same bytes and a larger collection starts with a smaller one.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BLOCK = 10_000
WORDS, QUERIES, QUERY_WORDS = 50_000, 6_980, 6
LENGTH_SHAPE, LENGTH_SCALE, LONGEST = 4.0, 14.0, 400  # gamma: 56 words on average
LETTERS = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))


def vocabulary() -> list[str]:
    """Made-up words, the frequent ones short; five characters with the space on average, weighted by frequency."""
    rng = np.random.default_rng(0)
    lengths = 2 + rng.poisson(np.log2(2 + np.arange(WORDS)) / 2.6)
    letters = LETTERS[np.minimum(rng.exponential(6, lengths.sum()).astype(int), 25)]
    words = ["".join(part) for part in np.split(letters, lengths.cumsum()[:-1])]
    for every, change in ((11, "{},"), (499, '"{}"'), (997, "{}é"), (5003, "{}中")):
        for at in range(every, WORDS, every):
            words[at] = change.format(words[at])
    return words


def escaped(words: list[str]) -> list[str]:
    """The words as they stand inside a JSON string."""
    return [json.dumps(word, ensure_ascii=False)[1:-1] for word in words]


def draws(passages: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Per block: number of its first passage, where each passage starts among the drawn words (one more for the end),
    and the numbers of those words."""
    weights = 1 / (np.arange(WORDS) + 2.7)
    below = np.cumsum(weights / weights.sum())
    for first in range(0, passages, BLOCK):
        rng = np.random.default_rng([1, first])
        lengths = np.clip(rng.gamma(LENGTH_SHAPE, LENGTH_SCALE, BLOCK).round(), 1, LONGEST).astype(np.int32)
        starts = np.concatenate([[0], lengths[: passages - first].cumsum()]).astype(np.int32)
        yield first, starts, np.searchsorted(below, rng.random(starts[-1])).clip(max=WORDS - 1)


def generate(folder: Path, passages: int) -> None:
    """Write corpus, queries and qrels of one collection: corpus.jsonl, queries.jsonl and qrels/test.tsv, which are a
    BEIR folder, and corpus.tsv and queries.tsv.

    There are as many queries as in MS MARCO's small dev set, each the first words of a passage that is its positive.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    words = vocabulary()
    plain, inside = pa.array(words), pa.array(escaped(words))
    step = max(1, passages // QUERIES)
    queries, qrels = [], ["query-id\tcorpus-id\tscore\n"]
    with open(folder / "corpus.tsv", "wb") as tsv, open(folder / "corpus.jsonl", "wb") as jsonl:
        for first, starts, drawn in draws(passages):
            ids = pa.array(map(str, range(first, first + len(starts) - 1)), pa.string())
            tsv.write(_lines(ids, "\t", _texts(plain, starts, drawn), "\n"))
            jsonl.write(_lines('{"_id": "', ids, '", "title": "", "text": "', _texts(inside, starts, drawn), '"}\n'))
            for row in range(-first % step, len(starts) - 1, step):
                asked = drawn[starts[row] : starts[row + 1]][:QUERY_WORDS]
                qrels.append(f"q{len(queries)}\t{first + row}\t1\n")
                queries.append((f"q{len(queries)}", " ".join(words[word] for word in asked)))
    (folder / "qrels" / "test.tsv").write_text("".join(qrels))
    (folder / "queries.tsv").write_text("".join(f"{query}\t{text}\n" for query, text in queries), encoding="utf-8")
    records = (json.dumps({"_id": query, "text": text}, ensure_ascii=False) + "\n" for query, text in queries)
    (folder / "queries.jsonl").write_text("".join(records), encoding="utf-8")


def _texts(words: pa.Array, starts: np.ndarray, drawn: np.ndarray) -> pa.Array:
    """The drawn words of each passage, joined by spaces."""
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(starts), words.take(pa.array(drawn))), " ")


def _lines(*parts: pa.Array | str) -> bytes:
    """Bytes of all lines, each the parts one after the other."""
    return b"".join(pc.binary_join_element_wise(*parts, "").cast(pa.binary()).to_pylist())
