"""A run turned over: which questions found a passage, so that each passage is read and prepared once.

A search over 21 million passages finds a few million of them. Instead of gathering their texts, the corpus streams by
and each passage is tried, as it comes, on the questions whose lists name it. Held are arrays only: about 30 bytes a
(question, passage) pair, and 60 for each distinct passage.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.rows import IdRows
from tandem.data.runs import iter_run, ranked_order
from tandem.errors import UserError

Integers = NDArray[np.int64]
ROWS = 4096  # passages of the corpus that are read, and handed to a process, at a time
QUERIES = 100  # whose lists are Python objects at a time


@dataclass(frozen=True)
class Piece:
    """Some passages and who found them.

    Attributes:
        texts: of the passages.
        asked: of each passage, numbers of the questions that found it.
        pairs: positions in `Results.questions` of these, one after another.
    """

    texts: list[str]
    asked: list[list[int]]
    pairs: Integers


class Results:
    """The top of a run for the questions that have answers: a pair for each line, in the order of the run.

    Args:
        path: the run.
        numbers: query id → number of the question; other queries of the run are left out.
        depth: passages per question, by the ranking that scoring uses.

    Attributes:
        questions: number of each pair's question.
        ranks: each pair's rank, from 1.
        docs: each pair's document, as an index into `ids`.
        ids: distinct document ids.

    Raises:
        UserError: the run holds none of the questions.
    """

    def __init__(self, path: Path, numbers: Mapping[str, int], depth: int) -> None:
        ranked = ((numbers[q], ranked_order(docs, s)[:depth]) for q, docs, s in iter_run(path) if q in numbers)
        questions, lengths, names = [], [], []
        while some := list(islice(ranked, QUERIES)):
            questions += [number for number, _ in some]
            lengths += [len(pairs) for _, pairs in some]
            names.append(pa.array([doc for _, pairs in some for doc, _ in pairs], pa.large_string()))
        if not questions:
            raise UserError(f"{path}: holds none of the {len(numbers):,} questions with answers; give a run of them")
        self.path = path
        self.questions = np.repeat(np.asarray(questions, np.int32), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        self.ranks = (np.arange(1, len(starts) + 1) - starts).astype(np.int32)
        encoded = pa.concat_arrays(names).dictionary_encode()
        self.docs = np.asarray(encoded.indices)
        self.ids = encoded.dictionary

    def __len__(self) -> int:
        return len(self.docs)

    def pieces(self, collection: Collection, title: bool, label: str) -> Iterator[Piece]:
        """The passages that were found, in the corpus' order, by one pass that ends with the last one needed.

        Args:
            collection: the corpus.
            title: a passage's text is `title . text` (DPR's `use_title`), else the text alone.
            label: of the progress.
        Raises:
            UserError: the corpus lacks a passage.
        """
        order = np.argsort(self.docs, kind="stable")
        ends = np.cumsum(np.bincount(self.docs, minlength=len(self.ids)))
        wanted = IdRows(pa.chunked_array([self.ids]), "passage", self.path)
        missing = np.ones(len(wanted), bool)
        with Progress(label, collection.passages, "passages") as progress:
            for batch in collection.batches(ROWS):
                found = wanted.rows(batch["doc_id"].to_pylist(), missing_ok=True)
                kept = batch.filter(pa.array(found >= 0))
                found = found[found >= 0]
                missing[found] = False
                texts = kept["text"].to_pylist()
                if title:
                    texts = [f"{name} . {text}" for name, text in zip(kept["title"].to_pylist(), texts, strict=True)]
                pairs = [order[ends[at - 1] if at else 0 : ends[at]] for at in found.tolist()]
                if pairs:
                    yield Piece(texts, [self.questions[some].tolist() for some in pairs], np.concatenate(pairs))
                progress.add(len(batch))
                if not missing.any():
                    return
        raise UserError(
            f"{self.path}: names {int(missing.sum()):,} passages that {collection.artifact.folder} lacks, the first "
            f"{self.ids[int(missing.argmax())]}; give a run over this corpus"
        )
