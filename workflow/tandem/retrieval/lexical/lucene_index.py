"""Stage `lucene`: Lucene's inverted index of the passages, by Anserini.

It is made in parts, which shards share and from which a killed stage goes on. Its files depend on the threads and parts
that wrote them, results do not.
"""

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from tandem.cluster.parts import Parts
from tandem.cluster.progress import Progress, warn
from tandem.data.collection import Collection, contents
from tandem.data.language import language_warnings
from tandem.errors import UserError
from tandem.retrieval.lexical import java
from tandem.retrieval.lexical.java import JavaClass
from tandem.retrieval.lexical.lucene import LUCENE, SEARCHER, splitter, stemmer
from tandem.stages.base import Json
from tandem.stages.lexical import SPLIT_BEFORE, STEMMERS, LuceneParams
from tandem.store.job import Job, writing

INDEX, LOCK = "index", "write.lock"
FILE_PASSAGES = 65536  # most passages of one of the files that Anserini's threads read
POLL_SECONDS = 0.1


class Indexing:
    """The parts of a job's index, each an index of some passages; a `UserError` where analyzer and language differ."""

    def __init__(self, job: Job[LuceneParams]) -> None:
        params = job.params
        if params.analyzer in STEMMERS and params.language != "en":
            allowed = "default, whitespace or jieba is allowed"
            raise UserError(f"analyzer: {params.analyzer} is English and language is {params.language}; {allowed}")
        self.job, self.parts, self.collection = job, Parts(job), Collection(job.inputs["dataset"])
        self.threads = job.execution.workers or os.cpu_count() or 1
        self.machine = java.start(self.threads, job.execution.heap)
        if params.analyzer not in SPLIT_BEFORE:
            _check_language(self.machine, params.language)

    def write_parts(self) -> list[int]:
        """Write this job's parts that are missing; the numbers of all of its parts."""
        every = self.parts.spans(self.collection.passages)
        own = [number for number in range(len(every)) if self.parts.is_own(number)]
        for number in own:
            if self.parts.facts(number) is None:
                label = f"{self.job.key} · part {number + 1} of {len(every)}" if len(every) > 1 else self.job.key
                self.parts.write(number, partial(self.write_part, every[number], label))
        return own

    def write_part(self, span: range, label: str, folder: Path) -> Json:
        """Index some passages into `index/` of a folder."""
        texts, index, options = folder / "texts", folder / INDEX, _options(self.job.params)
        texts.mkdir(parents=True)
        _write_texts(self.collection, span, texts, self.threads, self.job.params, label)
        index_files(self.machine, label, "JsonCollection", texts, index, self.threads, len(span), options)
        shutil.rmtree(texts)
        (index / LOCK).unlink(missing_ok=True)
        return {"passages": len(span)}

    def join_parts(self, numbers: Sequence[int], index: Path) -> None:
        """Put the parts together: Lucene copies their segments and merges small ones, so that statistics are of all."""
        first, *more = (self.parts.path(number) / INDEX for number in numbers)
        if not more:
            os.replace(first, index)
            return
        open_index = self.machine(f"{LUCENE}store.FSDirectory").open
        file, config = self.machine("java.io.File"), self.machine(f"{LUCENE}index.IndexWriterConfig")()
        writer = self.machine(f"{LUCENE}index.IndexWriter")(open_index(file(str(index)).toPath()), config)
        with closing(writer):
            writer.addIndexes(*(open_index(file(str(path)).toPath()) for path in (first, *more)))
        (index / LOCK).unlink(missing_ok=True)


def run_shard(job: Job[LuceneParams]) -> Json:
    """Index every n-th part of the passages, beginning with this shard's number."""
    return {"parts": Indexing(job).write_parts()}


def run(job: Job[LuceneParams]) -> None:
    """Index `title text` of every passage of the input `dataset` into the folder `index/`.

    Execution: `workers` threads, `heap` of Java.
    """
    params, indexing = job.params, Indexing(job)
    machine, passages, numbers = indexing.machine, indexing.collection.passages, indexing.write_parts()
    with writing(job) as draft:
        indexing.join_parts(numbers, draft.folder / INDEX)
        with closing(machine(SEARCHER)(str(draft.folder / INDEX))) as searcher:
            indexed = int(searcher.reader.getDocCount("contents"))
        if indexed < passages:
            warn(job, draft, f"{passages - indexed:,} passages have no term to index")
        draft.facts.update(passages=passages, indexed=indexed, lucene=java.versions(machine))
        for line in language_warnings(job.inputs["dataset"], params.analyzer, params.language):
            warn(job, draft, line)
    indexing.parts.remove()


