"""KILT (Petroni et al. 2021): questions, claims and dialogues of eleven datasets over one snapshot of Wikipedia.

    kilt_knowledgesource.json    {"wikipedia_id", "wikipedia_title", "text": [paragraph, …]}, a page a line
    nq-dev-kilt.jsonl, …         {"id", "input", "output": [{"answer", "provenance": [{"wikipedia_id",
                                   "start_paragraph_id", "end_paragraph_id"}]}]}

A passage is either a page, whose first paragraph is its title, or a paragraph. A paragraph has the id
`<page>-<number>`, counted from 0 as in the provenance. Passages named by any provenance of an output are relevant. A
query's id is `<split>.<id>`, since each dataset numbers its own queries.
"""

from collections.abc import Iterator

from tandem.contrib.formats.files_of_splits import find_by_split
from tandem.contrib.formats.options import Kilt
from tandem.data.dataset_files import DatasetFiles
from tandem.data.reading import JsonObject, read_records, read_text
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
from tandem.errors import UserError
from tandem.extras.records import read_objects, read_texts
from tandem.extras.split_names import match_by_split
from tandem.stages.base import Json


@dataset_format("kilt")
class KiltSource(Source):
    """Reads the knowledge source and `questions: {split: file}`; each dataset may be a split of its own."""

    def __init__(self, job: DatasetJob, entry: Kilt) -> None:
        super().__init__(job, entry)
        files = DatasetFiles(job)
        self._corpus = files.find(entry.corpus)
        self._tasks = find_by_split("questions", entry.questions, files)
        if not self._tasks:
            raise UserError(
                "questions: none; a file of at least one split is needed: {dev: nq-dev-kilt.jsonl}"
            )
        self._by_paragraph = entry.unit == "paragraph"
        self.places = {"corpus": str(self._corpus), "queries": "kilt question"}
        if self._by_paragraph:
            self.places["corpus"] = f"{self._corpus} paragraph"

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        names = listing.matching("*-kilt.jsonl")
        if not names or not listing.matching("kilt_knowledgesource.json"):
            return None
        return {"questions": match_by_split(names)}

    def read_corpus(self) -> Iterator[Passage]:
        """Yield the pages, or their paragraphs, each with the page's title."""
        for where, record in read_records(self._corpus):
            page = read_text(where, record, "wikipedia_id", number=True)
            title = read_text(where, record, "wikipedia_title")
            paragraphs = [text.strip() for text in read_texts(where, "text", record.get("text"))]
            if self._by_paragraph:
                for number, text in enumerate(paragraphs):
                    yield name_paragraph(page, number), title, text
            else:
                if paragraphs and paragraphs[0] == title.strip():
                    paragraphs = paragraphs[1:]
                yield page, title, " ".join(filter(None, paragraphs))

    def read_queries(self) -> Iterator[Query]:
        for split, where, record in self._records():
            yield name_query(where, split, record), read_text(where, record, "input"), split

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield each page or paragraph that the provenance of an output names, once per query."""
        for split, where, record in self._records():
            query = name_query(where, split, record)
            relevant: dict[str, None] = {}
            for output in read_objects(where, "output", record.get("output", [])):
                for provenance in read_objects(where, "provenance", output.get("provenance", [])):
                    relevant |= dict.fromkeys(self._name_provenance(where, provenance))
            yield from ((query, doc, 1, split) for doc in relevant)

    def read_answers(self) -> Iterator[Answers]:
        """Yield the answers of each query that has any, each answer once."""
        for split, where, record in self._records():
            outputs = read_objects(where, "output", record.get("output", []))
            answers = [
                read_text(where, output, "answer")
                for output in outputs
                if output.get("answer") is not None
            ]
            if answers:
                yield name_query(where, split, record), list(dict.fromkeys(answers))

    def _records(self) -> Iterator[tuple[str, str, JsonObject]]:
        """Yield (split, place, record) of every question."""
        for split, path in self._tasks.items():
            for where, record in read_records(path):
                yield split, where, record

    def _name_provenance(self, where: str, provenance: JsonObject) -> Iterator[str]:
        """Yield the ids of the passages that a provenance names."""
        page = read_text(where, provenance, "wikipedia_id", number=True)
        if not self._by_paragraph:
            yield page
            return
        first, last = provenance.get("start_paragraph_id"), provenance.get("end_paragraph_id")
        if type(first) is not int or type(last) is not int or not 0 <= first <= last:
            problem = f"{where}: start_paragraph_id is {first!r} and end_paragraph_id {last!r}"
            raise UserError(f"{problem}; two numbers are needed, or unit: page")
        for number in range(first, last + 1):
            yield name_paragraph(page, number)


def name_query(where: str, split: str, record: JsonObject) -> str:
    """Return a question's id, preceded by its split, and without white space, which no id may hold."""
    return f"{split}.{'_'.join(read_text(where, record, 'id', number=True).split())}"


def name_paragraph(page: str, number: int) -> str:
    """Return the id of a page's paragraph."""
    return f"{page}-{number}"
