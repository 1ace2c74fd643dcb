"""Cost functions of what encodes texts and searches it: one vector a text, a vector a token, weights of terms."""

from tandem.extras.estimate.resources import DUAL_SPECIAL, MIB, PROCESS, Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import LIGHT, bm25_memory, bm25_rows, run_bytes
from tandem.plan.graph import Stage
from tandem.plan.sizes import Shape

ORDER = 24  # bytes a passage whose id's place in alphabetical order is mapped
ACTIVE_TERMS, QUERY_TERMS = 130, 30  # with a weight, of a passage and of a query: those of SPLADE's papers, about


def encoded_texts(stage: Stage, setting: Setting) -> tuple[float, float]:
    """How many texts of its side a stage encodes, and the mean tokens of one, special ones included."""
    params, (query, passage) = params_of(stage), setting.lengths(stage.upstream["tokens"])
    if params.side == "passages":
        return setting.size(stage).passages, passage + DUAL_SPECIAL
    return setting.queries(stage, params.split), query + DUAL_SPECIAL


@cost("embeddings")
def embeddings(stage: Stage, setting: Setting) -> Work:
    """Encoding passages or a split's queries into vectors; one of int8 has a scale of four bytes."""
    shape, (texts, tokens) = setting.shape(stage.upstream["tokens"]), encoded_texts(stage, setting)
    dimension = setting.dimension(stage)
    each = {"fp32": 4 * dimension, "fp16": 2 * dimension, "int8": dimension + 4}[params_of(stage).dtype]
    memory, rows = PROCESS + 4 * shape.parameters, (("encoded", texts * tokens),)
    return Work("encode", shape.forward(texts, tokens), rows, memory=memory, disk=texts * each)


@cost("retrieve")
def retrieve(stage: Stage, setting: Setting) -> Work:
    """Exact inner-product search of every query against every passage."""
    size, passages = setting.size(stage), stage.upstream["passages"]
    split = params_of(stage.upstream["queries"]).split
    queries = size.queries.get(split, 0)
    compared = float(queries * size.passages)
    dimension, depth = setting.dimension(passages), params_of(stage).depth
    rows = (("flat_search", 2 * compared * dimension), ("compared", compared))
    # The best of a group of queries have a quarter (retrieve.py), two stretches of vectors a third (faiss_search.py).
    allowed = (setting.execution.search_memory or 2048) * MIB
    held = min(allowed / 4, 16 * queries * depth) + min(allowed / 3, 6 * size.passages * dimension)
    memory = LIGHT + held + ORDER * size.passages
    return Work(rows=rows, memory=memory, run=run_bytes(queries, params_of(stage).depth, split))


@cost("average_rank")
def average_rank(stage: Stage, setting: Setting) -> Work:
    """Ranking the relevant passage of every query among all of a small collection."""
    dimension = setting.dimension(stage.upstream["passages"])
    queries = setting.queries(stage, params_of(stage).split)
    return Work(rows=(("flat_search", 2.0 * queries * setting.size(stage).passages * dimension),))


def token_rows(stage: Stage, setting: Setting) -> float:
    """Tokens with a vector of a `token_vectors` stage; punctuation, which has none, is counted."""
    texts, tokens = encoded_texts(stage, setting)
    side = "query" if params_of(stage).side == "queries" else "passage"
    return texts * float(params_of(stage.upstream["model"]).representation.vectors(side, tokens))


@cost("token_vectors")
def token_vectors(stage: Stage, setting: Setting) -> Work:
    """Encoding passages or a split's queries into a vector a token, of two bytes a number."""
    shape, rows = setting.shape(stage.upstream["tokens"]), token_rows(stage, setting)
    texts, tokens = encoded_texts(stage, setting)
    memory = PROCESS + 4 * shape.parameters + 8 * texts
    return Work(
        "encode",
        shape.forward(texts, max(tokens, rows / texts)),
        memory=memory,
        disk=2 * rows * setting.dimension(stage),
    )


