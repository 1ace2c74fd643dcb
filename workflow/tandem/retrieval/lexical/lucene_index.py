"""Stage `lucene`: Lucene's inverted index of the passages, by Anserini.

The index is built in parts: shards share them, and a killed stage resumes after the finished ones. The files of the
index depend on the threads and parts that wrote them; results do not.
"""

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any

from tandem.cluster.progress import Progress, warn
from tandem.cluster.threads import count_usable_cores
from tandem.cluster.work import Parts
from tandem.config.similarities import JavaClass
from tandem.data.collection import Collection, join_contents
from tandem.data.observers import list_doubts
from tandem.errors import UserError
from tandem.retrieval.lexical.lucene import (
    ANSERINI_SEARCHER,
    INDEX_FOLDER,
    LUCENE_PACKAGE,
    list_versions,
    make_splitter,
    name_stemmer,
    start_java,
)
from tandem.stages.base import Json
from tandem.stages.data import SPLIT_BEFORE, STEMMERS, LuceneParams
from tandem.store.job import Job, load, writing

_LOCK_FILE = "write.lock"
TEXTS_FOLDER = "texts"  # the folder of the texts to index
_PASSAGES_PER_FILE = 65536  # most passages of one of the files that Anserini's threads read
_POLL_SECONDS = 0.1


