"""What the engine bm25s lacks, and the parameters of its index."""

from tandem.config.retrieval import Sparse
from tandem.contrib.lexical.options import WITHOUT_JAVA
from tandem.errors import UserError
from tandem.plan.context import checks_variant, plans_lexical_index
from tandem.stages.base import Json

STEMMING_ANALYZERS = ("default", "porter")


@plans_lexical_index("bm25s")
def plan_bm25s(variant: Sparse, at: str, params: Json, place: str) -> Json:
    """Return the parameters of an index of bm25s; refuse an analyzer that it lacks, and stems of other languages."""
    analyzer = params["analyzer"]
    if analyzer in STEMMING_ANALYZERS and params["language"] != "en":
        raise UserError(
            f"{place}, and bm25s stems English alone; set {at}.analyzer to none, whitespace or jieba"
        )
    if analyzer not in WITHOUT_JAVA:
        raise UserError(
            f"{at}.analyzer is {analyzer}, which bm25s lacks; allowed: {', '.join(WITHOUT_JAVA)}"
        )
    return params


@checks_variant("bm25s")
def check_for_bm25s(variant: Sparse, at: str) -> None:
    """Refuse what bm25s does not compute."""
    if variant.match == "all":
        raise UserError(
            f"{at}.match needs Lucene, but the engine is bm25s; set {at}.engine to lucene"
        )
    if variant.rm3:
        raise UserError(
            f"{at}.rm3 needs Lucene, but the engine is bm25s; set {at}.engine to lucene"
        )