def _check_language(machine: JavaClass, language: str) -> None:
    """Refuse a language that Anserini would silently take for English."""
    known = sorted({"en", *machine("io.anserini.analysis.AnalyzerMap").analyzerMap.keySet().toArray()})
    if language not in known:
        raise UserError(f"language: {language!r} is unknown; allowed are {', '.join(known)}")


def _write_texts(
    collection: Collection, span: range, folder: Path, threads: int, params: LuceneParams, label: str
) -> None:
    """Write some passages as JSON lines to several files: a thread of Anserini reads one file at a time."""
    rows, split = min(FILE_PASSAGES, -(-len(span) // threads)), splitter(params)
    with Progress(f"lucene {label} · texts", len(span), "passages") as progress:
        for number, batch in enumerate(collection.batches(rows, span=span)):
            columns = (column.to_pylist() for column in batch.columns)
            with open(folder / f"{number:05}.jsonl", "w", encoding="utf-8", newline="\n") as file:
                for doc, title, text in zip(*columns, strict=True):
                    fields = {"title": title, "text": text} if params.fields else {}
                    fields = {"contents": contents(title, text)} | {name: own for name, own in fields.items() if own}
                    line = {"id": doc} | {name: split(own) for name, own in fields.items()}
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
            progress.add(batch.num_rows)


def _options(params: LuceneParams) -> dict[str, object]:
    """Anserini's options for an index of texts."""
    # Anserini looks at the language first: only with English does it obey `pretokenized`.
    pretokenized = params.analyzer in SPLIT_BEFORE
    return {
        "fields": ("title", "text") if params.fields else (),
        "storeDocvectors": params.vectors,
        "stemmer": stemmer(params),
        "pretokenized": pretokenized,
        "language": "en" if pretokenized else params.language,
    }


def index_files(
    machine: JavaClass,
    key: str,
    collection: str,
    texts: Path,
    index: Path,
    threads: int,
    passages: int,
    options: Mapping[str, Any],
) -> None:
    """Run Anserini's indexer in a thread of Java and watch its counters.

    Args:
        key: of the stage, for its progress; perhaps with its part.
        collection: Anserini's name of the form of the files in the folder `texts`.
        options: Anserini's own, by name; `fields` beside the usual one.
    """
    args, words = machine("io.anserini.index.IndexCollection$Args")(), machine("java.util.ArrayList")()
    fields = options.get("fields", ())
    # As on a command line: an array cannot be assigned to a field through pyjnius.
    for word in ("-collection", collection, "-input", str(texts), "-index", str(index), "-fields", *fields):
        words.add(word)
    machine("org.kohsuke.args4j.CmdLineParser")(args).parseArgument(words)
    args.generatorClass = "DefaultLuceneDocumentGenerator"
    args.threads, args.quiet = threads, True
    # Anserini would buffer 4 GiB, whatever the heap.
    args.memoryBuffer = machine("java.lang.Runtime").getRuntime().maxMemory() // 4 // 2**20
    for name, value in options.items():
        if name != "fields":
            setattr(args, name, value)
    indexer = machine("io.anserini.index.IndexCollection")(args)
    counters = indexer.getCounters()
    running = machine("java.util.concurrent.CompletableFuture").runAsync(indexer)
    with Progress(f"lucene {key}", passages, "passages") as progress:
        while not running.isDone():
            time.sleep(POLL_SECONDS)
            progress.add(_handled(counters) - progress.done)
        running.join()  # raises what the indexer raised
        progress.add(_handled(counters) - progress.done)
    if _handled(counters) != passages:
        raise RuntimeError(f"Anserini took {_handled(counters)} of {passages} passages; its log gives the reason")


def _handled(counters: Any) -> int:
    """Passages indexed so far, those without any text included."""
    return int(counters.indexed.get() + counters.empty.get())
