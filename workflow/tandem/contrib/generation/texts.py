"""Stage `generated`: texts for passages or queries, a part of a thousand at a time.

Shards write whole parts. The stage writes the missing ones and joins all. A killed stage loses at most one part, and no
answers of a server. Memory is that of a part and of the model.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress, say, warn
from tandem.cluster.work import Parts
from tandem.contrib.generation.options import PASSAGE, QUERY, GeneratedParams
from tandem.contrib.generation.reader import Reader, check_positions, split_prompt
from tandem.data.collection import Collection, join_contents
from tandem.data.splits import compute_position
from tandem.errors import UserError, printable
from tandem.extras.language_models.answers import AnswerStore, count_at_once, open_answers
from tandem.extras.language_models.prompts import strip_thoughts
from tandem.stages.base import Json
from tandem.stages.data import TEXTS_FILE
from tandem.store.job import Job, writing

SCHEMA = pa.schema([
    ("id", pa.string()), ("number", pa.int32()), ("text", pa.string()), ("log_likelihood", pa.float32()),
    ("tokens", pa.int32()),
])  # fmt: skip
GeneratedJob = Job[GeneratedParams]
# facts of parts that add up; those of answers are from a server
_COUNTED = (
    "texts", "empty", "read", "written_tokens", "cut",
    "asked", "known", "prompt_tokens", "answer_tokens",
)  # fmt: skip
MANY = 0.01  # a larger share of texts that are cut, or empty, is worth a warning
# in a part: this many texts that are all empty show that a generator writes nothing; fewer may be chance
_ENOUGH_TO_JUDGE = 100


class Text(NamedTuple):
    """A generated text; its log-likelihood and tokens are None if a server reports neither."""

    text: str
    log_likelihood: float | None
    tokens: int | None


class Writes(Protocol):
    """A generator of the texts of some passages."""

    @property
    def counts(self) -> Counter[str]:
        """Return how many texts were too long (`cut`), and the counts of a server's answers, so far."""

    def write(
        self, ids: Sequence[str], texts: Sequence[str], progress: Progress
    ) -> list[list[Text]]:
        """Return `number` texts for each of `texts`; advance the progress."""


class ByModel:
    """A generator in this process, which is opened when its first text is needed."""

    def __init__(self, job: GeneratedJob) -> None:
        from tandem.contrib.generation.decoding import Writer
        from tandem.contrib.generation.generators import load_generator
        from tandem.contrib.generation.train import padding_of
        from tandem.models.device import use_workers

        use_workers(job.execution.workers)
        params, folder = job.params, job.inputs["generator"].folder / "hf"
        model, tokenizer = load_generator(folder)
        check_positions(model, params.length, params.tokens, job.key)
        self.reader = Reader(tokenizer, params.prompt, params.length, job.key)
        self.writer = Writer(model, tokenizer, params, params.seed, padding_of(model, tokenizer))

    @property
    def counts(self) -> Counter[str]:
        """See `Writes`."""
        return Counter(cut=self.reader.cut)

    def write(
        self, ids: Sequence[str], texts: Sequence[str], progress: Progress
    ) -> list[list[Text]]:
        """See `Writes`."""
        written = self.writer.write(
            self.reader.read(texts), ids, lambda rows, tokens: progress.add(rows, tokens=tokens)
        )
        return [[Text(*each) for each in zip(*of_one, strict=True)] for of_one in written]


class ByServer:
    """A language model behind a server; its answers are stored by prompt and number; see `Answers`."""

    def __init__(self, job: GeneratedJob) -> None:
        assert job.params.asked is not None
        self.job, self.asked, self.cut = job, job.params.asked, 0
        # All stages that ask the same model share its file of answers.
        self.answers: AnswerStore = open_answers(job, None, self.asked)

    @property
    def counts(self) -> Counter[str]:
        """See `Writes`."""
        return Counter({**self.answers.counts, "cut": self.cut})

    def write(
        self, ids: Sequence[str], texts: Sequence[str], progress: Progress
    ) -> list[list[Text]]:
        """See `Writes`; a passage's first characters are read."""
        params, most = self.job.params, self.asked.characters
        before, after = split_prompt(params.prompt)

        def ask(text: str) -> list[Text]:
            """Return the texts that the server writes for one text."""
            prompt = f"{before}{text[:most]}{after}"
            answers = [
                self.answers.write(prompt, params.tokens, number, params.seed)
                for number in range(params.number)
            ]
            return [
                Text(shown(answer.text, params.until), answer.score, answer.written or None)
                for answer in answers
            ]

        self.cut += sum(len(text) > most for text in texts)
        written = list[list[Text]]()
        with ThreadPoolExecutor(count_at_once(self.job)) as threads:
            for result in threads.map(ask, texts):
                written.append(result)
                progress.add(1)
        return written


def shown(text: str, until: str) -> str:
    """Return a text without a model's thoughts, on one line, up to `until`; see `strip_thoughts`.

    >>> shown("<think>\\nbirds\\n</think> what is a heron? \\n Passage 2", until="\\n")
    'what is a heron?'
    """
    text = strip_thoughts(text).strip()
    return " ".join((text.partition(until)[0] if until else text).split())


