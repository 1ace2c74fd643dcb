"""Cost functions of stages: data, lexical search, candidates, re-ranking, fusion, scores."""

from dataclasses import replace
from math import comb

from tandem.extras.estimate.resources import MIB, PROCESS, Setting, Work, cost, params_of
from tandem.plan.graph import Stage
from tandem.stages import KINDS

LISTED = 6  # bytes of a line of training lists
LIGHT = 190 * MIB  # a process without torch
NAMED, FOUND = 30, 50  # bytes a passage whose ids stand in memory, and where they can also be looked up
SCORED, FUSED = 400, 150  # bytes a line that is scored, or fused: objects of Python's
TOGETHER = 1000  # queries whose lines stand in memory together, about
HEAP, GARBAGE = 950 * MIB, 450  # what Java's heap grows to, and the bytes an indexed passage by which it grows
EACH = 12.0  # millions of passages whose search takes as long as what every query costs
INDEXED = 1.25  # bytes of Lucene's index a token
COPIED = 2.5  # passages that a shard has read are copied in the time of reading one
EVERY = 1 << 62


@cost("dataset")
def dataset(stage: Stage, setting: Setting) -> Work:
    """Reading, checking and writing; 60 bytes a passage stay in memory (see benchmarks/results/at_scale.md)."""
    size = setting.sizes(stage)
    text = size.passages * size.lengths["passage"] * 5
    is_shared = setting.execution.shards > 1 and KINDS["dataset"].is_shared(stage)
    return Work(
        rows=(("passages", size.passages),),
        alone=(("passages", size.passages / COPIED),) if is_shared else (),
        memory=285 * MIB + 60 * size.passages,
        disk=0.5 * text,
    )


@cost("tokens")
def tokens(stage: Stage, setting: Setting) -> Work:
    """Tokenising the corpus and all queries; two bytes a token, four where the vocabulary needs them."""
    size, (query, passage) = setting.size(stage), setting.lengths(stage)
    total = size.passages * passage + sum(size.queries.values()) * query
    each = 2 if setting.shape(stage).vocabulary <= 1 << 16 else 4
    return Work(rows=(("tokens", total),), memory=480 * MIB, disk=each * total + 8 * size.passages)


@cost("vocabulary")
def vocabulary(stage: Stage, setting: Setting) -> Work:
    """Learning a tokenizer from the corpus, which reads it once, and drawing the first weights."""
    size = setting.size(stage)
    return Work(rows=(("tokens", size.passages * size.lengths["passage"]),), disk=4 * setting.shape(stage).parameters)


@cost("encoder")
def encoder(stage: Stage, setting: Setting) -> Work:
    """Copying a starting encoder."""
    return Work(disk=4 * setting.shape(stage).parameters, memory=400 * MIB)


@cost("lucene")
def lucene(stage: Stage, setting: Setting) -> Work:
    """Indexing."""
    passages = setting.passages(stage)
    memory = 2 * LIGHT + min(HEAP, GARBAGE * passages)
    return Work(rows=(("indexed", passages),), memory=memory, disk=lucene_bytes(stage, setting))


def lucene_bytes(stage: Stage, setting: Setting) -> float:
    """Bytes of Lucene's index of a stage's collection."""
    return INDEXED * setting.passages(stage) * setting.size(stage).lengths["passage"]


@cost("bm25s")
def bm25s(stage: Stage, setting: Setting) -> Work:
    """Numbering the terms of all passages; four bytes a term on disk, the vocabulary in memory."""
    size = setting.size(stage)
    disk = size.passages * (4 * size.lengths["passage"] + 8)
    return Work(rows=(("indexed", size.passages),), memory=1024 * MIB, disk=disk)


@cost("lsi")
def lsi(stage: Stage, setting: Setting) -> Work:
    """Reading all terms some two times a dimension; a hundred dimensions take about as long as indexing."""
    size, dimensions = setting.size(stage), params_of(stage).dimensions
    rows = size.passages * (1 + dimensions / 100)
    vectors = 4 * size.passages * dimensions
    memory = LIGHT + 12 * size.passages * size.lengths["passage"] + 4 * vectors
    return Work(rows=(("indexed", rows),), memory=memory, disk=vectors)


@cost("bm25")
def bm25(stage: Stage, setting: Setting) -> Work:
    """Searching."""
    rows = bm25_rows(stage, setting, setting.queries(stage), params_of(stage).depth)
    return Work(rows=rows, memory=bm25_memory(stage, setting), run=setting.run(stage))


@cost("tune_bm25")
def tune_bm25(stage: Stage, setting: Setting) -> Work:
    """Searching a split once for every k1 and b."""
    params = params_of(stage)
    queries = min(setting.queries(stage), params.queries or EVERY)
    rows = bm25_rows(stage, setting, len(params.k1) * len(params.b) * queries, params.depth)
    return Work(rows=rows, memory=bm25_memory(stage, setting))


