"""Plan the stages that index, tune and search for BM25 and its variants.

`bm25` and `bm25.<analyzer>` are the configuration's `bm25`; a name of `sparse:` is a variant of it, which may be tuned,
expanded by RM3 or by texts that are generated for a query, searched over fields, scored by another formula, by another
engine or by another classical score.
"""

from collections.abc import Callable

from tandem.config.retrieval import LexicalMethod, Sparse
from tandem.errors import UserError, nearest, printable
from tandem.plan.context import (
    Context,
    checks_entry,
    checks_variant,
    json_of,
    plans_lexical_index,
    plans_run,
    plans_tuning,
)
from tandem.plan.dataset_stages import corpus_dataset, dataset
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references
from tandem.plan.reported import reported_split, searched
from tandem.stages import parameter_names
from tandem.stages.base import Json
from tandem.stages.data import ANALYZERS, FORMULAS, LANGUAGES, SPLIT_BEFORE


@plans_run("sparse")
def plan_variant(ctx: Context, name: str, split: str, where: str, data: str) -> Stage:
    """Plan the run of a variant of BM25."""
    return _search(ctx, name, f"sparse.{name}", ctx.settings.sparse[name], split, data)


def plan_bm25(ctx: Context, system: str, split: str, where: str, data: str) -> Stage:
    """Plan the run of BM25, `bm25`, or of BM25 with another analyzer, `bm25.<analyzer>`."""
    analyzer = system.partition(".")[2]
    if analyzer and analyzer not in ANALYZERS:
        raise UserError(
            f"{where}: bm25.{analyzer} has an unknown analyzer{nearest(analyzer, list(ANALYZERS))}"
        )
    is_usual = analyzer in ("", _analyzer(ctx, Sparse(), data))
    variant = Sparse.model_validate({"analyzer": analyzer or None})
    return _search(ctx, "bm25" if is_usual else system, "bm25", variant, split, data)


def _search(ctx: Context, name: str, at: str, variant: Sparse, split: str, data: str) -> Stage:
    """Plan the search by a variant, whose path in the configuration is `at`."""
    upstream = {
        "dataset": dataset(ctx, data),
        _engine(ctx, variant): _index(ctx, at, variant, data),
    }
    method = _method_params(variant)
    params = searched(ctx, split, data) | method
    own = plan_references(ctx, variant, at, Scope(data, split))
    if variant.similarity and (kind := variant.similarity.stage):
        options = json_of(variant.similarity, *parameter_names(kind))
        upstream[kind] = ctx.stage(kind, data, name, options, dict(upstream))
    if variant.tuned:
        upstream["tuned"] = _plan_tuning(at)(ctx, name, at, variant, method, upstream, data)
    elif not variant.similarity:
        bm25 = ctx.settings.bm25
        params["k1"] = bm25.k1 if variant.k1 is None else variant.k1
        params["b"] = bm25.b if variant.b is None else variant.b
    return ctx.stage("bm25", data, f"{name}.{split}", params, upstream | own)


def _plan_tuning(at: str) -> Callable[..., Stage]:
    """Return the function that plans how k1 and b are chosen."""
    if "bm25" not in plans_tuning:
        raise UserError(f"{at}.tuned: nothing chooses k1 and b; leave it out, and set them")
    return plans_tuning["bm25"]


def _method_params(variant: Sparse) -> Json:
    """Return the parameters by which a variant scores, other than k1 and b."""
    params = json_of(variant, *LexicalMethod.model_fields)
    if variant.delta is None:
        params["delta"] = FORMULAS[variant.formula]
    if variant.expand is not None:
        params["texts"] = variant.expand.number
    return params


def _index(ctx: Context, at: str, variant: Sparse, data: str) -> Stage:
    """Plan the index that a variant searches; variants, and datasets of the same passages, share what they agree on."""
    engine = _engine(ctx, variant)
    analyzer = _analyzer(ctx, variant, data)
    params: Json = {
        "analyzer": analyzer,
        "language": ctx.dataset_entry(data).language,
        "fields": variant.fields is not None,
    }
    params = plans_lexical_index[engine](ctx, variant, at, params, data)
    indexed = corpus_dataset(ctx, data)
    return ctx.stage(engine, indexed, analyzer, params, {"dataset": dataset(ctx, indexed)})


