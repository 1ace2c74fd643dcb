"""Cost functions of stages: data, lexical search, candidates, re-ranking, fusion, scores."""

from math import comb

from tandem.data.splits import LEARNED
from tandem.extras.estimate.resources import MIB, PROCESS, Setting, Work, cost, params_of
from tandem.plan.graph import Stage

LINE, TEXT = 6, 60  # bytes of a run's line, and of the same line in run.trec
LISTED = 8  # bytes of a line of training lists
EVERY = 1 << 62


@cost("dataset")
def dataset(stage: Stage, setting: Setting) -> Work:
    """Reading, checking and writing; 60 bytes a passage stay in memory (see benchmarks/results/dataset_stage.md)."""
    size = setting.sizes(stage)
    text = size.passages * size.lengths["passage"] * 5
    return Work(rows=(("passages", size.passages),), memory=150 * MIB + 60 * size.passages, disk=0.6 * text)


@cost("tokens")
def tokens(stage: Stage, setting: Setting) -> Work:
    """Tokenising the corpus and all queries; two bytes a token, four where the vocabulary needs them."""
    size, (query, passage) = setting.size(stage), setting.lengths(stage)
    total = size.passages * passage + sum(size.queries.values()) * query
    each = 2 if setting.shape(stage).vocabulary <= 1 << 16 else 4
    return Work(rows=(("tokens", total),), memory=400 * MIB, disk=each * total + 8 * size.passages)


@cost("vocabulary")
def vocabulary(stage: Stage, setting: Setting) -> Work:
    """Learning a tokenizer from the corpus, which reads it once, and drawing the first weights."""
    size = setting.size(stage)
    return Work(rows=(("tokens", size.passages * size.lengths["passage"]),), disk=4 * setting.shape(stage).parameters)


@cost("encoder")
def encoder(stage: Stage, setting: Setting) -> Work:
    """Copying a starting encoder."""
    return Work(disk=4 * setting.shape(stage).parameters, memory=270 * MIB)


@cost("lucene")
def lucene(stage: Stage, setting: Setting) -> Work:
    """Indexing."""
    size = setting.size(stage)
    return Work(rows=(("indexed", size.passages),), memory=1024 * MIB, disk=size.passages * size.lengths["passage"] * 2)


@cost("bm25s")
def bm25s(stage: Stage, setting: Setting) -> Work:
    """Numbering the terms of all passages; four bytes a term on disk, the vocabulary in memory."""
    size = setting.size(stage)
    disk = size.passages * (4 * size.lengths["passage"] + 8)
    return Work(rows=(("indexed", size.passages),), memory=1024 * MIB, disk=disk)


@cost("bm25")
def bm25(stage: Stage, setting: Setting) -> Work:
    """Searching."""
    params = params_of(stage)
    queries = setting.queries(stage, params.split)
    searched = bm25_queries(stage, setting, queries)
    return Work(rows=(("bm25", searched),), memory=1024 * MIB, run=run_bytes(queries, params.depth, params.split))


@cost("tune_bm25")
def tune_bm25(stage: Stage, setting: Setting) -> Work:
    """Searching a split once for every k1 and b."""
    params = params_of(stage)
    queries = min(setting.queries(stage, params.split), params.queries or float("inf"))
    searched = bm25_queries(stage, setting, len(params.k1) * len(params.b) * queries)
    return Work(rows=(("bm25", searched),), memory=1024 * MIB)


def bm25_queries(stage: Stage, setting: Setting, queries: float) -> float:
    """The queries on a million passages that take as long: a query's time grows with the corpus."""
    return queries * max(setting.size(stage).passages / 1e6, 0.02)


def run_bytes(queries: float, depth: int, split: str) -> float:
    """Bytes of a run: its columns, and its text where the split is evaluated."""
    return queries * depth * (LINE if split in LEARNED else LINE + TEXT)


def score_pairs(
    setting: Setting, tokens: Stage, pairs: float, models: int, disk: float = 0.0, run: float = 0.0
) -> Work:
    """Cross-encoders' scores of pairs, which are stored; `disk` and `run` are what the stage itself writes."""
    shape, length = setting.shape(tokens), setting.pair_length(tokens)
    operations, rows = models * shape.forward(pairs, length), (("encoded", models * pairs * length),)
    return Work("rerank", operations, rows, memory=PROCESS + 8 * shape.parameters, disk=disk + 12 * pairs, run=run)


def number_of(stage: Stage, role: str) -> int:
    """How many inputs `<role>.<i>` a stage has."""
    return sum(name.startswith(f"{role}.") for name in stage.upstream)


@cost("candidates")
def candidates(stage: Stage, setting: Setting) -> Work:
    """Drawing lists; with a judge every passage of the window is scored, of the dev queries too to calibrate it."""
    params, judges = params_of(stage), number_of(stage, "judge")
    queries = min(setting.queries(stage, params.split), params.queries or EVERY)
    lines = queries * params.depth
    if judges:
        calibrating = setting.queries(stage, "dev") if "calibration" in stage.upstream else 0
        pairs = (queries + calibrating) * (params.depth + 1)
        return score_pairs(setting, stage.upstream["judge_tokens.0"], pairs, judges, disk=lines * LISTED)
    return Work(rows=(("listed", lines),), disk=lines * LISTED)