def bm25_rows(
    stage: Stage, setting: Setting, queries: float, depth: int, terms: float = 1.0
) -> tuple[tuple[str, float], ...]:
    """Searches of a million passages that take as long as these, and the hits.

    `terms` is how many times as many a query has as a question of MS MARCO's.
    """
    return ("bm25", queries * (EACH + terms * setting.passages(stage) / 1e6)), ("hits", queries * depth)


def bm25_memory(stage: Stage, setting: Setting) -> float:
    """Bytes that a search needs: those of Java, of the ids that are looked up, and of the mapped index."""
    return 2 * LIGHT + HEAP + FOUND * setting.passages(stage) + lucene_bytes(stage, setting)


def named(stage: Stage, setting: Setting) -> float:
    """Bytes of a process that holds the ids of all passages."""
    return LIGHT + NAMED * setting.passages(stage)


def score_pairs(
    setting: Setting, tokens: Stage, pairs: float, models: int, disk: float = 0.0, run: float = 0.0
) -> Work:
    """Scoring pairs by cross-encoders, and storing the scores; `disk` and `run` are what the stage itself writes."""
    shape, length = setting.shape(tokens), setting.pair_length(tokens)
    operations, rows = models * shape.forward(pairs, length), (("encoded", models * pairs * length),)
    memory = PROCESS + 8 * shape.parameters + mapped_tokens(tokens, setting)
    return Work("rerank", operations, rows, memory=memory, disk=disk + 12 * pairs, run=run)


def mapped_tokens(tokens: Stage, setting: Setting) -> float:
    """Bytes of the passages' token ids, which are mapped and read here and there."""
    return 2 * setting.lengths(tokens)[1] * setting.size(tokens).passages


def number_of(stage: Stage, role: str) -> int:
    """How many inputs `<role>.<i>` a stage has."""
    return sum(name.startswith(f"{role}.") for name in stage.upstream)


@cost("candidates")
def candidates(stage: Stage, setting: Setting) -> Work:
    """Drawing lists; with a judge every passage of the window is scored, of the dev queries too to calibrate it."""
    params, judges = params_of(stage), number_of(stage, "judge")
    queries = min(setting.queries(stage), params.queries or EVERY)
    disk, looked_up = queries * params.depth * LISTED, FOUND * setting.passages(stage)
    if judges:
        calibrating = setting.queries(stage, "dev") if "calibration" in stage.upstream else 0
        most = params.denoise.calibrate_queries if params.denoise else None
        pairs = (queries + min(calibrating, most or EVERY)) * (params.depth + 1)
        judged = score_pairs(setting, stage.upstream["judge_tokens.0"], pairs, judges, disk=disk)
        return replace(judged, memory=judged.memory + looked_up)
    memory = LIGHT + looked_up + mapped_tokens(stage.upstream["tokens"], setting)
    return Work(rows=(("listed", queries),), memory=memory, disk=disk)


@cost("teacher")
def teacher(stage: Stage, setting: Setting) -> Work:
    """A teacher's scores of all listed pairs."""
    drawn, judges = params_of(stage.upstream["candidates"]), number_of(stage, "judge")
    pairs = min(setting.queries(stage, "train"), drawn.queries or EVERY) * drawn.depth
    if not judges:
        return Work(rows=(("lines", pairs),), disk=4 * pairs)
    return score_pairs(setting, stage.upstream["judge_tokens.0"], pairs, judges, disk=4 * pairs)


def split_of(run: Stage) -> str:
    """The split of a run; a re-ranked run has that of its first stage."""
    split = getattr(params_of(run), "split", None)
    return str(split) if split else split_of(run.upstream["run"])


def depth_of(run: Stage) -> int:
    """How many passages a query has in a run; a re-ranked one is as deep as what it re-ranks."""
    if run.declared.scoring.of == "top":
        return depth_of(run.upstream["run"])
    return getattr(params_of(run), "depth", None) or 100


@cost("rerank")
def rerank(stage: Stage, setting: Setting) -> Work:
    """Scoring the top of every query's list, by each cross-encoder of an ensemble."""
    split, depth = split_of(stage), depth_of(stage)
    queries, judges = setting.queries(stage, split), max(1, number_of(stage, "judge"))
    run = setting.run(stage, depth, split)
    if params_of(stage).scorer:  # a plugin's; nobody knows what it costs
        return Work(rows=(("lines", queries * depth),), memory=named(stage, setting), run=run)
    read = stage.upstream.get("tokens") or stage.upstream["judge_tokens.0"]
    scored = score_pairs(setting, read, queries * params_of(stage).depth, judges, run=run)
    memory = scored.memory + FOUND * setting.passages(stage)
    return replace(scored, rows=(*scored.rows, ("lines", queries * depth)), memory=memory)


