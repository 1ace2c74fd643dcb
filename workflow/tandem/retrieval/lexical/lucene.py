"""Search over title and text as two fields, by BM25F.

Lucene's `CombinedFieldQuery` treats the fields as one: with w_f a field's weight, per query term t

    tf(t, d) = Σ_f w_f tf_f(t, d)        |d| = Σ_f w_f |d|_f        df(t) = max_f df_f(t)
    score(q, d) = Σ_t ln(1 + (N - df + 1/2) / (df + 1/2)) · tf / (tf + k1 (1 - b + b |d| / mean |d|))

which is BM25F with one b for all fields (Robertson, Zaragoza and Taylor 2004; Robertson and Zaragoza 2009), but for df,
which there counts passages with t in any field. It is not the weighted sum of two BM25 scores, where a term in both
fields would count as two.
"""

import base64
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tandem.artifact import Job, writing
from tandem.data.collection import Collection, contents
from tandem.progress import Progress, say
from tandem.retrieval.lexical import SPLIT_BEFORE, analyzers
from tandem.retrieval.lexical import java as jvm
from tandem.retrieval.lexical.bm25 import Hits, Query, Ranked
from tandem.retrieval.lexical.java import JavaClass

FIELDS = ("title", "text")


class FieldSearch:
    """Queries over the fields of an index, one after the other, each on all of Java's processors.

    Threads share the index' segments, not the queries: pyjnius is not safe to be called from several threads of Python.

    Args:
        java: from the name of a Java class to the class.
        searcher: Anserini's searcher of the index.
        analyzer: Lucene's, of queries.
        weights: field → weight, at least 1 as Lucene demands.
    """

    def __init__(self, java: JavaClass, searcher: Any, analyzer: Any, weights: dict[str, float]) -> None:
        self.searcher, self.analyzer, self.weights = searcher, analyzer, weights
        lucene = "org.apache.lucene."
        self.opened, self.text = java(f"{lucene}search.IndexSearcher"), java("io.anserini.analysis.AnalyzerUtils")
        self.asked, self.boosted = java(f"{lucene}search.BooleanQuery$Builder"), java(f"{lucene}search.BoostQuery")
        self.combined = java(f"{lucene}sandbox.search.CombinedFieldQuery$Builder")
        self.term, self.should = java(f"{lucene}index.Term"), java(f"{lucene}search.BooleanClause$Occur").SHOULD
        self.pool = java("java.util.concurrent.Executors").newWorkStealingPool()
        field, kind = java(f"{lucene}search.SortField"), java(f"{lucene}search.SortField$Type")
        self.order = java(f"{lucene}search.Sort")(field.FIELD_SCORE, field("id", kind.STRING_VAL))
        self.mapper = java("com.fasterxml.jackson.databind.ObjectMapper")()
        sorts = java("java.lang.Class").forName(f"[L{lucene}search.SortField;")
        self.mapper.configOverride(sorts).setIsIgnoredType(java("java.lang.Boolean")(True))

    def search(self, batch: list[Query], depth: int) -> dict[str, Hits]:
        """(document id, score) of the best `depth` passages of each query, ties by document id."""
        searcher = self.opened(self.searcher.reader, self.pool)
        searcher.setSimilarity(self.searcher.get_similarity())
        return {query: self._hits(searcher, text, depth) for query, text in batch}

    def _hits(self, searcher: Any, text: str, depth: int) -> Hits:
        """One query's hits, as one text of JSON: asking for one after the other takes longer than the search itself."""
        found = searcher.search(self.query(text), depth, self.order, True)
        hits = json.loads(self.mapper.writeValueAsString(found))["scoreDocs"]
        return [(_text(hit["fields"][1]), hit["score"]) for hit in hits]

    def query(self, text: str) -> Any:
        """A Lucene query: a clause for each term over all fields, weighing as often as the term is asked."""
        made = self.asked()
        for term, count in Counter(self.text.analyze(self.analyzer, text).toArray()).items():
            clause = self.combined()
            for field, weight in self.weights.items():
                clause.addField(field, float(weight))
            clause.addTerm(self.term("", term).bytes())
            made.add(self.boosted(clause.build(), float(count)), self.should)
        return made.build()


