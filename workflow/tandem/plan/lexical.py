"""BM25 and its variants: which stages index, tune and search.

`bm25` and `bm25.<analyzer>` are the configuration's `bm25`; a name of `sparse:` is a variant of it, which may be tuned,
expanded by RM3, searched over fields, scored by another formula, by another engine or by another classical score.
"""

from tandem.config.retrieval import Sparse
from tandem.config.similarities import Lsi, VectorSimilarity
from tandem.errors import UserError, nearest, printable
from tandem.plan.context import Context, json_of
from tandem.plan.datasets import dataset, require_split
from tandem.plan.graph import Stage
from tandem.plan.reported import cutoff, run_depth, searched
from tandem.stages.base import Json
from tandem.stages.data import ANALYZERS, ENGINES, FORMULAS, LANGUAGES, SPLIT_BEFORE, WITHOUT_JAVA

ENGLISH = ("default", "porter")  # analyzers of bm25s that stem


def search(ctx: Context, system: str, split: str, where: str, data: str) -> Stage:
    """The stage that writes the run of BM25 or of a variant."""
    if system in ctx.settings.sparse:
        return _search(ctx, system, f"sparse.{system}", ctx.settings.sparse[system], split, data)
    analyzer = system.partition(".")[2]
    if analyzer and analyzer not in ANALYZERS:
        raise UserError(f"{where}: bm25.{analyzer} has an unknown analyzer{nearest(analyzer, list(ANALYZERS))}")
    plain = Sparse()
    name = "bm25" if analyzer in ("", _analyzer(ctx, plain, data)) else system
    variant = plain.model_copy(update={"analyzer": analyzer or None})
    return _search(ctx, name, "bm25", variant, split, data)


def _search(ctx: Context, name: str, at: str, variant: Sparse, split: str, data: str) -> Stage:
    """The stage that searches; `at` is the variant's path in the configuration."""
    bm25, engine = ctx.settings.bm25, _engine(ctx, variant)
    upstream = {"dataset": dataset(ctx, data), engine: _index(ctx, at, variant, data)}
    method: Json = {"rm3": json_of(variant.rm3)} if variant.rm3 else {}  # beyond plain BM25
    method |= {"fields": variant.fields.weights()} if variant.fields else {}
    method |= {"field_b": variant.field_b.own()} if variant.field_b else {}
    if (delta := FORMULAS[variant.formula]) is not None:
        method |= {"formula": variant.formula, "delta": delta if variant.delta is None else variant.delta}
    params = searched(ctx, split, data) | method
    if variant.match != "any":
        params["match"] = variant.match
    if variant.similarity:
        params["similarity"] = json_of(variant.similarity)
        if isinstance(variant.similarity, Lsi):
            upstream["lsi"] = _lsi(ctx, name, variant.similarity, upstream, data)
    elif variant.tuned:
        upstream["tuned"] = _tune(ctx, name, at, method, upstream, data)
    else:
        params["k1"] = bm25.k1 if variant.k1 is None else variant.k1
        params["b"] = bm25.b if variant.b is None else variant.b
    return ctx.stage("bm25", data, f"{name}.{split}", params, upstream)


def _index(ctx: Context, at: str, variant: Sparse, data: str) -> Stage:
    """The index that a variant searches; variants share what they agree on."""
    engine, analyzer = _engine(ctx, variant), _analyzer(ctx, variant, data)
    language = ctx.dataset_entry(data).language
    params: Json = {"analyzer": analyzer, "language": language}
    place = f"datasets.{data}.language is {printable(language)}"
    if engine == "lucene" and analyzer not in SPLIT_BEFORE and language not in LANGUAGES:
        allowed = f"allowed: {', '.join(LANGUAGES)}, or any with analyzer whitespace or jieba"
        raise UserError(f"{place}, which Lucene has no analyzer for; {allowed}")
    if engine == "bm25s" and analyzer in ENGLISH and language != "en":
        raise UserError(f"{place}, and bm25s stems English alone; set {at}.analyzer to none, whitespace or jieba")
    if engine == "lucene":
        params |= {"vectors": variant.rm3 is not None, "fields": variant.fields is not None}
    elif analyzer not in WITHOUT_JAVA:
        raise UserError(f"{at}.analyzer is {analyzer}, which bm25s lacks; allowed: {', '.join(WITHOUT_JAVA)}")
    elif variant.fields:
        params["fields"] = True
    return ctx.stage(engine, data, analyzer, params, {"dataset": dataset(ctx, data)})


def _lsi(ctx: Context, name: str, similarity: Lsi, upstream: dict[str, Stage], data: str) -> Stage:
    """The stage that puts passages and terms into few dimensions."""
    params = json_of(similarity, "sublinear", "dimensions")
    return ctx.stage("lsi", data, name, params, dict(upstream))


