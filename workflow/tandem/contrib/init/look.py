"""Inspect a collection and this machine.

A collection is read once, with the checks of the stage `dataset`, but nothing is written. Queries and judgements are in
memory. Passages are not, except for 8 bytes of each id and the lengths of a sample.
"""

import os
import re
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandem.cluster.progress import Progress, format_duration
from tandem.cluster.scheduler import list_offered
from tandem.cluster.threads import count_usable_cores
from tandem.data import tables
from tandem.data.forms import Composer
from tandem.data.sources import DatasetJob, Source, open_source
from tandem.data.splits import VALIDATED, compute_position
from tandem.data.statistics import CorpusStatistics, PassageStatistics
from tandem.data.validate import (
    TextHashes,
    Warnings,
    count_negative_grades,
    find_mostly_unknown,
    prepare_queries,
    refuse_large_grades,
    require_positives,
    require_unique,
    require_usable,
    select_qrels,
    tabulate_judgements,
)
from tandem.errors import UserError
from tandem.extras.file_columns import FileColumns, NamesColumns
from tandem.extras.language import TEXTS_SAMPLED, TextSample
from tandem.extras.own_passages import OwnPassages
from tandem.extras.split_names import SPLIT_WORDS
from tandem.store.environment import command_output

# number of passages that are searched for the one that an unknown id may mean
_PASSAGES_SEARCHED = 200_000
LIMIT = Path("/sys/fs/cgroup/memory.max")  # a container's limit of memory
_GIB = 1 << 30
# shares of the training queries that may become dev
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass
class Look:
    """A collection's sizes and oddities."""

    passages: int = 0
    whole: bool = True  # whether the corpus was read to its end
    queries: dict[str, int] = field(default_factory=dict)  # split → number of its queries
    # split → number of its queries with a relevant passage by its judgements
    positives: dict[str, int] = field(default_factory=dict)
    # split → number of its queries that have answers
    answered: dict[str, int] = field(default_factory=dict)
    # share of train that can become dev; None if there are too few training queries
    dev_share: float | None = SHARES[0]
    # `passage` → statistics of a sample of passages, `query` → statistics of all queries
    lengths: dict[str, PassageStatistics] = field(default_factory=dict)
    # `passage` and `query` → language → share among the texts whose language is recognised
    languages: dict[str, dict[str, float]] = field(default_factory=dict)
    # whether most queries of a split are passages, which should not find themselves
    own_passages: bool = False
    # whether most judgements of a split name no passage, so that they have to be dropped
    drop_unknown: bool = False
    # the columns of files whose columns have names
    columns: list[FileColumns] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # oddities, one line each

    def list_unlabelled(self) -> list[str]:
        """Return the splits, except train, in which no query has a relevant passage or answers."""
        labelled = {"train", *filter(self.positives.get, self.positives), *self.answered}
        return [split for split in self.queries if split not in labelled]


class Notes(Warnings):
    """Warnings that are printed later, with everything else."""

    def add(self, line: str) -> None:
        """Keep a warning."""
        self.lines.append(line)


def look(job: DatasetJob, seconds: float) -> Look:
    """Inspect the files of a dataset.

    Args:
        seconds: time after which reading the corpus stops; the rest is not checked. 0: no limit.
    Raises:
        UserError: the stage `dataset` would refuse the files, or no judgement names a passage.
    """
    source, notes, composer = open_source(job), Notes(job.key), Composer(job.params.normalize)
    judged = tabulate_judgements(source.read_qrels())
    answered = [query for query, _ in composer.answers(source.read_answers())]
    if not judged.num_rows and not answered:
        raise UserError(
            "qrels: empty; a dataset needs judgements of at least one split, or answers"
        )
    require_unique("query", "answers", TextHashes(answered), answered.__getitem__)
    queries = prepare_queries(
        composer.queries(source.read_queries()), judged, answered, source, job.params, notes
    )
    own_passages = OwnPassages(queries)
    result = Look(queries=dict(Counter(queries.splits.values())), notes=notes.lines)
    if "train" in result.queries and VALIDATED not in result.queries:
        for split in (split for split in result.queries if SPLIT_WORDS.get(split) == VALIDATED):
            notes.add(
                f"split {split} counts as a test set: call it dev (dev.tsv), or a tenth of train becomes dev"
            )
    ids = _read_corpus(source, seconds, result, composer, own_passages)
    if isinstance(source, NamesColumns):
        result.columns = source.list_columns()
    for line in filter(None, (composer.note(), *own_passages.notes())):
        notes.add(line)
    result.own_passages = any(own_passages.notes())
    texts, sample, lengths = list(queries.texts.values()), TextSample(), CorpusStatistics()
    sample.add(texts)
    lengths.measure(pa.array([""] * len(texts)), pa.array(texts, pa.string()))
    result.lengths["query"], result.languages["query"] = (
        lengths.summary(),
        sample.facts()["languages"],
    )
    if not result.whole:
        notes.add(
            f"the corpus has more than the {len(ids):,} passages read in {format_duration(seconds)}: judgements and "
            "ids are not checked (--seconds 0 reads all)"
        )
    elif judged.num_rows:
        judged = _select_known(judged, ids, source, result)
        judged = select_qrels(judged, queries, ids, job.params, notes, source)
        if not any(query in queries.splits for query in answered):
            require_positives(judged)
        refuse_large_grades(judged, source)
        count_negative_grades(judged, source.literal_matches, notes)
    named = set(
        tables.iterate_rows(judged.filter(pc.greater(judged["relevance"], 0)), "query_id", "split")
    )
    labelled = [(query, split) for query, split in named if queries.splits.get(query) == split]
    result.positives = dict(Counter(split for _, split in labelled))
    result.answered = dict(
        Counter(queries.splits[query] for query in {*answered} & queries.splits.keys())
    )
    for split in result.list_unlabelled():
        notes.add(f"no query of split {split} has a relevant passage: it is not scored")
    result.dev_share = share_of_dev([query for query, split in labelled if split == "train"])
    return result


