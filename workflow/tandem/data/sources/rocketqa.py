"""RocketQA's corpora (MS MARCO with titles, Natural Questions), and how its training files are read.

A corpus is a folder of tab-separated files: `para.txt` (id, text), `para.title.txt` (id, title; line by line the same
ids), `<split>.query.txt` (id, text), `qrels.<split>.tsv` (query id, passage id), `<split>.answers.txt` (query id,
answers), and `qrels.train.addition.tsv`: passages that match an answer literally.

Training files hold texts without ids, `dual` for dual encoders and `cross` for cross-encoders.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tandem.config import datasets
from tandem.data.collection import LITERAL_MATCH
from tandem.data.dataset_files import DatasetFiles
from tandem.data.reading import (
    is_end,
    iterate_lines,
    parse_label,
    parse_whole,
    read_fields,
    strip_packing,
)
from tandem.data.sources import (
    Answers,
    DatasetJob,
    Judgement,
    Listing,
    Passage,
    Query,
    Source,
    dataset_format,
)
from tandem.data.splits import SPLIT, sort_key
from tandem.errors import UserError
from tandem.stages.base import Json

_QUERY_FILE = re.compile(rf"({SPLIT.pattern})\.query\.txt")

_Mention = tuple[str, str, str, int]  # query, title, text, label 1 or 0


@dataset_format("rocketqa")
class RocketQaSource(Source):
    """Read the folder named by `path`; any file may be packed. With `title: false` the titles are not even read."""

    literal_matches = True

    def __init__(self, job: DatasetJob, entry: datasets.RocketQA) -> None:
        super().__init__(job, entry)
        files = DatasetFiles(job)
        self._texts = files.find("para.txt")
        self._titles = files.find_optional("para.title.txt") if job.params.title else None
        paths: dict[str, Path] = {}
        for path in files.glob("*.query.txt*"):
            match = _QUERY_FILE.fullmatch(strip_packing(path.name))
            if match:
                paths[match[1]] = path
        self._queries = {split: paths[split] for split in sorted(paths, key=sort_key)}

        self._qrels: dict[str, Path] = {}
        self._answers: list[Path] = []
        for split in self._queries:
            qrels = files.find_optional(f"qrels.{split}.tsv")
            answers = files.find_optional(f"{split}.answers.txt")
            if qrels:
                self._qrels[split] = qrels
            if answers:
                self._answers.append(answers)
        self._addition = files.find_optional("qrels.train.addition.tsv")
        if not self._qrels and not self._answers:
            raise UserError(
                f"{files.folder}: neither qrels.<split>.tsv nor <split>.answers.txt; put one of them there"
            )
        self.places = {"corpus": str(self._texts), "queries": "query"}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        return {} if listing.matching("para.txt") and listing.matching("*.query.txt") else None

    def read_corpus(self) -> Iterator[Passage]:
        """Yield (id, title, text) of each line of para.txt, its title from the same line of para.title.txt."""
        untitled = 0
        titles = read_fields(self._titles, "passage id, title", 2) if self._titles else None
        for where, (doc, text) in read_fields(self._texts, "passage id, text", 2):
            title = self._next_title(titles, where, doc) if titles else ""
            untitled += not title
            yield doc, title, text
        self.facts["without_title"] = untitled
        for where, (doc, _) in titles or ():
            raise UserError(
                f"{where}: the title of passage {doc}, but {self._texts} has no line left for it"
            )

    def _next_title(self, titles: Iterator[tuple[str, list[str]]], where: str, doc: str) -> str:
        there, (named, title) = next(titles, ("", ["", ""]))
        if named != doc:
            error = f"{there} is the title of {named}" if there else f"{self._titles} has ended"
            raise UserError(
                f"{where}: passage {doc}, but {error}; both files must list the same ids in the same order"
            )
        return read_title(title)

    def read_queries(self) -> Iterator[Query]:
        for split, path in self._queries.items():
            for _, (query, text) in read_fields(path, "query id, text", 2):
                yield query, text, split

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield the judgements; a passage that only holds the answer's words has the relevance `LITERAL_MATCH`."""
        train: set[tuple[str, str]] = set()
        for split, path in self._qrels.items():
            for query, doc, relevance in _read_judgements(path):
                yield query, doc, relevance, split
                if split == "train":
                    train.add((query, doc))
        self.facts["literal_matches"] = 0
        if not self._addition:
            return
        for query, doc, _ in _read_judgements(self._addition):
            if (query, doc) not in train:
                train.add((query, doc))
                self.facts["literal_matches"] += 1
                yield query, doc, LITERAL_MATCH, "train"

    def read_answers(self) -> Iterator[Answers]:
        """Yield each question's answers; see `Source`."""
        for path in self._answers:
            numbered = iterate_lines(path)
            for _, line in numbered:
                if not line and is_end(line, numbered):
                    break
                query, *answers = line.split("\t")
                yield query, [answer for answer in answers if answer]


def read_title(column: str) -> str:
    """Return a title; RocketQA's files write `-` for none."""
    return "" if column == "-" else column


def _read_judgements(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield (query id, passage id, relevance) of a file of pairs, or of MS MARCO's own four columns."""
    for where, columns in read_fields(
        path, "query id, passage id (or query id, 0, passage id, relevance)", 2, 4
    ):
        if len(columns) == 2:
            yield columns[0], columns[1], 1
        else:
            yield columns[0], columns[2], parse_whole(where, "relevance", columns[3])


def read_mentions(dual: Path | None, cross: Path | None) -> Iterator[_Mention]:
    """Yield every labelled pair of both training files, in order; a line of `dual` gives two pairs.

    Raises:
        UserError: another number of columns, or a label that is neither 0 nor 1.
    """
    if dual:
        for _, columns in read_fields(dual, "query, title, positive, title, negative, 0", 6):
            yield columns[0], read_title(columns[1]), columns[2], 1
            yield columns[0], read_title(columns[3]), columns[4], 0
    if cross:
        for where, (query, title, text, label) in read_fields(
            cross, "query, title, text, label", 4
        ):
            yield query, read_title(title), text, parse_label(where, label)
