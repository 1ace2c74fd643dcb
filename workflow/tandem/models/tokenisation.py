"""Stage `tokens`: write the token ids of a collection's passages and queries, and count the texts that are cut.

Passages are tokenised in parts: shards divide them up, and a killed stage resumes after those that are done.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress, say, warn
from tandem.cluster.work import Parts
from tandem.data.collection import Collection, join_contents
from tandem.data.observers import list_doubts
from tandem.errors import UserError
from tandem.models.folders import find_longest_input
from tandem.models.hub import add_markers, count_ids, hash_tokenizer, load_tokenizer
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.ragged import Ragged, write_ragged
from tandem.models.tokens import Template
from tandem.stages.base import Json
from tandem.stages.training import TokensParams
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Draft, Job, writing

_TEXTS_PER_BLOCK = 8192  # texts that are tokenised at once
PASSAGES = "passages"
QUERIES = "queries"
_WORTH_A_WARNING = 0.01  # a warning reports if a larger share of a side's texts is cut


class TextTokenizer(Protocol):
    """Turn texts into ids, without special tokens around a text."""

    def prompt(self, text: str) -> str:
        """Return a prompt of the configuration in the form that is put in front of texts."""

    def special_id(self, token: str) -> int:
        """Return the id of a special token."""

    def tokenise(
        self, texts: Sequence[str], length: int | None = None
    ) -> tuple[list[list[int]], list[bool]]:
        """Return the ids of texts, some with a `prompt` in front, cut to `length`; and which of them were cut."""


class Side:
    """Turn the texts of a side, `query` or `passage`, into ids, and count those that are cut.

    Characters of a text never become a special token; those of a prompt may, see `PlainTextTokenizer`. A marker is put
    before the prompt, unless the prompt itself begins with it.

    Attributes:
        length: tokens of a text, its marker and prompt included, without special tokens; longer ones are cut.
        key: the configuration's key that sets the length.
    """

    def __init__(self, name: str, params: TokensParams, tokenizer: TextTokenizer) -> None:
        prompt = params.prompts.get(name, "")
        marker = params.markers.get(name)
        self.name = name
        self.tokenizer = tokenizer
        self.prompt = tokenizer.prompt(prompt)
        self.length = params.query_length if name == "query" else params.passage_length
        of_pair = name == "passage" and params.pair_length is not None
        self.key = "lengths.pair" if of_pair else f"lengths.{name}"
        self.texts = 0
        self.cut = 0
        (ids,), _ = tokenizer.tokenise([self.prompt])
        own = [tokenizer.special_id(marker)] if marker else []
        self.marker = [] if own == ids[:1] else own
        before = len(self.marker) + len(ids)
        if (prompt or marker) and before >= self.length:
            what = f"the prompt {prompt!r}" if prompt else f"the marker {marker}"
            also = f" with the marker {marker}" if prompt and self.marker else ""
            raise UserError(
                f"lengths.{name} is {self.length}, but {what}{also} has {before} tokens: raise it, or shorten "
                f"prompts.{name} of the encoder's entry"
            )

    def tokenise(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of texts, with marker and prompt in front of each."""
        ids, cut = self._behind_prompt(texts)
        self._count(cut)
        return ids

    def tokenise_titled(self, titles: list[str], texts: list[str], template: Template) -> Ragged:
        """Return the ids of titles and texts, joined, with marker and prompt in front of each title."""
        heads, _ = self._behind_prompt(titles)
        bodies, _ = self.tokenizer.tokenise(texts, self.length)
        room = self.length - len(template.pair[1])
        self._count(
            [len(head) + len(body) > room for head, body in zip(heads, bodies, strict=True)]
        )
        return template.with_titles(heads, bodies, self.length)

    def _behind_prompt(self, texts: list[str]) -> tuple[list[list[int]], list[bool]]:
        room = self.length - len(self.marker)
        ids, cut = self.tokenizer.tokenise([self.prompt + text for text in texts], room)
        return [self.marker + row for row in ids] if self.marker else ids, cut

    def _count(self, cut: list[bool]) -> None:
        self.texts += len(cut)
        self.cut += sum(cut)

    def describe_truncation(self) -> str:
        """Return a line on how many texts were cut."""
        longer = f"{self.name} texts are longer than {self.key} ({self.length})"
        return f"{self.cut:,} of {self.texts:,} {longer} and cut"


