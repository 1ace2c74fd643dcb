"""The engine Lucene, through Anserini's searcher: BM25, RM3 and BM25F, on all of Java's processors.

A query is a bag of words: characters of Lucene's query syntax mean nothing. Scores are Lucene's own float32; Anserini's
step that rounds them to four digits and spreads ties is left out, so that equal passages tie.

RM3 is Anserini's: with D the `fb_docs` best passages of a first search,

    P(w|R) ∝ Σ_{d ∈ D} tf(w, d) / |d| · BM25(q, d)
    P'(w) = α P(w|q) + (1 − α) P(w|R), α = `original_query_weight`

and the second search is for the terms w, each weighing P'(w) (Lavrenko and Croft 2001; Abdul-Jaleel et al. 2004). Here
d is a passage's `fb_terms` most frequent terms, |d| the sum of their frequencies, and P(w|R) keeps `fb_terms` terms.
Terms of one letter, of more than 20 or in more than a tenth of the passages are left out, and so is, in an English
index, what is not made of a to z and digits.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

from tandem.cluster.progress import Progress
from tandem.lexical import analyzers, jvm
from tandem.lexical.engine import Hits, Query, Ranked
from tandem.lexical.fields import FieldSearch
from tandem.store.job import Job

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