def logits(model: Stage, shape: Shape) -> float:
    """Operations a token of the wide layer above a model's encoder; 0 where there is none."""
    return 2.0 * shape.hidden * float(params_of(model).representation.head(shape.vocabulary))


def active_terms(stage: Stage, setting: Setting) -> float:
    """Weights of a text of a `term_weights` stage: as many as its model allows, else as SPLADE's papers have."""
    usual = ACTIVE_TERMS if params_of(stage).side == "passages" else QUERY_TERMS
    _, tokens = encoded_texts(stage, setting)
    return float(params_of(stage.upstream["model"]).representation.active_terms(tokens) or usual)


@cost("term_weights")
def term_weights(stage: Stage, setting: Setting) -> Work:
    """Encoding as for vectors, and each token's logits over the vocabulary; a few weights of six bytes are stored."""
    shape, (texts, tokens) = setting.shape(stage.upstream["tokens"]), encoded_texts(stage, setting)
    model = params_of(stage.upstream["model"]).representation
    operations = model.encoders * shape.forward(texts, tokens) + texts * tokens * logits(stage.upstream["model"], shape)
    disk = 6 * texts * active_terms(stage, setting)
    return Work("encode", operations, memory=PROCESS + 4 * shape.parameters + 1024 * MIB, disk=disk)


@cost("retrieve_sparse")
def retrieve_sparse(stage: Stage, setting: Setting) -> Work:
    """At most a product for each of a query's weights with every passage."""
    params, queries = params_of(stage), setting.queries(stage, params_of(stage).split)
    operations = 2.0 * queries * setting.size(stage).passages * active_terms(stage.upstream["queries"], setting)
    return Work(rows=(("flat_search", operations),), run=run_bytes(queries, params.depth, params.split))


@cost("impacts")
def impacts(stage: Stage, setting: Setting) -> Work:
    """Lucene's index of rounded weights: about two bytes each."""
    passages = setting.size(stage).passages
    disk = 2 * passages * active_terms(stage.upstream["passages"], setting)
    return Work(rows=(("indexed", passages),), memory=1024 * MIB, disk=disk)


@cost("search_impacts")
def search_impacts(stage: Stage, setting: Setting) -> Work:
    """As a search by BM25, of some times the terms."""
    params, queries = params_of(stage), setting.queries(stage, params_of(stage).split)
    run = run_bytes(queries, params.depth, params.split)
    rows = bm25_rows(stage, setting, queries, params.depth, terms=5)
    return Work(rows=rows, memory=bm25_memory(stage, setting), run=run)


@cost("seismic")
def seismic(stage: Stage, setting: Setting) -> Work:
    """Seismic's index: the weights, and lists of the largest of them; in memory while it is built."""
    weights = setting.size(stage).passages * active_terms(stage.upstream["passages"], setting)
    return Work(
        rows=(("indexed", setting.size(stage).passages),), memory=1024 * MIB + 24.0 * weights, disk=12 * weights
    )


@cost("search_seismic")
def search_seismic(stage: Stage, setting: Setting) -> Work:
    """A search through few lists, and exact scores of as many passages as a run is deep."""
    params, queries = params_of(stage), setting.queries(stage, params_of(stage).split)
    active = active_terms(stage.upstream["passages"], setting)
    rows = (("flat_search", 2.0 * queries * params.depth * active),)
    memory = 1024 * MIB + 24.0 * active * setting.size(stage).passages
    return Work(rows=rows, memory=memory, run=run_bytes(queries, params.depth, params.split))


@cost("term_tradeoffs")
def term_tradeoffs(stage: Stage, setting: Setting) -> Work:
    """A few searches of a sample of queries, exact and in Lucene."""
    params = params_of(stage)
    searched = min(params.queries, setting.queries(stage, params.split)) * (params.repeats + 2)
    rows = bm25_rows(stage, setting, searched, max(params.k), terms=10)
    weights = setting.size(stage).passages * active_terms(stage.upstream["passages"], setting)
    return Work(rows=rows, memory=1024 * MIB + 12.0 * weights)
