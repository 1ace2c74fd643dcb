"""One dataset's passages with another's queries: questions over a corpus from elsewhere, or in another language."""

from collections.abc import Iterator

from tandem.data.collection import CORPUS, QUERIES
from tandem.data.files import Files
from tandem.data.select import order
from tandem.data.sources import Answers, Judgement, Listed, Passage, Query, Source
from tandem.data.sources.artifact_rows import ArtifactRows, needed
from tandem.data.sources.beir import Beir
from tandem.errors import UserError
from tandem.store.job import Job


class Questions(Beir):
    """A folder in BEIR's layout without a corpus: queries.jsonl with answers.jsonl, qrels/, or both."""

    def __init__(self, job: Job) -> None:
        Source.__init__(self, job)
        files = Files(job)
        self._queries, self._answers = files.find("queries.jsonl"), files.maybe("answers.jsonl")
        found = {path.name.split(".tsv")[0]: path for path in files.glob("qrels/*.tsv*", needed=not self._answers)}
        self._qrels = {split: found[split] for split in sorted(found, key=order)}
        self.places = {"queries": str(self._queries)}


class Pair(Source):
    """The passages of the input `corpus`, with the queries of the input `queries` or, without it, of the folder `path`.

    Judgements and training lists name passages by id: those the corpus lacks are dealt with as in any dataset.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        if "queries" in job.inputs and job.execution.path:
            raise UserError(f"dataset {job.key}: has both queries_of and path; the queries come from one of them")
        self._corpus = ArtifactRows(needed(job, "corpus", "dataset"))
        self.places, self.facts = {"corpus": self._corpus.place(CORPUS)}, {"corpus": self._corpus.artifact.key}
        self._asked: ArtifactRows | Questions
        if "queries" in job.inputs:
            self._asked = ArtifactRows(needed(job, "queries", "dataset"))
            self.places["queries"] = self._asked.place(QUERIES)
            self.facts["queries"] = self._asked.artifact.key
        else:
            self._asked = Questions(job)
            self.places["queries"] = self._asked.places["queries"]

    def corpus(self) -> Iterator[Passage]:
        """Every passage of the one."""
        return self._corpus.corpus()

    def queries(self) -> Iterator[Query]:
        """Every query of the other."""
        return self._asked.queries()

    def qrels(self) -> Iterator[Judgement]:
        """Its judgements."""
        return self._asked.qrels()

    def answers(self) -> Iterator[Answers]:
        """Its answers."""
        return self._asked.answers()

    def lists(self) -> Iterator[Listed]:
        """Its training lists."""
        return self._asked.lists()