class Indexing:
    """Build the parts of a job's index, each an index of some passages.

    Raises:
        UserError: analyzer and language do not fit together, or the language is unknown or cannot be split.
    """

    def __init__(self, job: Job[LuceneParams]) -> None:
        params = job.params
        if params.analyzer in STEMMERS and params.language != "en":
            allowed = "default, whitespace or jieba is allowed"
            raise UserError(
                f"analyzer: {params.analyzer} is English and language is {params.language}; {allowed}"
            )
        self.job = job
        self.parts = Parts(job)
        self.collection = Collection(job.inputs["dataset"])
        self.threads = job.execution.workers or count_usable_cores()
        self.machine = start_java(self.threads, job.execution.heap)
        if params.analyzer not in SPLIT_BEFORE:
            load("extras.lucene_languages:require_analyzer")(params.language, self.machine)

    def write_parts(self) -> list[int]:
        """Write this job's parts that are missing; return the numbers of all of its parts."""
        every = self.parts.spans(self.collection.passages)
        own = [number for number in range(len(every)) if self.parts.is_own(number)]
        for number in own:
            if self.parts.facts(number) is None:
                label = (
                    f"{self.job.key} · part {number + 1} of {len(every)}"
                    if len(every) > 1
                    else self.job.key
                )
                self.parts.write(number, partial(self.write_part, every[number], label))
        return own

    def write_part(self, span: range, label: str, folder: Path) -> Json:
        """Index some passages into `index/` of a folder."""
        # Anserini looks at the language first: only with English does it obey `pretokenized`.
        params = self.job.params
        pretokenized = self.job.params.analyzer in SPLIT_BEFORE
        options = {
            "fields": ("title", "text") if params.fields else (),
            "storeDocvectors": params.vectors,
            "stemmer": name_stemmer(params),
            "pretokenized": pretokenized,
            "language": "en" if pretokenized else params.language,
        }
        self.write_texts(span, label, folder / TEXTS_FOLDER)
        index_files(self.machine, label, "JsonCollection", folder, self.threads, len(span), options)
        return {"passages": len(span)}

    def write_texts(self, span: range, label: str, folder: Path) -> None:
        """Write some passages as JSON lines to several files: a thread of Anserini reads one file at a time."""
        params = self.job.params
        split = make_splitter(self.job.params)
        rows = min(_PASSAGES_PER_FILE, -(-len(span) // self.threads))
        folder.mkdir(parents=True)
        with Progress(f"lucene {label} · texts", len(span), "passages") as progress:
            for number, batch in enumerate(self.collection.batches(rows, span=span)):
                columns = (column.to_pylist() for column in batch.columns)
                with open(
                    folder / f"{number:05}.jsonl", "w", encoding="utf-8", newline="\n"
                ) as file:
                    for doc, title, text in zip(*columns, strict=True):
                        fields = {"title": title, "text": text} if params.fields else {}
                        filled = {name: split(own) for name, own in fields.items() if own}
                        line = {"id": doc, "contents": split(join_contents(title, text))} | filled
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")
                progress.add(batch.num_rows)

    def join_parts(self, numbers: Sequence[int], index: Path) -> None:
        """Join the parts: Lucene copies their segments and merges small ones, so that statistics cover all parts."""
        first, *more = (self.parts.path(number) / INDEX_FOLDER for number in numbers)
        if not more:
            os.replace(first, index)
            return
        open_index = self.machine(f"{LUCENE_PACKAGE}store.FSDirectory").open
        file = self.machine("java.io.File")
        config = self.machine(f"{LUCENE_PACKAGE}index.IndexWriterConfig")()
        writer = self.machine(f"{LUCENE_PACKAGE}index.IndexWriter")(
            open_index(file(str(index)).toPath()), config
        )
        with closing(writer):
            writer.addIndexes(*(open_index(file(str(path)).toPath()) for path in (first, *more)))
        (index / _LOCK_FILE).unlink(missing_ok=True)


def run_shard(job: Job[LuceneParams]) -> Json:
    """Index every n-th part of the passages, beginning with this shard's number."""
    return {"parts": Indexing(job).write_parts()}


def run(job: Job[LuceneParams]) -> None:
    """Index `title text` of every passage of the input `dataset` into the folder `index/`.

    Execution: `workers` threads, `heap` of Java.
    """
    indexing = Indexing(job)
    machine = indexing.machine
    passages = indexing.collection.passages
    numbers = indexing.write_parts()
    with writing(job) as draft:
        indexing.join_parts(numbers, draft.folder / INDEX_FOLDER)
        with closing(machine(ANSERINI_SEARCHER)(str(draft.folder / INDEX_FOLDER))) as searcher:
            indexed = int(searcher.reader.getDocCount("contents"))
        if indexed < passages:
            warn(job, draft, f"{passages - indexed:,} passages have no term to index")
        draft.facts.update(passages=passages, indexed=indexed, lucene=list_versions(machine))
        for line in list_doubts("analysed", job):
            warn(job, draft, line)
    indexing.parts.remove()


def index_files(
    machine: JavaClass,
    key: str,
    collection: str,
    folder: Path,
    threads: int,
    passages: int,
    options: Mapping[str, Any],
) -> None:
    """Run Anserini's indexer in a thread of Java and watch its counters.

    Args:
        key: key of the stage, perhaps with its part, for the progress.
        collection: Anserini's name of the form of the files.
        folder: has the files in `texts/`, which is removed; gets the index in `index/`.
        options: Anserini's own options, by name; `fields` are indexed in addition to the usual field.
    """
    args = machine("io.anserini.index.IndexCollection$Args")()
    words = machine("java.util.ArrayList")()
    fields = options.get("fields", ())
    # As on a command line: an array cannot be assigned to a field through pyjnius.
    places = "-input", str(folder / TEXTS_FOLDER), "-index", str(folder / INDEX_FOLDER)
    for word in ("-collection", collection, *places, "-fields", *fields):
        words.add(word)
    machine("org.kohsuke.args4j.CmdLineParser")(args).parseArgument(words)
    args.generatorClass = "DefaultLuceneDocumentGenerator"
    args.threads = threads
    args.quiet = True
    # Anserini would buffer 4 GiB, whatever the heap.
    args.memoryBuffer = machine("java.lang.Runtime").getRuntime().maxMemory() // 4 // 2**20
    for name, value in options.items():
        if name != "fields":
            setattr(args, name, value)
    indexer = machine("io.anserini.index.IndexCollection")(args)
    counters = indexer.getCounters()

    def handled() -> int:
        """Return the number of passages indexed so far, those without any text included."""
        return int(counters.indexed.get() + counters.empty.get())

    errors = log_errors(machine)
    running = machine("java.util.concurrent.CompletableFuture").runAsync(indexer)
    with Progress(f"lucene {key}", passages, "passages") as progress:
        while not running.isDone():
            time.sleep(_POLL_SECONDS)
            progress.add(handled() - progress.done)
        running.join()  # raises what the indexer raised
        progress.add(handled() - progress.done)
    if handled() != passages or not any((folder / INDEX_FOLDER).glob("segments*")):
        taken = f"Anserini took {handled()} of {passages} passages and logged no error"
        reason = errors.toString().strip().rpartition("\n")[2].rpartition("Exception: ")[2]
        raise RuntimeError(f"{folder / INDEX_FOLDER}: {reason or taken}")
    shutil.rmtree(folder / TEXTS_FOLDER)
    (folder / INDEX_FOLDER / _LOCK_FILE).unlink(missing_ok=True)


@cache
def log_errors(machine: JavaClass) -> Any:
    """Return a Java `StringWriter` that gets a line for each error that Anserini logs (and then ignores)."""
    lines = machine("java.io.StringWriter")()
    log4j = "org.apache.logging.log4j"
    core = f"{log4j}.core"
    layout = machine(f"{core}.layout.PatternLayout").createDefaultLayout()
    writer = machine(f"{core}.appender.WriterAppender").createAppender(
        layout, None, lines, "errors", False, True
    )
    writer.start()
    loggers = machine(f"{core}.LoggerContext").getContext(False).getConfiguration().getRootLogger()
    loggers.addAppender(writer, machine(f"{log4j}.Level").ERROR, None)
    return lines
