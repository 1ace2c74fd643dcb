"""Stage `candidates`: draw each training query's list from a run, denoised by a judge if there is one."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa

from tandem.cluster.progress import Progress, warn
from tandem.config.candidates import Denoising
from tandem.data.collection import Collection
from tandem.data.columns import column_writer
from tandem.data.rows import IdRows, doc_rows, query_rows
from tandem.data.runs import scored_depth
from tandem.errors import UserError
from tandem.models.ragged import Ids
from tandem.models.tokens import Tokens
from tandem.negatives.lists import Pool, TrainingList, denoised, judge_labelled, keep_below, make_pool, undenoised
from tandem.negatives.sources import Labels, source_name
from tandem.stages.negatives import CandidatesParams, negatives
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing
from tandem.store.lineage import stage_name

GROUP = 1024  # queries judged together
PERCENTILES = (5, 25, 50, 75, 95)
BINS = 20
LEAST_WON = 0.6  # of the pairs of a relevant passage and another, which a judge must rank right; chance has a half
MOST_LOST = 0.05  # of the known positives, which a judge may take for sure negatives

# candidates.parquet: a line per passage of a list; `with_ids` has the ids behind the rows.
SCHEMA = pa.schema(
    [
        ("query_row", pa.uint32()),
        ("passage_row", pa.uint32()),
        ("label", pa.int8()),
        ("rank", pa.int32()),
        ("score", pa.float32()),
        ("judge", pa.float32()),
        ("source", pa.string()),
        ("list", pa.string()),
    ]
)

NUMBERS = ("passage_row", "rank", "score", "judge")


def table(lists: list[TrainingList]) -> pa.Table:
    """Lists as rows of `SCHEMA`, list after list, positives first."""

    def joined(name: str) -> Ids:
        return np.concatenate([getattr(entry, name) for entry in lists])

    columns = {
        "query_row": np.repeat([entry.query for entry in lists], [len(entry.rows) for entry in lists]),
        "passage_row": joined("rows"),
        "label": joined("labels"),
        "rank": joined("ranks"),
        "score": joined("scores"),
        "judge": joined("judged"),
        "source": [source for entry in lists for source in entry.sources],
        "list": [entry.kind for entry in lists for _ in entry.sources],
    }
    return pa.table({name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names})


class Report:
    """report.json: passages that each rule dropped, percentiles and histograms of scores, gathered list by list.

    Scores are the judge's probabilities where there is a judge, else the run's. Memory: four bytes a list row.
    `won` of `compared` pairs of a query's positive and another passage of its window have the positive judged higher.
    `known_positives_below` is the share of the known positives that a judge scores below each threshold.
    """

    def __init__(self, negatives: int | None, denoise: Denoising | None = None) -> None:
        self.negatives, self.denoise = negatives, denoise
        self.queries = self.too_few = self.without_positive = self.without_run = self.won = self.compared = 0
        self.lists: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.scores: dict[str, list[Ids]] = {"positives": [], "negatives": []}

    def add_pool(self, pool: Pool) -> None:
        """Count a query and the passages that its pool lost."""
        self.queries += 1
        self.dropped.update(pool.dropped)
        judged = np.isfinite(pool.judged).all()
        if judged:
            higher = pool.judged_positives[:, None] > pool.judged
            self.won, self.compared = self.won + int(higher.sum()), self.compared + higher.size
        self.scores["negatives"].append(pool.judged if judged else pool.scores[np.isfinite(pool.scores)])
        self.scores["positives"].append(pool.judged_positives[np.isfinite(pool.judged_positives)])

    def add_list(self, entry: TrainingList) -> bool:
        """Count a list; False if it has no negative, so that nothing can be learned from it."""
        negatives = int((entry.labels == 0).sum())
        self.too_few += negatives < (self.negatives or 1)
        if negatives:
            self.lists[entry.kind] += 1
        return negatives > 0

    def below(self) -> dict[float, float]:
        """Threshold → the share of the known positives that the judge scores below it; empty where none is judged."""
        judged = np.concatenate([np.empty(0, np.float32), *self.scores["positives"]])
        if self.denoise is None or not len(judged):
            return {}
        thresholds = [self.denoise.negative_below, self.denoise.positive_above]
        return {value: float((judged < value).mean()) for value in thresholds if value is not None}

    def finish(self) -> dict[str, object]:
        """The report as plain values."""
        joined = {name: np.concatenate(s) if s else np.empty(0, np.float32) for name, s in self.scores.items()}
        every = np.concatenate(list(joined.values()))
        edges = np.histogram_bin_edges(every, BINS) if len(every) else np.linspace(0, 1, BINS + 1)
        shares = {f"{value:g}": round(share, 6) for value, share in self.below().items()}
        return {
            "queries": self.queries,
            "lists": dict(sorted(self.lists.items())),
            "dropped": dict(sorted(self.dropped.items())),
            "too_few": self.too_few,
            "without_positive": self.without_positive,
            "without_run": self.without_run,
            **({"known_positives_below": shares} if shares else {}),
            "percentiles": {name: _percentiles(values) for name, values in joined.items()},
            "histogram": {
                "edges": [round(float(e), 6) for e in edges],
                **{name: np.histogram(values, edges)[0].tolist() for name, values in joined.items()},
            },
        }


def _percentiles(values: Ids) -> dict[str, float] | None:
    if not len(values):
        return None
    return {f"p{p}": round(float(v), 6) for p, v in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True)}


def pools(job: Job[CandidatesParams], docs: IdRows, queries: IdRows, report: Report) -> Iterator[Pool]:
    """The pool of every query that has a known positive in the corpus, or whose positive the judge decides."""
    params, labels = job.params, Labels(job, docs)
    passages = Tokens.open(job.inputs["tokens"]).passages
    backfill = params.denoise.backfill if params.denoise else None
    beyond = (backfill.first_rank, backfill.depth) if backfill else None
    window = (params.first_rank, params.depth)
    scored = scored_depth(job.inputs["run"]) if params.below_positive and "run" in job.inputs else None
    known = set(labels.queries)
    report.without_run = len(known)
    selected = subset(labels.queries, params.queries, params.seed)
    for query, ids, rows, scores in negatives[source_name(job)](job, labels, docs, queries):
        report.without_run -= query in known
        if query in known and query not in selected:
            continue
        positives = labels.positives(query, ids)
        if not len(positives) and labels.labels != "judge":
            report.without_positive += 1
            continue
        barred, row = labels.barred(query), int(queries.rows([query])[0])
        duplicates = params.near_duplicates
        pool = make_pool(
            row, positives, (rows, scores), window, beyond, passages.__getitem__, barred, duplicates, scored
        )
        pool.labelled, pool.source = labels.name, source_name(job)
        yield pool


def subset(queries: list[str], most: int | None, seed: int) -> set[str]:
    """At most `most` queries, those whose hash with the seed is smallest: the same whatever their order."""
    return set(sorted(queries, key=lambda query: hashlib.sha256(f"{seed} {query}".encode()).digest())[:most])


def draw_lists(pool: Pool, params: CandidatesParams) -> Iterator[TrainingList]:
    """The lists of one query, none where the judge finds no positive; the draw depends on (seed, query) alone."""
    denoise, negatives, first = params.denoise, params.negatives, params.take == "first"
    if negatives is not None and params.negatives_per == "positive":
        negatives *= max(1, len(pool.positives))
    rng = np.random.default_rng([params.seed, 1, pool.query])
    if params.labels == "judge" and denoise is not None:
        labelled = judge_labelled(pool, negatives, denoise, rng, first)
        if labelled is not None:
            yield labelled
        return
    if denoise is None or denoise.hybrid:
        yield undenoised(pool, negatives, np.random.default_rng([params.seed, 0, pool.query]), first)
    if denoise is not None:
        yield denoised(pool, negatives, denoise, rng, first)


def run(job: Job[CandidatesParams]) -> None:
    """Write candidates.parquet and report.json."""
    judge, collection = None, Collection(job.inputs["dataset"])
    docs, queries = doc_rows(collection), query_rows(collection)
    if job.many("judge"):
        from tandem.negatives.judging import Judge  # imports torch, which takes a second

        judge = Judge(job, docs, queries)
    report = Report(job.params.negatives, job.params.denoise)
    source = pools(job, docs, queries, report)
    with writing(job) as draft:
        with (
            Progress(f"candidates {job.key}", 0, "queries") as progress,
            column_writer(draft.path("candidates.parquet"), SCHEMA, NUMBERS) as writer,
        ):
            while group := list(islice(source, GROUP)):
                if judge is not None:
                    judge(group)
                if below := job.params.below_positive:
                    for pool in group:
                        keep_below(pool, below, below.judged)
                drawn = [list(draw_lists(pool, job.params)) for pool in group]
                report.without_positive += sum(not lists for lists in drawn)
                for pool in group:
                    report.add_pool(pool)
                useful = [entry for lists in drawn for entry in lists if report.add_list(entry)]
                if useful:
                    writer.write_table(table(useful))
                progress.add(len(group))
        if not report.lists:
            raise UserError(
                f"candidates {job.key}: no query has a positive and a negative ({report.queries} queries have a "
                f"positive, {report.without_run} no run); widen candidates.depth or relax denoise and below_positive"
            )
        result = report.finish()
        write_json(draft.path("report.json"), result)
        draft.facts |= {"queries": result["queries"], "lists": result["lists"]} | (judge.facts if judge else {})
        for line in judge_warnings(job.many("judge"), report):
            warn(job, draft, line)


def judge_warnings(judges: Sequence[Artifact], report: Report) -> list[str]:
    """A line for each judge that has learned nothing, else one if the judges tell nothing apart or miss positives."""
    guessing = [model for model in judges if model.manifest.facts.get("at_chance")]
    lines = [f"{stage_name(model.key)}, which judges, stays at chance: it denoises nothing" for model in guessing]
    if not lines and report.won < LEAST_WON * report.compared:
        share = f"{report.won / report.compared:.0%} of the pairs, by chance in half of them"
        lines = [f"the judge ranks a relevant passage above another in {share}: it denoises nothing"]
    return lines or threshold_warnings(judges, report)


def threshold_warnings(judges: Sequence[Artifact], report: Report) -> list[str]:
    """A line if the thresholds say little about the judges' scores.

    Either a judge has only learned to order lists, so that its probabilities have no zero, or too many of the known
    positives are below `negative_below`.
    """
    shares = report.below()
    anchored = report.denoise is not None and report.denoise.calibrate
    relative = [stage_name(model.key) for model in judges if _loss(model) not in (None, "pointwise") and not anchored]
    text = ", ".join(f"{share:.0%} of the known positives are below {value:g}" for value, share in shares.items())
    if shares and relative:
        cause = f"{' and '.join(relative)}, which judges, has learned to order lists, not what probability is enough"
        return [f"{cause}: {text}; set the thresholds by these shares, calibrate: dev, or judge by loss: pointwise"]
    if shares and report.denoise and shares[report.denoise.negative_below] > MOST_LOST:
        return [f"{text}: so many relevant passages count as sure negatives; lower negative_below"]
    return []


def _loss(judge: Artifact) -> str | None:
    """The loss that a judge's cross-encoder was trained with; None of a published one."""
    key = "supervision" if judge.params.get("objective") == "joint" else "loss"
    loss: str | None = judge.params.get("train", {}).get(key)
    return loss
