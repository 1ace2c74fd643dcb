"""A generated collection of any size: passages as long as those of MS MARCO, in a BEIR folder and as TSV.

Words are drawn by Zipf's law from a vocabulary of made-up words, some with accents, quotes and commas. Every block of
passages has its own seed, so that the same size has the same bytes and a larger collection starts with a smaller one. A
query consists of the rarest words of its one positive and of the two words at its beginning, so that results can be
checked.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BLOCK = 10_000
WORDS, QUERIES = 50_000, 6_980
RARE, FIRST = 4, 2  # words of a query
LENGTH_SHAPE, LENGTH_SCALE, LONGEST = 4.0, 14.0, 400  # gamma distribution: 56 words on average
LETTERS = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))


def vocabulary() -> list[str]:
    """Return made-up words; frequent ones are short. Weighted by frequency, a word with its space has 5 characters."""
    rng = np.random.default_rng(0)
    lengths = 2 + rng.poisson(np.log2(2 + np.arange(WORDS)) / 2.6)
    letters = LETTERS[np.minimum(rng.exponential(6, lengths.sum()).astype(int), 25)]
    words = ["".join(part) for part in np.split(letters, lengths.cumsum()[:-1])]
    for every, change in ((11, "{},"), (499, '"{}"'), (997, "{}é"), (5003, "{}中")):
        for at in range(every, WORDS, every):
            words[at] = change.format(words[at])
    return words


def escaped(words: list[str]) -> list[str]:
    """Return the words as they are written inside a JSON string."""
    return [json.dumps(word, ensure_ascii=False)[1:-1] for word in words]


def draws(passages: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield for each block the number of its first passage, where each passage starts among the drawn words (with one
    more for the end), and the numbers of those words."""
    weights = 1 / (np.arange(WORDS) + 2.7)
    below = np.cumsum(weights / weights.sum())
    for first in range(0, passages, BLOCK):
        rng = np.random.default_rng([1, first])
        lengths = np.clip(rng.gamma(LENGTH_SHAPE, LENGTH_SCALE, BLOCK).round(), 1, LONGEST).astype(
            np.int32
        )
        starts = np.concatenate([[0], lengths[: passages - first].cumsum()]).astype(np.int32)
        yield first, starts, np.searchsorted(below, rng.random(starts[-1])).clip(max=WORDS - 1)


def generate(folder: Path, passages: int, queries: Mapping[str, int] | None = None) -> None:
    """Write corpus, queries and qrels of one collection: corpus.jsonl, queries.jsonl and qrels/<split>.tsv, which are a
    BEIR folder, and corpus.tsv and queries.tsv.

    Args:
        folder: the collection's folder.
        passages: number of passages.
        queries: number of queries of each split, spread evenly over the passages; by default as many as MS MARCO's
            small dev set has, as the split `test`. All splits together have at most half as many as there are passages.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    words = vocabulary()
    plain, inside = pa.array(words), pa.array(escaped(words))
    positives = planted(passages, queries or {"test": QUERIES})
    with ExitStack() as files:
        tsv, jsonl = (
            files.enter_context(open(folder / f"corpus.{form}", "wb")) for form in ("tsv", "jsonl")
        )
        texts = files.enter_context(open(folder / "queries.tsv", "w", encoding="utf-8"))
        records = files.enter_context(open(folder / "queries.jsonl.part", "w", encoding="utf-8"))
        qrels = {
            split: files.enter_context(open(folder / f"qrels/{split}.tsv", "w"))
            for split in positives
        }
        for file in qrels.values():
            file.write("query-id\tcorpus-id\tscore\n")
        for first, starts, drawn in draws(passages):
            ids = pa.array(map(str, range(first, first + len(starts) - 1)), pa.string())
            tsv.write(_lines(ids, "\t", _texts(plain, starts, drawn), "\n"))
            jsonl.write(
                _lines(
                    '{"_id": "',
                    ids,
                    '", "title": "", "text": "',
                    _texts(inside, starts, drawn),
                    '"}\n',
                )
            )
            for split, rows in positives.items():
                for row in rows[slice(*np.searchsorted(rows, [first, first + len(starts) - 1]))]:
                    own, text = (
                        f"{split}{row}",
                        query_of(drawn[starts[row - first] : starts[row - first + 1]], words),
                    )
                    texts.write(f"{own}\t{text}\n")
                    records.write(json.dumps({"_id": own, "text": text}, ensure_ascii=False) + "\n")
                    qrels[split].write(f"{own}\t{row}\t1\n")
    (folder / "queries.jsonl.part").rename(folder / "queries.jsonl")  # last: all others then exist


def planted(passages: int, queries: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return for each split the passages that are a query's positive, ascending; no passage occurs twice."""
    count = sum(queries.values())
    if count > passages // 2:
        raise SystemExit(f"{count:,} queries are more than half of {passages:,} passages")
    rows = np.random.default_rng(2).permutation((np.arange(count) * (passages / count)).astype(int))
    parts = np.split(rows, np.cumsum(list(queries.values()))[:-1])
    return {split: np.sort(part) for split, part in zip(queries, parts, strict=True)}


def query_of(passage: np.ndarray, words: list[str]) -> str:
    """Return the query of a passage of word numbers: its first words and its rarest, which have the largest numbers."""
    rarest = np.unique(passage)[-RARE:]
    return " ".join(words[word] for word in [*passage[:FIRST], *rarest])


def _texts(words: pa.Array, starts: np.ndarray, drawn: np.ndarray) -> pa.Array:
    """Return the drawn words of each passage, joined by spaces."""
    return pc.binary_join(
        pa.ListArray.from_arrays(pa.array(starts), words.take(pa.array(drawn))), " "
    )


def _lines(*parts: pa.Array | str) -> bytes:
    """Return the bytes of all lines; each line is the concatenation of the parts."""
    return b"".join(pc.binary_join_element_wise(*parts, "").cast(pa.binary()).to_pylist())
