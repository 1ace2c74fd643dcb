"""Estimate what it costs to store vectors of tokens, and to search them."""

from tandem.extras.estimate.model_costs import count_encoded_texts, count_rows
from tandem.extras.estimate.resources import MIB, PROCESS_BYTES, Setting, Work, cost, params_of
from tandem.extras.searched_indexes import index_size
from tandem.plan.graph import Stage

# share of the time of all products that is needed if only pairs of the same token are multiplied; measured: a sixth
# with 32 queries at once, a 20th with 256
_SHARE_OF_SAME_TOKENS = 0.1


@cost("token_vectors")
def estimate_token_vectors(stage: Stage, setting: Setting) -> Work:
    """Estimate encoding passages or a split's queries into one vector per token, with two bytes per number.

    Punctuation of passages is counted, too, although it may have no vectors.
    """
    shape = setting.shape(stage.upstream["tokens"])
    texts, tokens = count_encoded_texts(stage, setting)
    rows = count_rows(stage, setting)
    return Work(
        "encode",
        # queries may be padded to more tokens than they have
        shape.forward(texts, max(tokens, rows / max(1, texts))),
        width=shape.hidden,
        memory=PROCESS_BYTES + 4 * shape.parameters + 8 * texts,
        disk=2 * rows * setting.dimension(stage),
    )


@cost("maxsim")
def estimate_maxsim(stage: Stage, setting: Setting) -> Work:
    """Estimate the products of every query's tokens with every passage's.

    With an index: a search for each token, and products with the most promising passages only.
    """
    params = params_of(stage)
    count = setting.passages(stage)
    passages = stage.upstream["passages"]
    query_tokens = count_rows(stage.upstream["queries"], setting)
    passage_tokens = count_rows(passages, setting)
    memory = 1024.0 * MIB
    searches = dict[str, float]()

    if "index" in stage.upstream:
        built = stage.upstream["index"]
        index = index_size[built.kind](built, setting)
        searches = index.list_searches(query_tokens, params.nprobe, params.ef_search)
        passage_tokens *= min(1.0, params.depth * params.rescore_factor / max(1, count))
        memory += index.rows * (index.row_bytes + (0 if params.rescore else 8))

    products = 2.0 * query_tokens * passage_tokens * setting.dimension(passages)
    if params.same_token:
        products *= _SHARE_OF_SAME_TOKENS
    rows = (*searches.items(), ("flat_search", products))
    return Work(rows=rows, memory=memory, run=setting.run(stage, min(params.depth, count)))