@cost("teacher")
def teacher(stage: Stage, setting: Setting) -> Work:
    """A teacher's scores of all listed pairs."""
    drawn, judges = params_of(stage.upstream["candidates"]), number_of(stage, "judge")
    pairs = min(setting.queries(stage, "train"), drawn.queries or EVERY) * drawn.depth
    if not judges:
        return Work(rows=(("lines", pairs),), disk=4 * pairs)
    return score_pairs(setting, stage.upstream["judge_tokens.0"], pairs, judges, disk=4 * pairs)


def split_of(run: Stage) -> str:
    """The split of a run; a re-ranked one is of that of what it re-ranks."""
    split = getattr(params_of(run), "split", None)
    return str(split) if split else split_of(run.upstream["run"])


def depth_of(run: Stage) -> int:
    """How many passages a query has in a run; a re-ranked one is as deep as what it re-ranks."""
    if run.kind.startswith("rerank"):
        return depth_of(run.upstream["run"])
    return getattr(params_of(run), "depth", None) or 100


@cost("rerank")
def rerank(stage: Stage, setting: Setting) -> Work:
    """Scoring the top of every query's list, by each cross-encoder of an ensemble."""
    split, depth = split_of(stage), depth_of(stage)
    queries, judges = setting.queries(stage, split), max(1, number_of(stage, "judge"))
    run = run_bytes(queries, depth, split)
    if params_of(stage).scorer:  # a plugin's; nobody knows what it costs
        return Work(rows=(("lines", queries * depth),), memory=150 * MIB, run=run)
    read = stage.upstream.get("tokens") or stage.upstream["judge_tokens.0"]
    return score_pairs(setting, read, queries * params_of(stage).depth, judges, run=run)


@cost("rerank_windows")
def rerank_windows(stage: Stage, setting: Setting) -> Work:
    """Scoring the windows of the documents at the top of every query's list."""
    documents, windows = (setting.sizes(stage.upstream[role]) for role in ("dataset", "windows"))
    params = params_of(stage)
    queries = documents.queries.get(params.split, 0)
    each = 1.0 if params.method == "first" else windows.passages / documents.passages
    run = run_bytes(queries, depth_of(stage), params.split)
    read, judges = stage.upstream["judge_tokens.0"], number_of(stage, "judge")
    return score_pairs(setting, read, queries * params.depth * each, judges, run=run)


@cost("aggregate")
def aggregate(stage: Stage, setting: Setting) -> Work:
    """Reading a run over windows and writing one over documents."""
    params = params_of(stage)
    queries = setting.queries(stage, params.split)
    read = queries * params_of(stage.upstream["run"]).depth
    return Work(rows=(("lines", read),), memory=150 * MIB, run=run_bytes(queries, params.depth, params.split))


@cost("fuse")
def fuse(stage: Stage, setting: Setting) -> Work:
    """Reading several runs and writing one."""
    params, runs = params_of(stage), number_of(stage, "run")
    queries = setting.queries(stage, params.split)
    run = run_bytes(queries, params.depth, params.split)
    return Work(rows=(("lines", queries * params.depth * runs),), memory=150 * MIB, run=run)


@cost("tune_fusion")
def tune_fusion(stage: Stage, setting: Setting) -> Work:
    """Reading the runs once, and fusing them by every setting."""
    params, runs = params_of(stage), number_of(stage, "run")
    queries = setting.queries(stage, params.split)
    settings = len(params.k) if params.method == "rrf" else comb(round(1 / params.step) + runs - 1, runs - 1)
    lines = queries * params.depth * runs
    return Work(rows=(("lines", lines * (1 + settings)),), memory=150 * MIB + 8.0 * settings * queries)


@cost("pipeline")
def pipeline(stage: Stage, setting: Setting) -> Work:
    """Reading a run and the one that it re-ranks, and writing one."""
    params = params_of(stage)
    queries = setting.queries(stage, params.split)
    run = run_bytes(queries, params.depth, params.split)
    return Work(rows=(("lines", 3 * queries * params.depth),), memory=150 * MIB, run=run)


@cost("choose_pipeline")
def choose_pipeline(stage: Stage, setting: Setting) -> Work:
    """Reading every run, re-ranked ones once per depth with what they re-rank, and measuring it."""
    params, first = params_of(stage), number_of(stage, "first")
    read = number_of(stage, "run") - first + 2 * first * len(params.depths)
    return Work(rows=(("lines", setting.queries(stage, params.split) * params.depth * read),), memory=150 * MIB)


@cost("score")
def score(stage: Stage, setting: Setting) -> Work:
    """Measuring a run."""
    if "run" not in stage.upstream:
        return Work(memory=140 * MIB)
    queries = setting.queries(stage, params_of(stage).split)
    return Work(rows=(("lines", queries * depth_of(stage.upstream["run"])),), memory=150 * MIB, disk=queries * 100)
