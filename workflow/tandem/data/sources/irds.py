"""Any collection of the ir_datasets catalogue: documents by one id, queries and qrels of each split by another.

ir_datasets downloads what it misses into `IR_DATASETS_HOME` (by default `~/.ir_datasets`); files put there by hand are
used as they are, so that a machine without network can have them too.
"""

from collections.abc import Iterator
from typing import Any

import ir_datasets

from tandem.data.select import SPLIT
from tandem.data.sources import Judgement, Passage, Query, Source
from tandem.errors import UserError
from tandem.store.job import Job

TEXT_FIELDS = ("text", "body", "abstract")
# Collections that are not as the field expects: grade in the file → relevance, and titles that the texts begin with
# already. Cranfield grades from 1, a complete answer, to 4, of minimum interest; -1 is of no interest.
GRADES = {"cranfield": {1: 4, 2: 3, 3: 2, 4: 1, -1: 0}}
TITLE_IN_TEXT = frozenset({"cranfield"})


class IrDatasets(Source):
    """Documents of `id`, queries and qrels of `splits: {train: id, dev: [id, id], test: id, …}`.

    Without `splits`: `id/train`, `id/dev`, `id/test` as far as the catalogue has them, else `id` as test.
    """

    PARAMS = frozenset({"id", "splits"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        params = job.params
        if not isinstance(params.get("id"), str):
            raise UserError(f"id: {params.get('id')!r}; the id of an ir_datasets collection is needed")
        splits = params.get("splits") or _found(params["id"])
        if not isinstance(splits, dict) or not splits or not all(map(SPLIT.fullmatch, splits)):
            raise UserError(f"splits: {splits!r}; at least one of train, dev, test with an ir_datasets id is needed")
        self._documents = _load("id", params["id"], "docs")
        self._splits = {
            split: [
                (_load(f"splits.{split}", name, "queries"), _load(f"splits.{split}", name, "qrels"), GRADES.get(name))
                for name in ([told] if isinstance(told, str) else told)
            ]
            for split, told in splits.items()
        }
        self._titles = params["id"] not in TITLE_IN_TEXT
        self.places = {"corpus": f"ir_datasets {params['id']} document", "queries": "ir_datasets query"}

    def corpus(self) -> Iterator[Passage]:
        """(document id, title, text): the text is the field `text`, `body` or `abstract`, else ir_datasets' own."""
        for document in self._documents.docs_iter():
            field = next((name for name in TEXT_FIELDS if hasattr(document, name)), None)
            text = getattr(document, field) if field else document.default_text()
            title = getattr(document, "title", "") if self._titles else ""
            yield document.doc_id, title or "", text

    def queries(self) -> Iterator[Query]:
        """(query id, text, split) of every query of each split's id, judged or not."""
        for split, parts in self._splits.items():
            for queries, _, _ in parts:
                for query in queries.queries_iter():
                    yield query.query_id, query.default_text(), split

    def qrels(self) -> Iterator[Judgement]:
        """(query id, document id, relevance, split) of each split's id."""
        for split, parts in self._splits.items():
            for _, qrels, grades in parts:
                for judged in qrels.qrels_iter():
                    relevance = judged.relevance if grades is None else grades[judged.relevance]
                    yield judged.query_id, judged.doc_id, relevance, split


def _found(name: str) -> dict[str, str]:
    """The splits that a collection's own ids suggest."""
    known = ir_datasets.registry
    there = {split: f"{name}/{split}" for split in ("train", "dev", "test") if f"{name}/{split}" in known}
    if there or name not in known:
        return there
    whole = ir_datasets.load(name)
    return {"test": name} if whole.has_queries() and whole.has_qrels() else {}


def _load(key: str, name: str, part: str) -> Any:
    """A collection of the catalogue that has `part` (docs, queries or qrels); nothing is downloaded yet."""
    try:
        dataset = ir_datasets.load(name)
    except KeyError:
        raise UserError(f"{key}: ir_datasets knows no {name!r}; its catalogue is on ir-datasets.com") from None
    if not getattr(dataset, f"has_{part}")():
        raise UserError(f"{key}: {name} of ir_datasets has no {part}; name one that has")
    return dataset
