"""The corpora that RocketQA released (MS MARCO with titles, Natural Questions): tab-separated files of one folder.

`para.txt` (id, text), `para.title.txt` (id, title; line by line the same ids), `<split>.query.txt` (id, text),
`qrels.<split>.tsv` (query id, passage id), `<split>.answers.txt` (query id, answers), and `qrels.train.addition.tsv`:
passages that match an answer literally.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tandem.data.collection import LITERAL_MATCH
from tandem.data.files import Files
from tandem.data.reading import fields, lines, whole
from tandem.data.select import SPLIT, order
from tandem.data.sources import Answers, Judgement, Passage, Query, Source
from tandem.errors import UserError
from tandem.store.job import Job

QUERIES = re.compile(rf"({SPLIT.pattern})\.query\.txt(?:\.gz)?")


def title_of(column: str) -> str:
    """A title; RocketQA's files write `-` for none."""
    return "" if column == "-" else column


class RocketQa(Source):
    """The folder named by `path`; any file may be gzipped. With `title: false` the titles are not even read."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        files = Files(job)
        self._texts = files.find("para.txt")
        self._titles = files.maybe("para.title.txt") if job.params.get("title", True) else None
        found = {match[1]: path for path in files.glob("*.query.txt*") if (match := QUERIES.fullmatch(path.name))}
        self._queries = {split: found[split] for split in sorted(found, key=order)}
        self._qrels = {split: path for split in self._queries if (path := files.maybe(f"qrels.{split}.tsv"))}
        self._answers = [path for split in self._queries if (path := files.maybe(f"{split}.answers.txt"))]
        self._addition = files.maybe("qrels.train.addition.tsv")
        if not self._qrels and not self._answers:
            raise UserError(f"{files.folder}: neither qrels.<split>.tsv nor <split>.answers.txt; put one of them there")
        self.places = {"corpus": str(self._texts), "queries": "query"}

    def corpus(self) -> Iterator[Passage]:
        """(id, title, text) of each line of para.txt, its title from the same line of para.title.txt."""
        untitled = 0
        titles = fields(self._titles, "passage id, title", 2) if self._titles else None
        for where, (doc, text) in fields(self._texts, "passage id, text", 2):
            title = self._title(titles, where, doc) if titles else ""
            untitled += not title
            yield doc, title, text
        self.facts["without_title"] = untitled
        for where, (doc, _) in titles or ():
            raise UserError(f"{where}: the title of passage {doc}, but {self._texts} has no line left for it")

    def _title(self, titles: Iterator[tuple[str, list[str]]], where: str, doc: str) -> str:
        """The next title, which must be that of passage `doc`."""
        there, (named, title) = next(titles, ("", ["", ""]))
        if named != doc:
            found = f"{there} is the title of {named}" if there else f"{self._titles} has ended"
            raise UserError(f"{where}: passage {doc}, but {found}; both files must list the same ids in the same order")
        return title_of(title)

    def queries(self) -> Iterator[Query]:
        """(id, text, split) of each line of the query files."""
        for split, path in self._queries.items():
            for _, (query, text) in fields(path, "query id, text", 2):
                yield query, text, split

    def qrels(self) -> Iterator[Judgement]:
        """(query id, passage id, relevance, split); what only matches literally has the relevance `LITERAL_MATCH`."""
        train: set[tuple[str, str]] = set()
        for split, path in self._qrels.items():
            for query, doc, relevance in _judged(path):
                yield query, doc, relevance, split
                if split == "train":
                    train.add((query, doc))
        self.facts["literal_matches"] = 0
        for query, doc, _ in _judged(self._addition) if self._addition else ():
            if (query, doc) not in train:
                train.add((query, doc))
                self.facts["literal_matches"] += 1
                yield query, doc, LITERAL_MATCH, "train"

    def answers(self) -> Iterator[Answers]:
        """(query id, answers) of each line of the answer files."""
        for path in self._answers:
            for _, line in lines(path):
                query, *answers = line.split("\t")
                yield query, [one for one in answers if one]


def _judged(path: Path) -> Iterator[tuple[str, str, int]]:
    """(query id, passage id, relevance) of a file of pairs, or of MS MARCO's own four columns."""
    for where, columns in fields(path, "query id, passage id (or query id, 0, passage id, relevance)", 2, 4):
        if len(columns) == 2:
            yield columns[0], columns[1], 1
        else:
            yield columns[0], columns[2], whole(where, "relevance", columns[3])