def _tune(ctx: Context, name: str, at: str, method: Json, upstream: dict[str, Stage], data: str) -> Stage:
    """The stage that chooses k1 and b, searching as the variant does."""
    tune, entry = ctx.settings.bm25.tune, ctx.dataset_entry(data)
    if entry.relevance == "answers":
        raise UserError(f"{at}.tuned needs qrels; dataset {data} has answers")
    require_split(ctx, data, tune.split, f"{at}: is tuned")
    depth = cutoff(tune.measure) or run_depth(ctx, tune.split, data)
    params = json_of(tune) | method | {"depth": depth, "ignore_identical_ids": entry.ignore_identical_ids}
    if "field_b" in method and method["field_b"].keys() == method["fields"].keys():
        params["b"] = params["b"][:1]  # no field reads it, k1 alone is chosen
    return ctx.stage("tune_bm25", data, f"{name}.{tune.split}", params, dict(upstream))


def _engine(ctx: Context, variant: Sparse) -> str:
    """A variant's own engine, else that of its similarity, else the configuration's."""
    if variant.engine is None and variant.similarity is not None:
        return "bm25s" if isinstance(variant.similarity, VectorSimilarity) else "lucene"
    return variant.engine or ctx.settings.bm25.engine


def _analyzer(ctx: Context, variant: Sparse, data: str) -> str:
    """A variant's own analyzer, else the configuration's, else the dataset's."""
    return variant.analyzer or ctx.settings.bm25.analyzer or ctx.dataset_entry(data).analyzer


def check_sparse(ctx: Context, name: str) -> None:
    """Refuse a variant whose keys do not go together."""
    variant, at = ctx.settings.sparse[name], f"sparse.{name}"
    engine = _engine(ctx, variant)
    if variant.similarity:
        _check_similarity(variant, at)
    if engine == "bm25s" and variant.match == "all":
        raise UserError(f"{at}.match needs Lucene, but the engine is bm25s; set {at}.engine to {ENGINES[0]}")
    if variant.match == "all" and variant.rm3:
        raise UserError(f"{at} has rm3 and match all, but no passage has all terms of feedback; leave one of them out")
    if engine == "bm25s" and variant.rm3:
        raise UserError(f"{at}.rm3 needs Lucene, but the engine is bm25s; set {at}.engine to {ENGINES[0]}")
    if engine == "lucene" and variant.formula != "lucene":
        raise UserError(f"{at}.formula is {variant.formula}, which Lucene lacks; set {at}.engine to bm25s")
    if variant.fields and FORMULAS[variant.formula] is not None:
        raise UserError(f"{at} has fields and formula {variant.formula}, but BM25F has one formula; leave one out")
    own = variant.field_b.own() if variant.field_b else {}
    weights = variant.fields.weights() if variant.fields else {}
    if variant.field_b and engine == "lucene":
        reason = "Lucene adds the fields' lengths up before b counts, so that all have one"
        raise UserError(f"{at}.field_b: {reason}; set {at}.engine to bm25s, or {at}.b")
    if unread := sorted(own.keys() - weights.keys()):
        raise UserError(f"{at}.field_b.{unread[0]} is set, but {at}.fields searches no {unread[0]}; give it a weight")
    if variant.field_b and variant.b is not None and own.keys() == weights.keys():
        raise UserError(f"{at}.b is set, but every field has its own in {at}.field_b; leave it out")
    if variant.rm3 and variant.fields:
        raise UserError(f"{at} has rm3 and fields; RM3 reads passages as a whole, leave one of them out")
    if variant.delta is not None and FORMULAS[variant.formula] is None:
        raise UserError(f"{at}.delta is of bm25+ and bm25l, but formula is {variant.formula}; leave it out")
    if variant.tuned and (key := next((key for key in ("k1", "b") if getattr(variant, key) is not None), None)):
        raise UserError(f"{at}.{key} is set, but {at}.tuned chooses it; leave one of them out")


def _check_similarity(variant: Sparse, at: str) -> None:
    """Refuse keys of BM25 beside a similarity, and the engine that does not have it."""
    assert variant.similarity is not None
    chosen = variant.similarity.type
    needed = "bm25s" if isinstance(variant.similarity, VectorSimilarity) else "lucene"
    if variant.engine not in (None, needed):
        raise UserError(f"{at}.similarity is {chosen}, which {variant.engine} lacks; set {at}.engine to {needed}")
    for key in ("k1", "b", "tuned", "formula", "delta", "fields", "field_b", "rm3"):
        if getattr(variant, key) != Sparse.model_fields[key].default:
            raise UserError(f"{at}.{key} is of BM25 alone, but {at}.similarity is {chosen}; leave one of them out")
