"""Any collection of the ir_datasets catalogue: documents by one id, queries and qrels of each split by another.

ir_datasets downloads missing files into `IR_DATASETS_HOME` (by default `~/.ir_datasets`). Files that a user has put
there are used unchanged, so that a machine without network can read them, too. Importing ir_datasets creates folders
below its home: it is imported only where a collection is read.
"""

import difflib
from collections.abc import Iterator
from typing import Any

import requests

from tandem.contrib.formats.files_of_splits import require_splits
from tandem.contrib.formats.options import IrDatasets
from tandem.data.sources import DatasetJob, Judgement, Passage, Query, Source, dataset_format
from tandem.errors import UserError, shortened
from tandem.extras.irds_needs import find_irds_splits, get_home

_TEXT_FIELDS = ("text", "body", "abstract")
# Collections that differ from the usual form: grade in the file → relevance; and those whose texts begin with the
# title. Cranfield's grades run from 1, a complete answer, to 4, of minimum interest; -1 is of no interest.
_GRADES = {"cranfield": {1: 4, 2: 3, 3: 2, 4: 1, -1: 0}}
_TITLE_IN_TEXT = frozenset({"cranfield"})


@dataset_format("ir_datasets")
class IrDatasetsSource(Source):
    """Reads documents of `id`, queries and qrels of `splits: {train: id, dev: [id, id], test: id, …}`."""

    def __init__(self, job: DatasetJob, entry: IrDatasets) -> None:
        super().__init__(job, entry)
        if entry.id is None:
            raise UserError("id: None; the id of an ir_datasets collection is needed")
        self._documents = _load("id", entry.id, "docs")
        splits = require_splits(
            "splits", entry.splits or find_irds_splits(entry.id), "an ir_datasets id"
        )
        self._splits: dict[str, list[tuple[Any, Any, dict[int, int] | None]]] = {}
        for split, names in splits.items():
            self._splits[split] = []
            for name in names:
                queries = _load(f"splits.{split}", name, "queries")
                qrels = _load(f"splits.{split}", name, "qrels")
                self._splits[split].append((queries, qrels, _GRADES.get(name)))
        self._titles = entry.id not in _TITLE_IN_TEXT
        self.places = {"corpus": f"ir_datasets {entry.id} document", "queries": "ir_datasets query"}

    def read_corpus(self) -> Iterator[Passage]:
        return self.read_corpus_from(0)

    def count(self) -> int | None:
        """Return the number of documents if reading can start in the middle, as only ir_datasets' own store allows."""
        try:
            store = self._documents.docs_store()
            is_sliced = store.built() and hasattr(self._documents.docs_iter(), "__getitem__")
            return int(store.count()) if is_sliced else None
        except (AttributeError, OSError, RuntimeError):
            # the collection has another store, or no files yet
            return None

    def read_corpus_from(self, row: int) -> Iterator[Passage]:
        """Yield (document id, title, text).

        The text is the field `text`, `body` or `abstract`, else ir_datasets' own.
        """
        documents = self._documents.docs_iter()
        for document in _fetch_records(documents[row:] if row else documents):
            field = next((name for name in _TEXT_FIELDS if hasattr(document, name)), None)
            text = getattr(document, field) if field else document.default_text()
            title = getattr(document, "title", "") if self._titles else ""
            yield document.doc_id, title or "", text

    def read_queries(self) -> Iterator[Query]:
        """Yield (query id, text, split) of every query of each id of a split, judged or not."""
        for split, parts in self._splits.items():
            for queries, _, _ in parts:
                for query in _fetch_records(queries.queries_iter()):
                    text = query.default_text() if hasattr(query, "default_text") else query.text
                    yield query.query_id, text, split

    def read_qrels(self) -> Iterator[Judgement]:
        for split, parts in self._splits.items():
            for _, qrels, grades in parts:
                for judged in _fetch_records(qrels.qrels_iter()):
                    relevance = judged.relevance if grades is None else grades[judged.relevance]
                    yield judged.query_id, judged.doc_id, relevance, split


def _fetch_records(records: Iterator[Any]) -> Iterator[Any]:
    """Yield records of ir_datasets, which downloads their files at the first one."""
    try:
        yield from records
    except (requests.RequestException, RuntimeError) as error:  # from one source, and from several
        hint = f"`tandem prefetch` fetches them on a machine with a network, into {get_home()} (IR_DATASETS_HOME)"
        raise UserError(
            f"ir_datasets cannot download the files: {shortened(str(error))}; {hint}"
        ) from None


def _load(key: str, name: str, part: str) -> Any:
    """Return a catalogue collection that has `part` (docs, queries or qrels); nothing is downloaded yet."""
    import ir_datasets

    try:
        dataset = ir_datasets.load(name)
    except KeyError:
        near = difflib.get_close_matches(name, ir_datasets.registry, 1)
        hint = f"did you mean {near[0]}?" if near else "its catalogue is on ir-datasets.com"
        raise UserError(f"{key}: ir_datasets knows no {name!r}; {hint}") from None
    if not getattr(dataset, f"has_{part}")():
        raise UserError(f"{key}: {name} of ir_datasets has no {part}; name one that has")
    return dataset
