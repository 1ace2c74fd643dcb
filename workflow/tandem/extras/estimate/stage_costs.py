"""Cost functions of stages: data, lexical search, training lists, re-ranking, scores."""

from dataclasses import replace

from tandem.extras.estimate.resources import MIB, PROCESS_BYTES, Setting, Work, cost, params_of
from tandem.plan.graph import Stage
from tandem.stages import KINDS

LIGHT_PROCESS_BYTES = 190 * MIB  # a process without torch
BYTES_PER_ID = 30  # per passage whose id is in memory
BYTES_PER_LOOKED_UP_ID = 50  # per passage whose id can also be looked up
QUERIES_IN_MEMORY = 1000  # about how many queries have their lines in memory at once
UNLIMITED = 1 << 62  # number of queries if the parameters name no limit

_BYTES_PER_CHARACTER_ON_DISK = 0.5  # of a compressed corpus
_CHARACTERS_PER_TOKEN = 5
_COPIES_PER_READING = 2.5  # passages read by a shard that are copied in the time of reading one
_BYTES_PER_LISTED_PASSAGE = 6
_BYTES_PER_SCORED_LINE = 400  # as Python's objects
_JAVA_HEAP_BYTES = 950 * MIB  # the size to which Java's heap grows
_JAVA_BYTES_PER_PASSAGE = 450  # growth of the heap while passages are indexed
_INDEX_BYTES_PER_TOKEN = 1.25  # of Lucene's index
_FIXED_MILLIONS = 12.0  # millions of passages whose search takes as long as a query's fixed cost


@cost("dataset")
def estimate_dataset(stage: Stage, setting: Setting) -> Work:
    """Estimate reading, checking and writing; 60 bytes per passage stay in memory (benchmarks/results/at_scale.md)."""
    size = setting.sizes(stage)
    characters = size.passages * size.lengths["passage"] * _CHARACTERS_PER_TOKEN
    is_shared = setting.execution.shards > 1 and KINDS["dataset"].is_shared(stage)
    return Work(
        rows=(("passages", size.passages),),
        alone=(("passages", size.passages / _COPIES_PER_READING),) if is_shared else (),
        memory=285 * MIB + 60 * size.passages,
        disk=_BYTES_PER_CHARACTER_ON_DISK * characters,
    )


@cost("tokens")
def estimate_tokens(stage: Stage, setting: Setting) -> Work:
    """Estimate tokenising the corpus and all queries; ids take four bytes if the vocabulary needs more than two."""
    size = setting.size(stage)
    query, passage = setting.lengths(stage)
    total = size.passages * passage + sum(size.queries.values()) * query

    bytes_per_token = 2 if setting.shape(stage).vocabulary <= 1 << 16 else 4
    disk = bytes_per_token * total + 8 * size.passages
    return Work(rows=(("tokens", total),), memory=480 * MIB, disk=disk)


@cost("lucene")
def estimate_lucene(stage: Stage, setting: Setting) -> Work:
    """Estimate indexing."""
    passages = setting.passages(stage)
    heap = min(_JAVA_HEAP_BYTES, _JAVA_BYTES_PER_PASSAGE * passages)
    return Work(
        rows=(("indexed", passages),),
        memory=2 * LIGHT_PROCESS_BYTES + heap,
        disk=measure_lucene_index(stage, setting),
    )


def measure_lucene_index(stage: Stage, setting: Setting) -> float:
    """Return the bytes of Lucene's index of a stage's collection."""
    return _INDEX_BYTES_PER_TOKEN * setting.passages(stage) * setting.size(stage).lengths["passage"]


@cost("bm25")
def estimate_bm25(stage: Stage, setting: Setting) -> Work:
    """Estimate searching."""
    terms = count_query_terms(stage, setting)
    rows = count_bm25_searches(
        stage, setting, setting.queries(stage), params_of(stage).depth, terms
    )
    return Work(rows=rows, memory=measure_bm25_process(stage, setting), run=setting.run(stage))


