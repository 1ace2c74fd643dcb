"""Plan the index of the engine bm25s, and refuse options that the engine lacks."""

from tandem.config.retrieval import Sparse
from tandem.contrib.lexical.options import WITHOUT_JAVA, Lsi
from tandem.errors import UserError, printable
from tandem.plan.context import Context, checks_variant, plans_lexical_index
from tandem.stages.base import Json

STEMMING_ANALYZERS = ("default", "porter")


@plans_lexical_index("bm25s")
def plan_bm25s(ctx: Context, variant: Sparse, at: str, params: Json, data: str) -> Json:
    """Return the parameters of an index of bm25s; refuse an analyzer that it lacks, and stemming except in English."""
    analyzer = params["analyzer"]
    language = params["language"]
    if analyzer in STEMMING_ANALYZERS and language != "en":
        problem = f"datasets.{data}.language is {printable(language)}, and bm25s stems English"
        raise UserError(f"{problem} alone; set {at}.analyzer to none, whitespace or jieba")
    if analyzer not in WITHOUT_JAVA:
        raise UserError(
            f"{at}.analyzer is {analyzer}, which bm25s lacks; allowed: {', '.join(WITHOUT_JAVA)}"
        )
    if isinstance(variant.similarity, Lsi):
        _check_dimensions(ctx, at, variant.similarity.dimensions, data)
    return params


def _check_dimensions(ctx: Context, at: str, dimensions: int, data: str) -> None:
    """Refuse dimensions of LSI that are not fewer than the dataset's passages; the number of terms is known later."""
    passages = (ctx.dataset_entry(data).counts or {}).get("passages")
    if passages is not None and dimensions >= passages:
        has = f"dataset {data} has {passages:,} passages; allowed: below {passages:,}"
        raise UserError(f"{at}.similarity.dimensions is {dimensions}, but {has}")


@checks_variant("bm25s")
def check_for_bm25s(variant: Sparse, at: str) -> None:
    """Refuse options that bm25s does not support."""
    if variant.match == "all":
        raise UserError(
            f"{at}.match needs Lucene, but the engine is bm25s; set {at}.engine to lucene"
        )
    if variant.rm3:
        raise UserError(
            f"{at}.rm3 needs Lucene, but the engine is bm25s; set {at}.engine to lucene"
        )
