"""EntityQuestions over DPR's Wikipedia passages."""

import re
from functools import cached_property

from tandem.contrib.formats.dpr import (
    PASSAGES_FILE,
    DprQuestion,
    WikipediaQuestions,
    read_questions,
)
from tandem.contrib.formats.options import EntityQuestions
from tandem.data.reading import strip_packing
from tandem.data.sources import DatasetJob, Listing, dataset_format
from tandem.data.splits import sort_key
from tandem.errors import UserError
from tandem.stages.base import Json

_RELATION_FILE = re.compile(r"(P\d+)\.(train|dev|test)\.json")


@dataset_format("entity_questions")
class EntityQuestionsSource(WikipediaQuestions):
    """Reads EntityQuestions: questions about 24 relations of Wikidata; answers decide what is relevant.

    The files are `corpus` and `dataset/<split>/<relation>.<split>.json` in the folder of `path`, packed or not. A
    question's id is its split, its relation and its number in the file, counted from 0: `test-P36-17`.
    """

    def __init__(self, job: DatasetJob, entry: EntityQuestions) -> None:
        super().__init__(job, entry, entry.corpus)
        paths = self.files.glob("dataset/*/P*.json*")
        matches = [(path, _RELATION_FILE.fullmatch(strip_packing(path.name))) for path in paths]
        named = [
            (match[2], match[1], path)
            for path, match in matches
            if match and path.parent.name == match[2]
        ]
        if not named:
            error = f"{self.files.folder}: holds no dataset/test/P36.test.json or the like"
            raise UserError(f"{error}; unpack dataset.zip there")
        self._paths = sorted(named, key=lambda file: (sort_key(file[0]), int(file[1][1:])))

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        return (
            {}
            if listing.matching(PASSAGES_FILE) and listing.matching("dataset/*/P*.json")
            else None
        )

    @cached_property
    def questions(self) -> list[DprQuestion]:
        """Return the questions of all relations, split by split, without passages; they are read once."""
        questions = []
        for split, relation, path in self._paths:
            for number, record in enumerate(read_questions(path)):
                name = f"{split}-{relation}-{number}"
                questions.append(DprQuestion(name, split, record.text, record.answers, []))
        return questions