@cost("tune_bm25")
def estimate_tune_bm25(stage: Stage, setting: Setting) -> Work:
    """Estimate searching a split once for every k1 and b."""
    params = params_of(stage)
    queries = min(setting.queries(stage), params.queries or UNLIMITED)
    searches = len(params.k1) * len(params.b) * queries
    rows = count_bm25_searches(
        stage, setting, searches, params.depth, count_query_terms(stage, setting)
    )
    return Work(rows=rows, memory=measure_bm25_process(stage, setting))


def count_query_terms(stage: Stage, setting: Setting) -> float:
    """Return, at most, the factor by which texts generated for a query multiply its terms."""
    texts: int = params_of(stage).texts
    if not texts:
        return 1.0
    tokens: int = params_of(stage.upstream["generated"]).tokens
    return 1.0 + texts * tokens / setting.size(stage).lengths["query"]


def count_bm25_searches(
    stage: Stage, setting: Setting, queries: float, depth: int, terms: float = 1.0
) -> tuple[tuple[str, float], ...]:
    """Return the equivalent number of searches of a million passages, and the number of their hits.

    Args:
        terms: a query's number of terms relative to that of an MS MARCO question.
    """
    millions = _FIXED_MILLIONS + terms * setting.passages(stage) / 1e6
    return ("bm25", queries * millions), ("hits", queries * depth)


def measure_bm25_process(stage: Stage, setting: Setting) -> float:
    """Return the bytes that a search needs: Java's, those of the ids that are looked up, and of the mapped index."""
    ids = BYTES_PER_LOOKED_UP_ID * setting.passages(stage)
    return 2 * LIGHT_PROCESS_BYTES + _JAVA_HEAP_BYTES + ids + measure_lucene_index(stage, setting)


def measure_process_with_ids(stage: Stage, setting: Setting) -> float:
    """Return the bytes of a process that holds the ids of all passages."""
    return LIGHT_PROCESS_BYTES + BYTES_PER_ID * setting.passages(stage)


def estimate_pair_scores(
    setting: Setting, tokens: Stage, pairs: float, models: int, disk: float = 0.0, run: float = 0.0
) -> Work:
    """Estimate scoring pairs by cross-encoders and storing the scores.

    Args:
        disk: bytes that the stage itself writes in addition to the scores.
        run: bytes of the run that it writes.
    """
    shape, length = setting.shape(tokens), setting.pair_length(tokens)
    return Work(
        "rerank",
        models * shape.forward(pairs, length),
        width=shape.hidden,
        rows=(("encoded", models * pairs * length),),
        memory=PROCESS_BYTES + 8 * shape.parameters + measure_mapped_tokens(tokens, setting),
        disk=disk + 12 * pairs,
        run=run,
    )


def count_texts_each(stage: Stage, tokens: Stage, setting: Setting) -> float:
    """Return how many texts a cross-encoder reads for each passage of a stage, such as a document's windows."""
    if tokens.dataset == stage.dataset:
        return 1.0
    return setting.size(tokens).passages / max(1, setting.passages(stage))


def measure_mapped_tokens(tokens: Stage, setting: Setting) -> float:
    """Return the bytes of the passages' token ids, which are mapped and read at scattered places."""
    _, passage = setting.lengths(tokens)
    return 2 * passage * setting.size(tokens).passages


def count_inputs(stage: Stage, role: str) -> int:
    """Return how many inputs `<role>.<i>` a stage has."""
    return sum(name.startswith(f"{role}.") for name in stage.upstream)