@plans_lexical_index("lucene")
def plan_lucene(ctx: Context, variant: Sparse, at: str, params: Json, data: str) -> Json:
    """Return the parameters of Lucene's index; refuse a language that it has no analyzer for."""
    language = params["language"]
    if params["analyzer"] not in SPLIT_BEFORE and language not in LANGUAGES:
        problem = (
            f"datasets.{data}.language is {printable(language)}, which Lucene has no analyzer for"
        )
        allowed = f"allowed: {', '.join(LANGUAGES)}, or any with analyzer whitespace or jieba"
        raise UserError(f"{problem}; {allowed}")
    return params | {"vectors": variant.rm3 is not None}


def every_field_has_b(variant: Sparse) -> bool:
    """Return whether every field that is searched has a b of its own."""
    if variant.fields is None or variant.field_b is None:
        return False
    return variant.field_b.own().keys() == variant.fields.weights().keys()


def _engine(ctx: Context, variant: Sparse) -> str:
    """Return a variant's own engine, else that of its similarity, else the configuration's."""
    if variant.engine is None and variant.similarity is not None:
        return variant.similarity.engine
    return variant.engine or ctx.settings.bm25.engine


def _analyzer(ctx: Context, variant: Sparse, data: str) -> str:
    """Return a variant's own analyzer, else the configuration's, else the dataset's."""
    return variant.analyzer or ctx.settings.bm25.analyzer or ctx.dataset_entry(data).analyzer


@checks_entry("sparse")
def check_variant(ctx: Context, name: str) -> None:
    """Refuse a variant whose keys do not go together."""
    variant = ctx.settings.sparse[name]
    at = f"sparse.{name}"
    engine = _engine(ctx, variant)
    plan_references(
        ctx, variant, at, Scope(ctx.settings.dataset, reported_split(ctx, ctx.settings.dataset))
    )
    if variant.similarity:
        _check_similarity(variant, at)
    checks_variant[engine](variant, at)
    if variant.match == "all" and variant.rm3:
        raise UserError(
            f"{at} has rm3 and match all, but no passage has all terms of feedback; leave one of them out"
        )
    _check_fields(variant, at)
    if variant.delta is not None and FORMULAS[variant.formula] is None:
        raise UserError(
            f"{at}.delta is of bm25+ and bm25l, but formula is {variant.formula}; leave it out"
        )
    for key in ("k1", "b") if variant.tuned else ():
        if getattr(variant, key) is not None:
            raise UserError(f"{at}.{key} is set, but {at}.tuned chooses it; leave one of them out")


@checks_variant("lucene")
def check_for_lucene(variant: Sparse, at: str) -> None:
    """Refuse a variant that Lucene cannot compute."""
    if variant.formula != "lucene":
        raise UserError(
            f"{at}.formula is {variant.formula}, which Lucene lacks; set {at}.engine to bm25s"
        )
    if variant.field_b:
        reason = "Lucene adds the fields' lengths up before b counts, so that all have one"
        raise UserError(f"{at}.field_b: {reason}; set {at}.engine to bm25s, or {at}.b")


def _check_fields(variant: Sparse, at: str) -> None:
    """Refuse fields together with a key that does not work with fields, and a b of a field that is not searched."""
    if variant.fields and FORMULAS[variant.formula] is not None:
        raise UserError(
            f"{at} has fields and formula {variant.formula}, but BM25F has one formula; leave one out"
        )
    weights = variant.fields.weights() if variant.fields else {}
    if variant.fields is not None and not weights:
        raise UserError(
            f"{at}.fields searches no field; give title or text a weight, or leave it out"
        )
    for field in sorted(variant.field_b.own() if variant.field_b else ()):
        if field not in weights:
            raise UserError(
                f"{at}.field_b.{field} is set, but {at}.fields searches no {field}; give it a weight"
            )
    if variant.b is not None and every_field_has_b(variant):
        raise UserError(f"{at}.b is set, but every field has its own in {at}.field_b; leave it out")
    if variant.rm3 and variant.fields:
        raise UserError(
            f"{at} has rm3 and fields; RM3 reads passages as a whole, leave one of them out"
        )


def _check_similarity(variant: Sparse, at: str) -> None:
    """Refuse keys of BM25 together with a similarity, and an engine that does not have it."""
    assert variant.similarity is not None
    chosen = variant.similarity.type
    needed = variant.similarity.engine
    if variant.engine not in (None, needed):
        raise UserError(
            f"{at}.similarity is {chosen}, which {variant.engine} lacks; set {at}.engine to {needed}"
        )
    for key in ("k1", "b", "tuned", "formula", "delta", "fields", "field_b", "rm3"):
        if getattr(variant, key) != Sparse.model_fields[key].default:
            raise UserError(
                f"{at}.{key} is of BM25 alone, but {at}.similarity is {chosen}; leave one of them out"
            )
