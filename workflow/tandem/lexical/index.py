"""The stage `lucene`: Anserini's inverted index of a corpus.

Files of the index depend on the threads that wrote them, what is found in it does not: BM25 sees only counts over the
whole index, and ties are broken by document id.
"""

import json
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tandem.cluster.progress import Progress, say
from tandem.data.collection import Collection, contents
from tandem.lexical import SPLIT_BEFORE, analyzers, jvm
from tandem.lexical.fields import FIELDS
from tandem.store.job import Job, writing

FILE_PASSAGES = 65536  # most passages of one of the files that Anserini's threads read
POLL_SECONDS = 0.1


def run(job: Job) -> None:
    """Index `title text` of every passage of the input `dataset` into the folder `index/`.

    Parameters: `analyzer` and `language`, see `analyzers.check`; `vectors` (passages' own terms are kept, which RM3
    needs; absent: false); `fields` (title and text are indexed apart too; absent: false). Execution: `workers` threads,
    `heap` of Java.
    """
    analyzers.check(job.params)
    threads = int(job.execution.workers or os.cpu_count() or 1)
    java = jvm.start(threads, job.execution.heap)
    if job.params["analyzer"] not in SPLIT_BEFORE:
        analyzers.check_language(java, job.params["language"])
    collection = Collection(job.inputs["dataset"])
    with writing(job) as draft:
        texts, index = draft.folder / "texts", draft.folder / "index"
        split = analyzers.splitter(job.params)
        writer = _fielded if job.params.get("fields") else _whole
        _write_texts(collection, texts, threads, f"lucene {job.key} · texts", partial(writer, split or str))
        _index(java, job, texts, index, threads, collection.passages)
        shutil.rmtree(texts)
        (index / "write.lock").unlink(missing_ok=True)
        indexed = _indexed(java, index)
        if indexed < collection.passages:
            say(f"lucene {job.key} · warning: {collection.passages - indexed:,} passages have no term to index")
        draft.facts.update(passages=collection.passages, indexed=indexed, lucene=jvm.versions(java))


def _write_texts(
    collection: Collection, folder: Path, threads: int, label: str, fields: Callable[[str, str], dict[str, str]]
) -> None:
    """The corpus as JSON lines in several files: a thread of Anserini reads one file at a time.

    `fields` makes what is indexed of a title and a text.
    """
    folder.mkdir()
    rows = min(FILE_PASSAGES, -(-collection.passages // threads))
    with Progress(label, collection.passages, "passages") as progress:
        for number, batch in enumerate(collection.batches(rows)):
            columns = (column.to_pylist() for column in batch.columns)
            with open(folder / f"{number:05}.jsonl", "w", encoding="utf-8", newline="\n") as file:
                for doc, title, text in zip(*columns, strict=True):
                    line = json.dumps({"id": doc} | fields(title, text), ensure_ascii=False)
                    file.write(f"{line}\n")
            progress.add(batch.num_rows)


def _whole(split: Callable[[str], str], title: str, text: str) -> dict[str, str]:
    """What is indexed of a passage as a whole."""
    return {"contents": split(contents(title, text))}


def _fielded(split: Callable[[str], str], title: str, text: str) -> dict[str, str]:
    """The same and its parts; a field without text is left out."""
    parts = {name: part for name, part in zip(FIELDS, (title, text), strict=True) if part}
    return _whole(split, title, text) | {name: split(part) for name, part in parts.items()}


def _index(java: jvm.JavaClass, job: Job, texts: Path, index: Path, threads: int, passages: int) -> None:
    """Run Anserini's indexer in a thread of Java and watch its counters."""
    args = java("io.anserini.index.IndexCollection$Args")()
    told = java("java.util.ArrayList")()
    named = FIELDS if job.params.get("fields") else ()
    # As on a command line: an array cannot be assigned to a field through pyjnius.
    for word in ("-collection", "JsonCollection", "-input", str(texts), "-index", str(index), "-fields", *named):
        told.add(word)
    java("org.kohsuke.args4j.CmdLineParser")(args).parseArgument(told)
    args.generatorClass = "DefaultLuceneDocumentGenerator"
    args.threads, args.quiet = threads, True
    # Anserini would buffer 4 GiB, whatever the heap.
    args.memoryBuffer = java("java.lang.Runtime").getRuntime().maxMemory() // 4 // 2**20
    args.storeDocvectors = bool(job.params.get("vectors"))
    args.stemmer = analyzers.stemmer(job.params)
    # Anserini asks for the language first: only with English does it obey `pretokenized`.
    args.pretokenized = job.params["analyzer"] in SPLIT_BEFORE
    args.language = "en" if args.pretokenized else job.params["language"]
    indexer = java("io.anserini.index.IndexCollection")(args)
    counters = indexer.getCounters()
    running = java("java.util.concurrent.CompletableFuture").runAsync(indexer)
    with Progress(f"lucene {job.key}", passages, "passages") as progress:
        while not running.isDone():
            time.sleep(POLL_SECONDS)
            progress.add(_handled(counters) - progress.done)
        running.join()  # raises what the indexer raised
        progress.add(_handled(counters) - progress.done)
    if _handled(counters) != passages:
        raise RuntimeError(f"Anserini took {_handled(counters)} of {passages} passages; its log says why")


def _handled(counters: Any) -> int:
    """Passages indexed so far, those without any text included."""
    return int(counters.indexed.get() + counters.empty.get())


def _indexed(java: jvm.JavaClass, index: Path) -> int:
    """Number of passages with at least one term."""
    searcher = java("io.anserini.search.SimpleSearcher")(str(index))
    try:
        return int(searcher.reader.getDocCount("contents"))
    finally:
        searcher.close()