@cost("candidates")
def estimate_candidates(stage: Stage, setting: Setting) -> Work:
    """Estimate drawing lists; a judge scores all passages in the window, also for dev queries if it is calibrated."""
    params, judges = params_of(stage), count_inputs(stage, "judge")
    queries = min(setting.queries(stage), params.queries or UNLIMITED)
    disk = queries * params.depth * _BYTES_PER_LISTED_PASSAGE
    ids = BYTES_PER_LOOKED_UP_ID * setting.passages(stage)

    if not judges:
        memory = (
            LIGHT_PROCESS_BYTES + ids + measure_mapped_tokens(stage.upstream["tokens"], setting)
        )
        return Work(rows=(("listed", queries),), memory=memory, disk=disk)

    calibrating = setting.queries(stage, "dev") if "calibration" in stage.upstream else 0
    if params.denoise and params.denoise.calibrate_queries:
        calibrating = min(calibrating, params.denoise.calibrate_queries)
    pairs = (queries + calibrating) * (params.depth + 1)
    read = stage.upstream["judge_tokens.0"]
    texts = count_texts_each(stage, read, setting)
    judged = estimate_pair_scores(setting, read, pairs * texts, judges, disk=disk)
    return replace(judged, memory=judged.memory + ids)


def find_split(run: Stage) -> str:
    """Return the split of a run; a re-ranked run has the split of its first stage."""
    split = getattr(params_of(run), "split", None)
    return str(split) if split else find_split(run.upstream["run"])


def find_depth(run: Stage) -> int:
    """Return how many passages a query has in a run; a re-ranked run is as deep as the run that it re-ranks."""
    if run.declared.scoring.of == "top":
        return find_depth(run.upstream["run"])
    return getattr(params_of(run), "depth", None) or 100


@cost("rerank")
def estimate_rerank(stage: Stage, setting: Setting) -> Work:
    """Estimate scoring the top of every query's list, by each cross-encoder of an ensemble."""
    params, split, depth = params_of(stage), find_split(stage), find_depth(stage)
    queries = setting.queries(stage, split)
    run = setting.run(stage, depth, split)
    lines = ("lines", queries * depth)
    if params.scorer:  # a plugin's scorer, whose cost is unknown
        return Work(rows=(lines,), memory=measure_process_with_ids(stage, setting), run=run)

    tokens = stage.upstream.get("tokens") or stage.upstream["judge_tokens.0"]
    judges = max(1, count_inputs(stage, "judge"))
    pairs = queries * params.depth * count_texts_each(stage, tokens, setting)
    scored = estimate_pair_scores(setting, tokens, pairs, judges, run=run)
    memory = scored.memory + BYTES_PER_LOOKED_UP_ID * setting.passages(stage)
    return replace(scored, rows=(*scored.rows, lines), memory=memory)


@cost("compare")
def estimate_compare(stage: Stage, setting: Setting) -> Work:
    """Estimate scoring every two passages at the top of each query's list, in both orders."""
    depth, tokens = params_of(stage).depth, stage.upstream["tokens"]
    pairs = setting.queries(stage, find_split(stage)) * depth * (depth - 1)
    shape, (_, passage) = setting.shape(tokens), setting.lengths(tokens)
    length = setting.pair_length(tokens) + passage + 1
    memory = PROCESS_BYTES + 4 * shape.parameters + measure_mapped_tokens(tokens, setting)
    operations = shape.forward(pairs, length)
    return Work("rerank", operations, width=shape.hidden, memory=memory, disk=4.0 * pairs)


@cost("rerank_compared")
def estimate_rerank_compared(stage: Stage, setting: Setting) -> Work:
    """Estimate reading a run and comparisons of its top, and writing it reordered."""
    split, depth, compared = find_split(stage), find_depth(stage), params_of(stage).depth
    lines = setting.queries(stage, split) * (depth + compared * compared)
    run = setting.run(stage, depth, split)
    return Work(rows=(("lines", lines),), memory=measure_process_with_ids(stage, setting), run=run)


@cost("score")
def estimate_score(stage: Stage, setting: Setting) -> Work:
    """Estimate measuring a run."""
    if "run" not in stage.upstream:
        return Work(memory=LIGHT_PROCESS_BYTES)
    queries, depth = setting.queries(stage), find_depth(stage.upstream["run"])
    lines = _BYTES_PER_SCORED_LINE * depth * min(queries, QUERIES_IN_MEMORY)
    return Work(
        rows=(("lines", queries * depth),),
        memory=measure_process_with_ids(stage, setting) + lines,
        disk=1000 + 12 * queries,
    )