class Tokeniser:
    """Tokenise a job's texts by the tokenizer of its input `encoder`, and keep track of the parts of its passages.

    Here ids are word pieces of a vocabulary; subclasses have other units.
    """

    def __init__(self, job: Job[TokensParams]) -> None:
        self.job = job
        self.collection = Collection(job.inputs["dataset"])
        self.parts = Parts(job)
        self.tokenizer = load_tokenizer(job.inputs["encoder"].folder / "hf")
        add_markers(self.tokenizer, job.params.markers)
        self.dtype = "uint16" if count_ids(self.tokenizer) <= 1 << 16 else "uint32"
        template = Template.of(self.tokenizer)
        self.template = replace(
            template, titled=job.params.titled, longest_pair=job.params.pair_length
        )

    def make_side(self, name: str) -> Side:
        """Return a new `Side`, which also counts the cut texts: of all queries, or of a part of the passages."""
        return Side(name, self.job.params, self._plain)

    @cached_property
    def _plain(self) -> PlainTextTokenizer:
        return PlainTextTokenizer(self.tokenizer)

    def write_parts(self) -> dict[int, Json]:
        """Write the parts of this job that are missing; return facts of each part, such as how many texts were cut."""
        return self.parts.complete(self.collection.passages, self.write_part)

    def write_part(self, span: range, progress: Progress, folder: Path) -> Json:
        """Write the ids of some passages, in the same files as the artifact has for all passages."""
        side = self.make_side("passage")
        folder.mkdir()
        write_ragged(
            folder,
            PASSAGES,
            self.tokenise_passages(span, side, progress),
            self.dtype,
            self.template.titled,
        )
        return {"cut": side.cut, **self.write_more(folder, side)}

    def write_more(self, folder: Path, side: Side) -> Json:
        """Write further files of a part, and return facts about them; here there are none."""
        return {}

    def tokenise_passages(self, span: range, side: Side, progress: Progress) -> Iterator[Ragged]:
        """Yield the ids of some passages, a batch at a time."""
        for batch in self.collection.batches(_TEXTS_PER_BLOCK, ("title", "text"), span):
            titles, texts = (column.to_pylist() for column in batch.columns)
            if self.template.titled:
                ids = side.tokenise_titled(titles, texts, self.template)
            else:
                rows = side.tokenise(
                    [join_contents(*row) for row in zip(titles, texts, strict=True)]
                )
                ids = Ragged.of([np.array(row, self.dtype) for row in rows])
            progress.add(len(ids), tokens=len(ids.ids))
            yield ids

    def write_texts(self, draft: Draft, parts: dict[int, Json], query: Side) -> tuple[int, Json]:
        """Concatenate the parts, and write the ids of all queries.

        Returns:
            The number of the passages' tokens, and further keys of `meta.json`; here there are none.
        """
        ids = (Ragged.open(self.parts.path(number), PASSAGES, self.dtype) for number in parts)
        _, tokens = write_ragged(draft.folder, PASSAGES, ids, self.dtype, self.template.titled)
        queries = tokenise_queries(self.job.inputs["dataset"], query)
        write_ragged(draft.folder, QUERIES, queries, self.dtype)
        return tokens, {}

    def find_gaps(self) -> list[str]:
        """Return warnings if the vocabulary does not fit the collection."""
        return list(list_doubts("tokenised", self.job, self.tokenizer))


def run_shard(job: Job[TokensParams]) -> Json:
    """Tokenise every n-th part of the passages, beginning with this shard's number."""
    return {"parts": list(Tokeniser(job).write_parts())}


def run(job: Job[TokensParams]) -> None:
    """Tokenise the passages that no shard has tokenised, and all queries."""
    write_tokens(Tokeniser(job))


def write_tokens(tokeniser: Tokeniser) -> None:
    """Write the parts that no shard has written, then the artifact of a tokeniser's job."""
    job = tokeniser.job
    template = tokeniser.template
    passage, query = (tokeniser.make_side(name) for name in ("passage", "query"))
    parts = tokeniser.write_parts()
    passage.texts = tokeniser.collection.passages
    passage.cut = sum(facts["cut"] for facts in parts.values())
    with writing(job) as draft:
        n_tokens, more = tokeniser.write_texts(draft, parts, query)
        digest = hash_tokenizer(tokeniser.tokenizer.backend_tokenizer.to_str())
        write_json(
            draft.path("meta.json"),
            {"dtype": tokeniser.dtype, "tokenizer": digest, "template": template.plain(), **more},
        )
        draft.facts |= {
            "passages": passage.texts,
            "queries": query.texts,
            "passage_tokens": n_tokens,
        }
        draft.facts["truncated"] = {"passages": passage.cut, "queries": query.cut}
        for side in (passage, query):
            if side.cut > _WORTH_A_WARNING * side.texts:
                warn(job, draft, f"{side.describe_truncation()}: {side.cut / side.texts:.1%}")
            elif side.cut:
                say(f"{job.kind} {job.key} · {side.describe_truncation()}")
        lines = tokeniser.find_gaps()
        limit = find_longest_input(job.inputs["encoder"].folder / "hf")
        longest = max(passage.length, query.length) + template.extra[0]
        if limit is not None and longest > limit:
            reads = f"the encoder's files say it reads {limit}"
            lines.append(f"texts have up to {longest} tokens, special ones included; {reads}")
        for line in lines:
            warn(job, draft, line)
    tokeniser.parts.remove()


def tokenise_queries(dataset: Artifact, side: Side) -> Iterator[list[list[int]]]:
    """Yield the ids of all queries, a batch at a time."""
    texts = pq.read_table(dataset.path("queries.parquet"), columns=["text"])["text"]
    for start in range(0, len(texts), _TEXTS_PER_BLOCK):
        yield side.tokenise(texts.slice(start, _TEXTS_PER_BLOCK).to_pylist())
