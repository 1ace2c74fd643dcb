"""EntityQuestions: questions about 24 relations of Wikidata over DPR's passages; answers decide what is relevant."""

import re
from collections.abc import Iterator
from functools import cached_property

from tandem.data.files import Files
from tandem.data.select import order
from tandem.data.sources import Answers, Passage, Query, Source
from tandem.data.sources.dpr_files import Asked, passages, questions
from tandem.errors import UserError
from tandem.store.job import Job

NAME = re.compile(r"(P\d+)\.(train|dev|test)\.json(?:\.gz)?")


class EntityQuestions(Source):
    """`corpus` and `dataset/<split>/<relation>.<split>.json` in the folder of `path`, plain or gzip.

    A question's id is its split, its relation and its place in the file, counted from 0: `test-P36-17`.
    """

    PARAMS = frozenset({"corpus"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        files = Files(job)
        self._corpus = files.find(job.params.get("corpus", "psgs_w100.tsv"))
        found = [(path, NAME.fullmatch(path.name)) for path in files.glob("dataset/*/P*.json*")]
        named = [(match[2], match[1], path) for path, match in found if match and path.parent.name == match[2]]
        if not named:
            raise UserError(
                f"{files.folder}: holds no dataset/test/P36.test.json or the like; unpack dataset.zip there"
            )
        self._files = sorted(named, key=lambda one: (order(one[0]), int(one[1][1:])))
        self.places = {"corpus": f"{self._corpus} passage", "queries": "question"}

    def corpus(self) -> Iterator[Passage]:
        """(id, title, text) of every passage."""
        return passages(self._corpus)

    def queries(self) -> Iterator[Query]:
        """(id, text, split) of every question."""
        return ((name, asked.text, split) for name, split, asked in self._questions)

    def answers(self) -> Iterator[Answers]:
        """(id, answers) of every question."""
        return ((name, asked.answers) for name, _, asked in self._questions)

    @cached_property
    def _questions(self) -> list[tuple[str, str, Asked]]:
        """(id, split, question), by split and relation, read once."""
        return [
            (f"{split}-{relation}-{number}", split, asked)
            for split, relation, path in self._files
            for number, asked in enumerate(questions(path))
        ]
