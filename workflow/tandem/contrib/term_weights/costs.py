"""What it costs to store weights of terms, to index them, and to search them."""

from tandem.extras.estimate.model_costs import count_encoded_texts, count_head_operations
from tandem.extras.estimate.resources import MIB, PROCESS_BYTES, Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import count_bm25_searches, measure_bm25_process
from tandem.plan.graph import Stage

_TERMS_PER_PASSAGE, _TERMS_PER_QUERY = 130, 30  # terms with a weight, about as in SPLADE's papers


def count_active_terms(stage: Stage, setting: Setting) -> float:
    """Return how many weights a text of a `term_weights` stage has: the model's limit, else about SPLADE's number."""
    usual = _TERMS_PER_PASSAGE if params_of(stage).side == "passages" else _TERMS_PER_QUERY
    _, tokens = count_encoded_texts(stage, setting)
    return float(params_of(stage.upstream["model"]).representation.active_terms(tokens) or usual)


@cost("term_weights")
def estimate_term_weights(stage: Stage, setting: Setting) -> Work:
    """Estimate encoding as for vectors, plus logits of each token over the vocabulary; a weight has 6 bytes on disk."""
    shape, model = setting.shape(stage.upstream["tokens"]), stage.upstream["model"]
    texts, tokens = count_encoded_texts(stage, setting)
    encoders = params_of(model).representation.count_encoders()
    operations = encoders * shape.forward(texts, tokens) + texts * tokens * count_head_operations(
        model, shape
    )
    return Work(
        "encode",
        operations,
        width=shape.hidden,
        memory=PROCESS_BYTES + 4 * shape.parameters + 1024 * MIB,
        disk=6 * texts * count_active_terms(stage, setting),
    )


@cost("retrieve_sparse")
def estimate_retrieve_sparse(stage: Stage, setting: Setting) -> Work:
    """Estimate an upper bound: one product for each weight of a query and each passage."""
    terms = count_active_terms(stage.upstream["queries"], setting)
    operations = 2.0 * setting.queries(stage) * setting.passages(stage) * terms
    return Work(rows=(("flat_search", operations),), run=setting.run(stage))


@cost("impacts")
def estimate_impacts(stage: Stage, setting: Setting) -> Work:
    """Estimate Lucene's index of rounded weights: about two bytes each."""
    rows = (("indexed", setting.passages(stage)),)
    return Work(rows=rows, memory=1024 * MIB, disk=2 * _count_weights(stage, setting))


def _count_weights(stage: Stage, setting: Setting) -> float:
    """Return how many weights of terms all passages have together."""
    return setting.passages(stage) * count_active_terms(stage.upstream["passages"], setting)


@cost("search_impacts")
def estimate_search_impacts(stage: Stage, setting: Setting) -> Work:
    """Estimate a search by BM25 whose queries have several times the terms."""
    rows = count_bm25_searches(
        stage, setting, setting.queries(stage), params_of(stage).depth, terms=5
    )
    return Work(rows=rows, memory=measure_bm25_process(stage, setting), run=setting.run(stage))


@cost("seismic")
def estimate_seismic(stage: Stage, setting: Setting) -> Work:
    """Estimate Seismic's index: all weights and lists of the largest ones, in memory during the build."""
    rows, weights = (("indexed", setting.passages(stage)),), _count_weights(stage, setting)
    return Work(rows=rows, memory=1024 * MIB + 24.0 * weights, disk=12 * weights)


@cost("search_seismic")
def estimate_search_seismic(stage: Stage, setting: Setting) -> Work:
    """Estimate a search through a few lists, and the exact scores of `depth` passages per query."""
    terms = count_active_terms(stage.upstream["passages"], setting)
    operations = 2.0 * setting.queries(stage) * params_of(stage).depth * terms
    memory = 1024 * MIB + 24.0 * terms * setting.passages(stage)
    return Work(rows=(("flat_search", operations),), memory=memory, run=setting.run(stage))
