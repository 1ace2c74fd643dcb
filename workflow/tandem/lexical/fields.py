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
from collections import Counter
from typing import Any

from tandem.lexical.engine import Hits, Query
from tandem.lexical.jvm import JavaClass

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