@dataclass
class Generating:
    """The texts that a job generates, part by part."""

    job: GeneratedJob

    def __post_init__(self) -> None:
        self.collection, self.parts = (
            Collection(self.job.inputs["dataset"]),
            Parts(self.job, ".parquet"),
        )
        self.is_query = self.job.params.side == "queries"

    @cached_property
    def writes(self) -> Writes:
        """Return the model that generates, opened when it is first needed."""
        return ByServer(self.job) if self.job.params.asked else ByModel(self.job)

    @cached_property
    def queries(self) -> list[tuple[str, str]]:
        """Return id and text of the queries of the split."""
        return list(self.collection.queries(str(self.job.params.split)).items())

    @property
    def rows(self) -> int:
        """Return the number of texts that are divided into parts, whether they are read or not."""
        return len(self.queries) if self.is_query else self.collection.passages

    @cached_property
    def chosen(self) -> set[str] | None:
        """Return the ids of the passages that are read, those with the lowest hashes; None: all passages."""
        most = self.job.params.passages
        if most is None:
            return None
        ids = (
            doc
            for batch in self.collection.batches(columns=["doc_id"])
            for doc in batch["doc_id"].to_pylist()
        )
        return set(nsmallest(most, ids, key=compute_position))

    def read(self, span: range) -> tuple[list[str], list[str]]:
        """Return ids and texts of those texts of a part that are read."""
        if self.is_query:
            pairs = [self.queries[row] for row in span]
            return [query for query, _ in pairs], [text for _, text in pairs]
        ids, texts = list[str](), list[str]()
        for batch in self.collection.batches(span=span):
            for doc, title, text in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                if self.chosen is None or doc in self.chosen:
                    ids.append(doc)
                    texts.append(join_contents(title, text))
        return ids, texts

    def write_part(self, span: range, progress: Progress, path: Path) -> Json:
        """Write the texts of a part; return how many there are, are empty, and were generated from texts that were cut.

        For a server also return the counts of its answers, including stored ones: other processes may write other
        parts.
        """
        ids, texts = self.read(span)
        progress.add(len(span) - len(ids))
        before = self.writes.counts if ids else Counter[str]()
        written = self.writes.write(ids, texts, progress) if ids else []
        rows = [
            (id_, number, *text)
            for id_, own in zip(ids, written, strict=True)
            for number, text in enumerate(own)
        ]
        counts = Counter(texts=len(rows), empty=sum(not row[2] for row in rows), read=len(ids))
        if len(rows) >= _ENOUGH_TO_JUDGE and counts["empty"] == len(rows):
            first = f"{ids[0]} ({printable(texts[0][:40])}…)"
            refuse_empty(self.job, f"all {len(rows):,} texts of {first} and on")
        columns = zip(*rows, strict=True) if rows else [[] for _ in SCHEMA]
        table = pa.table(
            [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)],
            schema=SCHEMA,
        )
        pq.write_table(table, path, compression="zstd", row_group_size=max(1, len(rows)))
        counts["written_tokens"] = sum(row[4] or 0 for row in rows)
        counts["cut"] = 0
        if ids:
            counts.update(self.writes.counts)
            counts.subtract(before)
        return dict(counts)

    def complete(self) -> dict[int, Json]:
        """Write this job's missing parts; return the facts of each."""
        try:
            return self.parts.complete(self.rows, self.write_part)
        finally:
            if isinstance(opened := self.__dict__.get("writes"), ByServer):
                opened.answers.close()


def run_shard(job: GeneratedJob) -> Json:
    """Write every n-th part, beginning with this shard's number."""
    return {"parts": list(Generating(job).complete())}


def run(job: GeneratedJob) -> None:
    """Write the parts that no shard has written, and join all as generated.parquet, in the collection's order.

    Columns: id of the passage or query, number of the text, text, log-likelihood, tokens. Some texts may be empty, but
    not all of them.
    Inputs: dataset, and generator unless a server is asked.
    """
    check_prompt(job.params)
    generating = Generating(job)
    parts = generating.complete()
    counts = Counter[str]()
    for facts in parts.values():
        counts.update({name: facts[name] for name in _COUNTED if name in facts})
    if counts["texts"] and counts["empty"] == counts["texts"]:
        refuse_empty(job, f"all {counts['texts']:,} texts")
    with writing(job) as draft:
        with pq.ParquetWriter(draft.path(TEXTS_FILE), SCHEMA, compression="zstd") as writer:
            for number in parts:
                table = pq.read_table(generating.parts.path(number))
                writer.write_table(table, row_group_size=max(1, len(table)))
        draft.facts |= dict(counts)
        limit = (
            f"{job.params.asked.characters} characters"
            if job.params.asked
            else f"{job.params.length} tokens"
        )
        for name, total, line in (
            ("cut", "read", f"are longer than {limit} and were cut"),
            ("empty", "texts", "generated texts are empty"),
        ):
            if counts[name] > MANY * counts[total]:
                warn(job, draft, f"{counts[name]:,} of {counts[total]:,} {line}")
            elif counts[name]:
                say(f"{job.kind} {job.key} · {counts[name]:,} of {counts[total]:,} {line}")
    generating.parts.remove()


def refuse_empty(job: GeneratedJob, which: str) -> NoReturn:
    """Refuse a generator that writes nothing; `which` names the texts that are empty."""
    hint = "train the generator for longer, or write another prompt"
    raise UserError(f"{job.key}: {which} are empty; {hint}")


def check_prompt(params: GeneratedParams) -> None:
    """Refuse a prompt of passages for queries, and the other way round."""
    needed = QUERY if params.side == "queries" else PASSAGE
    if needed not in params.prompt:
        raise UserError(
            f"prompt is {printable(params.prompt)}, which lacks {needed}, for generations over {params.side}"
        )
