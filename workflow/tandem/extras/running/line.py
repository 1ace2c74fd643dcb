"""The line that says where a run is: refreshed on a terminal, one for each job in a log."""

import shutil
import sys

from tandem.cluster.progress import duration, say
from tandem.extras.running.events import Job, Run
from tandem.extras.running.forecast import Forecast
from tandem.plan.graph import Stages
from tandem.store.lineage import stage_name

DOES = {
    "dataset": "reading", "encoder": "loading", "tokens": "tokenizing", "lucene": "indexing", "bm25": "searching",
    "bm25s": "indexing",
    "candidates": "drawing negatives for", "teacher": "scoring training lists of", "model": "training",
    "checkpoint": "training", "embeddings": "encoding", "retrieve": "searching", "index": "indexing",
    "ann": "searching", "rerank": "re-ranking", "score": "scoring", "pretrain": "pre-training",
    "vocabulary": "learning a vocabulary for", "table": "writing", "report": "writing the",
}  # fmt: skip
MODELS = {"dual": "dual encoder", "cross": "cross-encoder", "joint": "retriever and re-ranker"}


def describe(job: Job, stages: Stages) -> str:
    """What a job does, in words: `training cross-encoder ce_deneg`."""
    kind, key = job.stage
    if not kind:
        words = (DOES.get(job.rule, job.rule.replace("_", " ")), *job.wildcards.values())
        return " ".join([*words, *(["report"] if job.rule == "report" else [])])
    objective = stages[kind, key].values.get("objective") if (kind, key) in stages else None
    return " ".join(filter(None, (DOES.get(kind, kind.replace("_", " ")), MODELS.get(str(objective)), stage_name(key))))


def about(seconds: float) -> str:
    """A time that is not known exactly: `1 min`, `4 min`, `1 h 56 min`."""
    return f"{max(1, round(seconds / 60))} min" if seconds < 3600 else duration(seconds)


class Line:
    """Shows a run on standard error."""

    def __init__(self, stages: Stages, forecast: Forecast) -> None:
        self.stages, self.forecast = stages, forecast
        self.terminal = sys.stderr.isatty()

    def text(self, run: Run, job: Job) -> str:
        """`training cross-encoder ce_deneg · stage 14 of 37 · 41 % · about 4 min left`."""
        others = len(run.running) - 1
        parts = [describe(job, self.stages) + (f" and {others} more" if others > 0 else "")]
        parts.append(f"stage {min(run.done + 1, run.total)} of {run.total}")
        if forecast := self.forecast(run):
            share, left = forecast
            parts += [f"{share:.0%}".replace("%", " %"), f"about {about(left)} left"]
        return " · ".join(parts)

    def refresh(self, run: Run) -> None:
        """Show the job that has run longest, on a terminal."""
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            text = self.text(run, next(iter(run.running.values()))) if run.running else "Snakemake plans its jobs"
            print(f"\r\x1b[K{text[:width]}", end="", file=sys.stderr, flush=True)

    def begin(self, run: Run, job: Job) -> None:
        """Show a job that begins."""
        if self.terminal:
            self.refresh(run)
        elif job.log:  # others take no time
            say(self.text(run, job))

    def clear(self) -> None:
        """Remove the line from the terminal."""
        print("\r\x1b[K" if self.terminal else "", end="", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line of its own, above the one that is refreshed."""
        self.clear()
        say(text)
