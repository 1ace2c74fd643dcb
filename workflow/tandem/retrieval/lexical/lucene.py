"""The engine Lucene, through Anserini: the search of the stage `bm25`.

A query is a bag of words: characters of Lucene's query syntax mean nothing. Scores are Lucene's own float32, so that
equal passages tie.
"""

import base64
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tandem.cluster.progress import Progress
from tandem.data.text import segmenter
from tandem.retrieval.lexical import java
from tandem.retrieval.lexical.java import JavaClass
from tandem.stages.lexical import SPLIT_BEFORE, Bm25Variant, LuceneParams
from tandem.store.job import Job

SEARCHER = "io.anserini.search.SimpleSearcher"
LUCENE = "org.apache.lucene."
HITS_AT_ONCE = 50_000  # results in memory, in Java and here: about 50 MB
MOST_TERMS = 65536  # of a query; Lucene's own limit of 1,024 would refuse long ones

Query = tuple[str, str]  # id and text
Hits = list[tuple[str, float]]  # (document id, score)


def lucene_analyzer(machine: JavaClass, params: LuceneParams) -> Any:
    """The Lucene `Analyzer` for queries of an index with these parameters.

    `analyzer` is `default` (what Anserini does with the language: Porter's stemmer for English, bigrams of characters
    for Chinese and Korean, Lucene's analyzer for others), an English stemmer, `whitespace` (texts are tokens), or
    `jieba` (Chinese words).
    """
    if params.analyzer in SPLIT_BEFORE:
        return machine("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if params.language == "en":
        return machine("io.anserini.analysis.DefaultEnglishAnalyzer").fromArguments(stemmer(params), False, None)
    return machine("io.anserini.analysis.AnalyzerMap").getLanguageSpecificAnalyzer(params.language)


def stemmer(params: LuceneParams) -> str:
    """The stemmer of an English index, as Anserini names it."""
    return "porter" if params.analyzer == "default" else params.analyzer


def splitter(params: LuceneParams) -> Callable[[str], str]:
    """A function that puts spaces between terms before Lucene sees them, where its analyzer does not find them."""
    if params.analyzer != "jieba":
        return str
    words = segmenter()
    return lambda text: " ".join(words(text))


class Lucene:
    """The input `lucene` of a job, opened.

    RM3 and weights of fields exclude one another. Execution: `workers` threads, `heap` of Java.
    """

    def __init__(self, job: Job[Any]) -> None:
        params: Bm25Variant = job.params
        artifact, threads = job.inputs["lucene"], job.execution.workers or os.cpu_count() or 1
        index = artifact.params_as(LuceneParams)
        self.split = splitter(index)
        self.java = machine = java.start(threads, job.execution.heap)
        self.facts: dict[str, object] = {"lucene": java.versions(machine)}
        machine("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MOST_TERMS)
        self.searcher = machine(SEARCHER)(str(artifact.folder / "index"))
        analyzer = lucene_analyzer(machine, index)
        self.searcher.set_analyzer(analyzer)
        if rm3 := params.rm3:
            options = rm3.fb_terms, rm3.fb_docs, rm3.original_query_weight
            self.searcher.set_rm3(None, *options, False, index.language == "en")
        keep_ties(self.searcher)
        weights = params.fields.weights() if params.fields else None
        self.fields = FieldSearch(machine, self.searcher, analyzer, weights) if weights else None
        self.mapper = json_mapper(machine, f"{LUCENE}document.Document")

    def search(
        self, queries: list[Query], k1: float, b: float, depth: int, progress: Progress
    ) -> Iterator[tuple[str, list[str], list[float]]]:
        """See `Engine.search`; as many queries at a time as fill memory with `HITS_AT_ONCE` hits."""
        self.searcher.set_bm25(float(k1), float(b))
        search = self.fields.search if self.fields else self._search
        size = max(1, HITS_AT_ONCE // depth)
        for start in range(0, len(queries), size):
            batch = queries[start : start + size]
            results = search([(query, self.split(text)) for query, text in batch], depth)
            for query, _ in batch:
                if hits := results[query]:
                    yield query, [doc for doc, _ in hits], [score for _, score in hits]
            progress.add(len(batch))

    def close(self) -> None:
        """Close the files of the index."""
        self.searcher.close()

    def _search(self, batch: list[Query], depth: int) -> dict[str, Hits]:
        """A batch by Anserini's own batch search, on Java's threads.

        It comes back as one text of JSON: fetching one hit after the other takes longer than the search itself. JSON
        keeps every float32.
        """
        ids, texts = self.java("java.util.ArrayList")(), self.java("java.util.ArrayList")()
        for query, text in batch:
            ids.add(query)
            texts.add(text)
        results = json.loads(self.mapper.writeValueAsString(self.searcher.batch_search(texts, ids, depth, 1)))
        return {query: [(hit["docid"], hit["score"]) for hit in hits] for query, hits in results.items()}


class FieldSearch:
    """Search over title and text as two fields, by BM25F: queries one by one, each on all of Java's processors.

    Lucene's `CombinedFieldQuery` treats the fields as one: with w_f a field's weight, per query term t

        tf(t, d) = Σ_f w_f tf_f(t, d)        |d| = Σ_f w_f |d|_f        df(t) = max_f df_f(t)
        score(q, d) = Σ_t ln(1 + (N - df + 1/2) / (df + 1/2)) · tf / (tf + k1 (1 - b + b |d| / mean |d|))

    which is BM25F with one b for all fields (Robertson, Zaragoza and Taylor 2004; Robertson and Zaragoza 2009), but for
    df, which there counts passages with t in any field. It is not the weighted sum of two BM25 scores, where a term in
    both fields would count as two.

    Threads share the index' segments, not the queries: pyjnius is not safe to be called from several threads of Python.
    Weights are at least 1, as Lucene demands.
    """

    def __init__(self, machine: JavaClass, searcher: Any, analyzer: Any, weights: dict[str, float]) -> None:
        self.java, self.searcher, self.analyzer, self.weights = machine, searcher, analyzer, weights
        self.pool = machine("java.util.concurrent.Executors").newWorkStealingPool()
        field, kind = machine(f"{LUCENE}search.SortField"), machine(f"{LUCENE}search.SortField$Type")
        self.order = machine(f"{LUCENE}search.Sort")(field.FIELD_SCORE, field("id", kind.STRING_VAL))
        self.mapper = json_mapper(machine, f"[L{LUCENE}search.SortField;")

    def search(self, batch: list[Query], depth: int) -> dict[str, Hits]:
        """(document id, score) of the best `depth` passages of each query, ties by document id."""
        searcher = self.java(f"{LUCENE}search.IndexSearcher")(self.searcher.reader, self.pool)
        searcher.setSimilarity(self.searcher.get_similarity())
        return {query: self._hits(searcher, text, depth) for query, text in batch}

    def _hits(self, searcher: Any, text: str, depth: int) -> Hits:
        """One query's hits, as one text of JSON: fetching one after the other takes longer than the search itself."""
        result = searcher.search(self._query(text), depth, self.order, True)
        hits = json.loads(self.mapper.writeValueAsString(result))["scoreDocs"]
        ids = (hit["fields"][1] for hit in hits)  # a BytesRef of Lucene's
        docs = [base64.b64decode(id["bytes"])[id["offset"] :][: id["length"]].decode() for id in ids]
        return [(doc, hit["score"]) for doc, hit in zip(docs, hits, strict=True)]

    def _query(self, text: str) -> Any:
        """A Lucene query: a clause for each term over all fields, weighing as often as the query has the term."""
        term, boost = self.java(f"{LUCENE}index.Term"), self.java(f"{LUCENE}search.BoostQuery")
        should = self.java(f"{LUCENE}search.BooleanClause$Occur").SHOULD
        builder = self.java(f"{LUCENE}search.BooleanQuery$Builder")()
        terms = self.java("io.anserini.analysis.AnalyzerUtils").analyze(self.analyzer, text).toArray()
        for word, count in Counter(terms).items():
            clause = self.java(f"{LUCENE}sandbox.search.CombinedFieldQuery$Builder")()
            for field, weight in self.weights.items():
                clause.addField(field, float(weight))
            clause.addTerm(term("", word).bytes())
            builder.add(boost(clause.build(), float(count)), should)
        return builder.build()


def keep_ties(searcher: Any) -> None:
    """Take out of a searcher of Anserini's, whose options are set, what spreads ties: the last of its steps."""
    # Not replaced: pyjnius frees a reference that is not its own when it assigns an object to a field, and the machine
    # dies in some later garbage collection.
    steps = searcher.cascade.rerankers
    steps.subList(steps.size() - 1, steps.size()).clear()


def json_mapper(machine: JavaClass, ignored: str) -> Any:
    """What writes Java's objects as JSON, without those of a class."""
    mapper, kind = machine("com.fasterxml.jackson.databind.ObjectMapper")(), machine("java.lang.Class").forName(ignored)
    mapper.configOverride(kind).setIsIgnoredType(machine("java.lang.Boolean")(True))
    return mapper