def share_of_dev(queries: list[str]) -> float | None:
    """Return the least share that turns some, but not all, of the training queries into dev; None if there is none."""
    places = [compute_position(query) for query in queries]
    return next(
        (share for share in SHARES if any(at < share for at in places) and max(places) >= share),
        None,
    )


def _read_corpus(
    source: Source, seconds: float, result: Look, composer: Composer, own_passages: OwnPassages
) -> TextHashes:
    """Read the passages into `result`, and return the hashes of their ids."""
    ids, sample, lengths, begun = TextHashes(), TextSample(), CorpusStatistics(), time.monotonic()
    with Progress("init", 0, "passages") as progress:
        for docs, titles, texts in tables.split_columns(source.read_corpus()):
            require_usable("document", source.places["corpus"], len(ids) + 1, *docs)
            titles, texts = composer.passages(titles, texts)
            ids.add(docs)
            sample.add(texts)
            own_passages.add(docs, titles, texts)
            every = max(1, len(texts) // TEXTS_SAMPLED)
            lengths.measure(
                pa.array(titles[::every], pa.string()), pa.array(texts[::every], pa.string())
            )
            progress.add(len(docs))
            if seconds and time.monotonic() - begun > seconds:
                result.whole = False
                break
    if not ids:
        raise UserError(
            f"{source.places['corpus']}: the corpus is empty; at least one passage is needed"
        )
    require_unique(
        "document",
        source.places["corpus"],
        ids,
        lambda row: next(islice(source.read_corpus(), row, None))[0],
    )
    result.passages = len(ids)
    result.lengths["passage"], result.languages["passage"] = (
        lengths.summary(),
        sample.facts()["languages"],
    )
    return ids


def _select_known(judged: pa.Table, ids: TextHashes, source: Source, result: Look) -> pa.Table:
    """Return the judgements that name a passage and note the others; raise a `UserError` if none names a passage."""
    known = ids.has(judged["doc_id"].to_pylist())
    if known.all():
        return judged
    unknown = judged["doc_id"][int(np.flatnonzero(~known)[0])].as_py()
    total, missing = len(known), int((~known).sum())

    def simplified(name: str) -> str:
        """Return a name in lower case, without punctuation and leading zeros."""
        return re.sub(r"\W|_|(?<!\d)0+(?=\d)", "", name.lower())

    docs, target = (
        (doc for doc, _, _ in islice(source.read_corpus(), _PASSAGES_SEARCHED)),
        simplified(unknown),
    )
    first = next(docs)
    twin = next((doc for doc in chain([first], docs) if simplified(doc) == target), "")
    if not known.any():
        what = f"yours look like {unknown}, the corpus has {twin or first}"
        raise UserError(
            f"0 of {total:,} qrels name a passage of the corpus: {what}; mend the ids of one of them"
        )
    result.drop_unknown = find_mostly_unknown(judged, known) is not None
    such_as = f"such as {unknown}" + (f", where the corpus has {twin}" if twin else "")
    done = "they are dropped" if result.drop_unknown else "no run can find them"
    result.notes.append(
        f"{missing:,} of {total:,} qrels ({missing / total:.1%}) name no passage of the corpus, {such_as}: {done}"
    )
    return judged.filter(pa.array(known))


@dataclass(frozen=True)
class FoundMachine:
    """Cores, bytes of memory, and the first GPU with its memory; `gpu` is empty if there is no GPU."""

    cores: int
    memory: int
    gpu: str = ""
    gpu_memory: int = 0

    @classmethod
    def here(cls) -> Self:
        """Return the part of this machine that the process may use."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with suppress(OSError, ValueError):  # "max" where there is no limit
            memory = min(memory, int(LIMIT.read_text()))
        return cls(
            count_usable_cores(),
            memory,
            *(_find_gpu(ids[0]) if (ids := list_offered(os.environ)) else ()),
        )

    def __str__(self) -> str:
        """Return a description in words."""
        gpu = f"{self.gpu} with {self.gpu_memory / _GIB:.0f} GiB" if self.gpu else "no GPU"
        return f"{self.cores} cores, {self.memory / _GIB:.0f} GiB of memory, {gpu}"


def _find_gpu(number: str) -> tuple[str, int]:
    """Return the name and the bytes of a GPU, from the driver's own tool, which does not start CUDA."""
    words = [
        "nvidia-smi",
        f"--id={number}",
        "--query-gpu=name,memory.total",
        "--format=csv,noheader,nounits",
    ]
    try:
        name, _, mebibytes = (command_output(*words) or "").partition("\n")[0].rpartition(", ")
        return name, int(mebibytes) << 20
    except ValueError:
        return "a GPU of unknown size", 8 * _GIB
