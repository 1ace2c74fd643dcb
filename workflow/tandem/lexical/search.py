"""The stage `bm25`: a run of Lucene's BM25 over one split's queries.

A query is a bag of words: characters of Lucene's query syntax mean nothing. Scores are Lucene's own float32;
Anserini's step that rounds them to four digits and spreads ties is left out, so that equal passages tie. Which of tied
passages make the cut at `depth`, and their order, is decided by document id.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

from tandem.artifact import Job, writing
from tandem.data.collection import Collection
from tandem.data.runs import write_run
from tandem.errors import UserError
from tandem.lexical import analyzers, jvm
from tandem.progress import Progress

HITS_AT_ONCE = 50_000  # results in memory, in Java and here: about 50 MB
MOST_TERMS = 65536  # of a query; Lucene's own limit of 1,024 would refuse long ones


def run(job: Job) -> None:
    """Search the input `lucene` with the queries of the input `dataset`; writes run.trec.

    Parameters: `k1`, `b`, `depth`, `split`, `queries` (the first so many of the split, null for all). Execution:
    `workers` threads, `heap` of Java. A query that finds nothing has no line.
    """
    params = job.params
    _check(job)
    queries = list(Collection(job.inputs["dataset"]).queries(params["split"]).items())[: params.get("queries")]
    if split := analyzers.splitter(job.inputs["lucene"].params):
        queries = [(query, split(text)) for query, text in queries]
    java = jvm.start(int(job.execution.get("workers") or os.cpu_count() or 1), job.execution.get("heap"))
    with writing(job) as draft:
        searcher = _searcher(java, job)
        with Progress(f"bm25 {job.key}", len(queries), "queries") as progress:
            found = _search(java, searcher, queries, params["depth"], progress)
            lines = write_run(draft.path("run.trec"), found, job.key)
        searcher.close()
        draft.facts.update(queries=len(queries), lines=lines, lucene=jvm.versions(java))


def _check(job: Job) -> None:
    """Refuse parameters out of range, and an index of another dataset."""
    ranges = {"k1": (0, float("inf")), "b": (0, 1)}
    for name, (low, high) in ranges.items():
        if not low <= job.params[name] <= high:
            raise UserError(f"{name}: {job.params[name]}; a number from {low} to {high} is allowed")
    for name in ("depth", "queries"):
        number = job.params.get(name)
        if number is not None and number < 1:
            raise UserError(f"{name}: {number}; a whole number from 1 is allowed")
    dataset, index = job.inputs["dataset"], job.inputs["lucene"]
    if os.path.basename(index.upstream["dataset"]) != dataset.key:
        raise UserError(f"{index.folder}: indexes {index.upstream['dataset']}, not {dataset.folder}; name its index")


def _searcher(java: jvm.JavaClass, job: Job) -> Any:
    """Anserini's searcher with the index' analyzer and the BM25 of the parameters."""
    java("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MOST_TERMS)
    index = job.inputs["lucene"]
    searcher = java("io.anserini.search.SimpleSearcher")(str(index.folder / "index"))
    searcher.set_bm25(float(job.params["k1"]), float(job.params["b"]))
    searcher.set_analyzer(analyzers.build(java, index.params))
    # Emptied, not replaced: pyjnius frees a reference that is not its own when it assigns an object to a field, and the
    # machine dies in some later garbage collection.
    searcher.cascade.rerankers.clear()
    return searcher


def _search(
    java: jvm.JavaClass, searcher: Any, queries: list[tuple[str, str]], depth: int, progress: Progress
) -> Iterator[tuple[str, list[str], list[float]]]:
    """(query id, document ids, scores) of each query that finds something, in order.

    A batch goes to Java's threads and comes back as one text of JSON: asking for one hit after the other takes longer
    than the search itself. JSON keeps every float32.
    """
    mapper = java("com.fasterxml.jackson.databind.ObjectMapper")()
    stored = java("java.lang.Class").forName("org.apache.lucene.document.Document")
    mapper.configOverride(stored).setIsIgnoredType(java("java.lang.Boolean")(True))
    size = max(1, HITS_AT_ONCE // depth)
    for start in range(0, len(queries), size):
        batch = queries[start : start + size]
        ids, texts = java("java.util.ArrayList")(), java("java.util.ArrayList")()
        for query, text in batch:
            ids.add(query)
            texts.add(text)
        hits = json.loads(mapper.writeValueAsString(searcher.batch_search(texts, ids, depth, 1)))
        for query, _ in batch:
            if found := hits[query]:
                yield query, [hit["docid"] for hit in found], [hit["score"] for hit in found]
        progress.add(len(batch))
