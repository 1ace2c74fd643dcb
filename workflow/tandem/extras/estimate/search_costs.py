"""Cost functions of search by what encoders make: exact, and of terms.

Operations are those of distances, a multiplication and its addition counting as two; they have the rate `flat_search`
(see config/hardware/).
"""

from tandem.extras.estimate.model_costs import count_active_terms
from tandem.extras.estimate.resources import MIB, Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import (
    LIGHT_PROCESS_BYTES,
    count_bm25_searches,
    measure_bm25_process,
)
from tandem.plan.graph import Stage

_BYTES_PER_SORTED_ID = 24  # of a passage whose id's place in alphabetical order is mapped


@cost("retrieve")
def estimate_retrieve(stage: Stage, setting: Setting) -> Work:
    """Estimate exact inner-product search of every query against every passage."""
    passages, split = setting.passages(stage), params_of(stage.upstream["queries"]).split
    queries = setting.queries(stage, split)
    dimension, depth = setting.dimension(stage.upstream["passages"]), params_of(stage).depth
    compared = float(queries * passages)

    # The best of a group of queries have a quarter (retrieve.py), two stretches of vectors a third (faiss_search.py).
    allowed = (setting.execution.search_memory or 2048) * MIB
    held = min(allowed / 4, 16 * queries * depth) + min(allowed / 3, 6 * passages * dimension)
    return Work(
        rows=(("flat_search", 2 * compared * dimension), ("compared", compared)),
        memory=LIGHT_PROCESS_BYTES + held + _BYTES_PER_SORTED_ID * passages,
        run=setting.run(stage, split=split),
    )


@cost("retrieve_sparse")
def estimate_retrieve_sparse(stage: Stage, setting: Setting) -> Work:
    """Estimate at most a product for each of a query's weights with every passage."""
    terms = count_active_terms(stage.upstream["queries"], setting)
    operations = 2.0 * setting.queries(stage) * setting.passages(stage) * terms
    return Work(rows=(("flat_search", operations),), run=setting.run(stage))


@cost("impacts")
def estimate_impacts(stage: Stage, setting: Setting) -> Work:
    """Estimate Lucene's index of rounded weights: about two bytes each."""
    rows = (("indexed", setting.passages(stage)),)
    return Work(rows=rows, memory=1024 * MIB, disk=2 * _count_weights(stage, setting))


def _count_weights(stage: Stage, setting: Setting) -> float:
    """Return the number of weights of terms of all passages."""
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
    """Estimate Seismic's index: the weights, and lists of the largest of them; in memory while it is built."""
    rows, weights = (("indexed", setting.passages(stage)),), _count_weights(stage, setting)
    return Work(rows=rows, memory=1024 * MIB + 24.0 * weights, disk=12 * weights)


@cost("search_seismic")
def estimate_search_seismic(stage: Stage, setting: Setting) -> Work:
    """Estimate a search through few lists, and exact scores of as many passages as a run is deep."""
    terms = count_active_terms(stage.upstream["passages"], setting)
    operations = 2.0 * setting.queries(stage) * params_of(stage).depth * terms
    memory = 1024 * MIB + 24.0 * terms * setting.passages(stage)
    return Work(rows=(("flat_search", operations),), memory=memory, run=setting.run(stage))