@cost("compare")
def compare(stage: Stage, setting: Setting) -> Work:
    """Scoring each two passages at the top of every query's list, in both orders."""
    depth, tokens = params_of(stage).depth, stage.upstream["tokens"]
    pairs = setting.queries(stage, split_of(stage)) * depth * (depth - 1)
    shape, (_, passage) = setting.shape(tokens), setting.lengths(tokens)
    length = setting.pair_length(tokens) + passage + 1
    memory = PROCESS + 4 * shape.parameters + mapped_tokens(tokens, setting)
    return Work("rerank", shape.forward(pairs, length), memory=memory, disk=4.0 * pairs)


@cost("rerank_compared")
def rerank_compared(stage: Stage, setting: Setting) -> Work:
    """Reading a run and comparisons of its top, and writing it again."""
    split, depth, compared = split_of(stage), depth_of(stage), params_of(stage).depth
    lines = setting.queries(stage, split) * (depth + compared * compared)
    run = setting.run(stage, depth, split)
    return Work(rows=(("lines", lines),), memory=named(stage, setting), run=run)


@cost("rerank_windows")
def rerank_windows(stage: Stage, setting: Setting) -> Work:
    """Scoring the windows of the documents at the top of every query's list."""
    params, windows = params_of(stage), setting.sizes(stage.upstream["windows"]).passages
    each = 1.0 if params.method == "first" else windows / max(1, setting.passages(stage))
    pairs, read = setting.queries(stage) * params.depth * each, stage.upstream["judge_tokens.0"]
    return score_pairs(setting, read, pairs, number_of(stage, "judge"), run=setting.run(stage, depth_of(stage)))


@cost("aggregate")
def aggregate(stage: Stage, setting: Setting) -> Work:
    """Reading a run over windows and writing one over documents."""
    lines = setting.queries(stage) * depth_of(stage.upstream["run"])
    return Work(rows=(("lines", lines),), memory=named(stage, setting), run=setting.run(stage))


@cost("fuse")
def fuse(stage: Stage, setting: Setting) -> Work:
    """Reading several runs and writing one."""
    queries, depth = setting.queries(stage), params_of(stage).depth
    looked_up = FOUND * setting.passages(stage) + FUSED * depth * min(queries, TOGETHER)
    lines, memory = queries * depth * number_of(stage, "run"), named(stage, setting) + looked_up
    return Work(rows=(("lines", lines),), memory=memory, run=setting.run(stage))


@cost("tune_fusion")
def tune_fusion(stage: Stage, setting: Setting) -> Work:
    """Reading the runs once, and fusing them by every setting."""
    params, runs, queries = params_of(stage), number_of(stage, "run"), setting.queries(stage)
    settings = len(params.k) if params.method == "rrf" else comb(round(1 / params.step) + runs - 1, runs - 1)
    lines = queries * params.depth * runs * (1 + settings)
    return Work(rows=(("lines", lines),), memory=named(stage, setting) + 8.0 * settings * queries)


@cost("restore_queries")
def restore_queries(stage: Stage, setting: Setting) -> Work:
    """Reading a run and writing it under other names."""
    lines = 2 * setting.queries(stage) * params_of(stage).depth
    return Work(rows=(("lines", lines),), memory=named(stage, setting), run=setting.run(stage))


@cost("pipeline")
def pipeline(stage: Stage, setting: Setting) -> Work:
    """Reading a run and the one that it re-ranks, and writing one."""
    lines = 3 * setting.queries(stage) * params_of(stage).depth
    return Work(rows=(("lines", lines),), memory=named(stage, setting), run=setting.run(stage))


@cost("choose_pipeline")
def choose_pipeline(stage: Stage, setting: Setting) -> Work:
    """Reading every run, re-ranked ones once per depth with what they re-rank, and measuring it."""
    params, first = params_of(stage), number_of(stage, "first")
    read = number_of(stage, "run") - first + 2 * first * len(params.depths)
    lines = setting.queries(stage) * params.depth * read
    return Work(rows=(("lines", lines),), memory=named(stage, setting))


@cost("score")
def score(stage: Stage, setting: Setting) -> Work:
    """Measuring a run."""
    if "run" not in stage.upstream:
        return Work(memory=LIGHT)
    queries, depth = setting.queries(stage), depth_of(stage.upstream["run"])
    memory = named(stage, setting) + SCORED * depth * min(queries, TOGETHER)
    return Work(rows=(("lines", queries * depth),), memory=memory, disk=1000 + 12 * queries)