def _text(value: dict[str, Any]) -> str:
    """The document id in a Lucene `BytesRef` as JSON shows it."""
    at = value["offset"]
    return base64.b64decode(value["bytes"])[at : at + value["length"]].decode()


HITS_AT_ONCE = 50_000  # results in memory, in Java and here: about 50 MB
MOST_TERMS = 65536  # of a query; Lucene's own limit of 1,024 would refuse long ones


class Lucene:
    """The input `lucene` of a job, opened.

    Parameters that it reads: `rm3` (fb_terms, fb_docs, original_query_weight) and `fields` (field → weight), absent or
    null for plain BM25; not both. Execution: `workers` threads, `heap` of Java.
    """

    def __init__(self, job: Job) -> None:
        index, threads = job.inputs["lucene"], int(job.execution.workers or os.cpu_count() or 1)
        self.split = analyzers.splitter(index.params)
        self.java = java = jvm.start(threads, job.execution.heap)
        self.facts = {"lucene": jvm.versions(java)}
        java("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MOST_TERMS)
        self.searcher = java("io.anserini.search.SimpleSearcher")(str(index.folder / "index"))
        analyzer = analyzers.build(java, index.params)
        self.searcher.set_analyzer(analyzer)
        if rm3 := job.params.get("rm3"):
            how = rm3["fb_terms"], rm3["fb_docs"], float(rm3["original_query_weight"])
            self.searcher.set_rm3(None, *how, False, index.params["language"] == "en")
        # What spreads ties stands last. Taken out of the list, not replaced: pyjnius frees a reference that is not its
        # own when it assigns an object to a field, and the machine dies in some later garbage collection.
        steps = self.searcher.cascade.rerankers
        steps.subList(steps.size() - 1, steps.size()).clear()
        fields = job.params.get("fields")
        self.fields = FieldSearch(java, self.searcher, analyzer, fields) if fields else None
        self.mapper = java("com.fasterxml.jackson.databind.ObjectMapper")()
        stored = java("java.lang.Class").forName("org.apache.lucene.document.Document")
        self.mapper.configOverride(stored).setIsIgnoredType(java("java.lang.Boolean")(True))

    def search(self, queries: list[Query], k1: float, b: float, depth: int, progress: Progress) -> Iterator[Ranked]:
        """See `Engine.search`; so many queries at a time as fill memory with `HITS_AT_ONCE` hits."""
        self.searcher.set_bm25(float(k1), float(b))
        ask = self.fields.search if self.fields else self._search
        size = max(1, HITS_AT_ONCE // depth)
        for start in range(0, len(queries), size):
            batch = queries[start : start + size]
            found = ask([(query, self.split(text)) for query, text in batch] if self.split else batch, depth)
            for query, _ in batch:
                if hits := found[query]:
                    yield query, [doc for doc, _ in hits], [score for _, score in hits]
            progress.add(len(batch))

    def close(self) -> None:
        """Close the index' files."""
        self.searcher.close()

    def _search(self, batch: list[Query], depth: int) -> dict[str, Hits]:
        """A batch by Anserini's own batch search, on Java's threads.

        It comes back as one text of JSON: asking for one hit after the other takes longer than the search itself. JSON
        keeps every float32.
        """
        ids, texts = self.java("java.util.ArrayList")(), self.java("java.util.ArrayList")()
        for query, text in batch:
            ids.add(query)
            texts.add(text)
        found: dict[str, Any] = json.loads(
            self.mapper.writeValueAsString(self.searcher.batch_search(texts, ids, depth, 1))
        )
        return {query: [(hit["docid"], hit["score"]) for hit in hits] for query, hits in found.items()}


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
