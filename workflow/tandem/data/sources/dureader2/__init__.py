"""DuReader 2.0 as passage retrieval: what DuReader-retrieval was built from, by the steps of its paper (§2.2.2).

A question's documents are cut into passages of some length, a passage is positive if a span of it matches an answer
that a person wrote, and titles are left out. Questions without a positive passage are dropped, and their passages stay:
somebody else's question may meet them. Equal passages are one, named by its md5.
"""

from collections.abc import Iterator
from functools import partial
from itertools import tee
from operator import itemgetter
from pathlib import Path

from tandem.cluster.progress import Progress
from tandem.data.files import Files
from tandem.data.select import SPLIT, order
from tandem.data.sources import Answers, Judgement, Passage, Query, Source
from tandem.data.sources.dureader2.collected import Collected
from tandem.data.sources.dureader2.label import UNITS, Rules, digest, labelled, texts
from tandem.data.sources.dureader2.parallel import ordered_map
from tandem.data.sources.dureader2.records import Question, questions
from tandem.errors import UserError
from tandem.store.job import Job

Located = tuple[str, str, Question]  # split, file:line, question


class Dureader2(Source):
    """Files of `splits: {train: [file, …], dev: [file, …], …}` below `path`, each of JSON lines.

    Parameters: `splits`; `unit` of the span-level F1, `characters` (default) or `words`, which the paper leaves open;
    `threshold`, the F1 that makes a paragraph positive, 0.5; `passage_characters`, the length in characters at which a
    passage is long enough, 256.
    """

    PARAMS = frozenset({"splits", "unit", "threshold", "passage_characters"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._rules, self._workers = _rules(job), int(job.execution.workers or 1)
        splits = job.params.get("splits")
        if not isinstance(splits, dict) or not splits or not all(map(SPLIT.fullmatch, splits)):
            raise UserError(f"splits: {splits!r}; at least one of train, dev, test with a list of files is needed")
        for split, names in splits.items():
            if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
                raise UserError(f"splits.{split}: {names!r}; a list of file names is needed")
        files = Files(job)
        self._files: list[tuple[str, Path]] = [
            (split, files.find(name)) for split in sorted(splits, key=order) for name in splits[split]
        ]
        self.places = {"corpus": "dureader2 passages", "queries": "dureader2 questions"}
        self._collected: Collected | None = None

    def corpus(self) -> Iterator[Passage]:
        """(md5 of its text, "", text) of each different passage, where it first comes."""
        first = iter(self._collection().first_of_equal())
        passages = characters = 0
        for _, _, question in self._questions():
            for text in texts(question, self._rules):
                if next(first):
                    passages += 1
                    characters += len(text)
                    yield digest(text).hex(), "", text
        self.facts |= {"passages": passages, "mean_characters": characters / max(1, passages)}

    def queries(self) -> Iterator[Query]:
        """(question id, text, split) of each question with a positive passage."""
        for query, (text, split) in self._collection().queries.items():
            yield query, text, split

    def qrels(self) -> Iterator[Judgement]:
        """(question id, md5 of the passage, 1, split) of each positive passage of each question."""
        collected = self._collection()
        for query, positives in collected.positives.items():
            for positive in positives:
                yield query, positive.hex(), 1, collected.queries[query][1]

    def answers(self) -> Iterator[Answers]:
        """(question id, its answers) of each question with a positive passage."""
        kept = self._collection().queries
        for _, _, question in self._questions():
            if question.id in kept:
                yield question.id, question.answers

    def _questions(self) -> Iterator[Located]:
        """All questions, file by file."""
        for split, path in self._files:
            for where, question in questions(path):
                yield split, where, question

    def _collection(self) -> Collected:
        """The labels of all questions, found at the first call: this is the long work."""
        if self._collected is None:
            collected = Collected()
            located, again = tee(self._questions())  # as far apart as the processes are ahead
            label = partial(labelled, rules=self._rules)
            results = ordered_map(label, map(itemgetter(2), again), self._workers)
            with Progress("dureader2", 0, "questions") as progress:
                for (split, where, question), passages in zip(located, results, strict=True):
                    collected.add(where, split, question, passages)
                    progress.add(1)
            self.facts["questions_without_positive"] = dict(collected.without)
            self.facts["positives_per_query"] = collected.positives_per_query()
            self._collected = collected
        return self._collected


def _rules(job: Job) -> Rules:
    """The parameters of passages and labels, checked."""
    unit, threshold = job.params.get("unit", UNITS[0]), job.params.get("threshold", 0.5)
    enough = job.params.get("passage_characters", 256)
    if unit not in UNITS:
        raise UserError(f"unit: {unit!r}; allowed are {', '.join(UNITS)}")
    if type(threshold) not in (int, float) or not 0 < threshold <= 1:
        raise UserError(f"threshold: {threshold!r}; a number above 0, at most 1, is allowed")
    if type(enough) is not int or enough < 1:
        raise UserError(f"passage_characters: {enough!r}; a whole number from 1 is allowed")
    return Rules(unit, float(threshold), enough)
