"""SQuAD's JSON: SQuAD, XQuAD, DRCD and CMRC 2018.

A passage is a paragraph and its title the article's; equal ones (title and text) are one passage, whatever files they
stand in. Its id is the paragraph's own (DRCD, CMRC) or else a digest of title and text, which does not depend on the
order of files or paragraphs. The one relevant passage of a question is the paragraph it was written on.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from tandem.data.files import Files
from tandem.data.sources import Answers, Judgement, Passage, Query, Source
from tandem.data.sources.splits import files_by_split
from tandem.data.sources.squad_json import Paragraph, Question, paragraphs
from tandem.errors import UserError
from tandem.store.job import Job


class Squad(Source):
    """`files_of: {split: file}`, and perhaps `queries_of: {split: file}` with the questions in another language.

    A split of `queries_of` asks the questions of that file and no others; their paragraphs, found by the question's
    id, and their answers are those of `files_of`.
    """

    PARAMS = frozenset({"files_of", "queries_of"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        files = Files(job)
        self._files = files_by_split("files_of", job.params.get("files_of"), files)
        self._asked = files_by_split("queries_of", job.params.get("queries_of"), files)
        if not self._files:
            raise UserError("files_of: none; a file of at least one split is needed, as in files_of: {test: dev.json}")
        for split in self._asked.keys() - self._files.keys():
            raise UserError(f"queries_of.{split}: files_of has no {split}; name the file with its paragraphs there")
        several = len(set(self._files.values())) > 1
        place = files.folder if several else next(iter(self._files.values()))
        self.places = {"corpus": f"{place} paragraph", "queries": f"{place} question"}

    def corpus(self) -> Iterator[Passage]:
        """(document id, title, text) of every different paragraph."""
        known: set[str] = set()
        self.facts |= {"repeated_paragraphs": 0, "unanswerable_questions": 0}
        for _, doc, paragraph in self._paragraphs():
            self.facts["repeated_paragraphs"] += paragraph.digest in known
            self.facts["unanswerable_questions"] += paragraph.unanswerable
            if paragraph.digest not in known:
                known.add(paragraph.digest)
                yield doc, paragraph.title, paragraph.text

    def queries(self) -> Iterator[Query]:
        """(query id, text, split) of every question that is asked."""
        for split, path in self._files.items():
            for question in _questions(self._asked.get(split, path)):
                yield question.id, question.text, split

    def qrels(self) -> Iterator[Judgement]:
        """(query id, document id, 1, split): the paragraph of each question that is asked."""
        for split, doc, paragraph in self._paragraphs():
            for question in paragraph.questions:
                if question.id in self._ids[split]:
                    yield question.id, doc, 1, split

    def answers(self) -> Iterator[Answers]:
        """(query id, different answers in their order) of each question that has some and is asked."""
        for split, path in self._files.items():
            for question in _questions(path):
                if question.answers and question.id in self._ids[split]:
                    yield question.id, question.answers

    def _paragraphs(self) -> Iterator[tuple[str, str, Paragraph]]:
        """(split, document id, paragraph) of every paragraph of every split's file; equal ones share an id."""
        ids: dict[str, str] = {}
        for split, path in self._files.items():
            for paragraph in paragraphs(path):
                yield split, ids.setdefault(paragraph.digest, paragraph.own_id or paragraph.digest), paragraph

    @cached_property
    def _ids(self) -> dict[str, set[str]]:
        """Split → ids of the questions that it asks; a `UserError` on one without a paragraph in `files_of`."""
        ids = {split: {question.id for question in _questions(path)} for split, path in self._files.items()}
        for split, path in self._asked.items():
            there, ids[split] = ids[split], set()
            for question in _questions(path):
                if question.id not in there:
                    found = f"{question.where}: question {question.id} is not in {self._files[split]}"
                    raise UserError(f"{found}; every question needs its paragraph there")
                ids[split].add(question.id)
        return ids


def _questions(path: Path) -> Iterator[Question]:
    """The questions of a file, of which there must be some."""
    asked = False
    for paragraph in paragraphs(path):
        yield from paragraph.questions
        asked = asked or bool(paragraph.questions)
    if not asked:
        raise UserError(f"{path}: holds no question; name a file with questions, or leave this one out")
