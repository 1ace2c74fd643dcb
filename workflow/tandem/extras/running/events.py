"""What is known of a run's jobs: Snakemake's reports and what follows from them, and a failed stage's own words."""

import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ValidationError

from tandem.cluster.progress import ProgressRecord, progress_path

KINDS_OF_RULES = {"train": "model", "encode": "embeddings"}  # rules whose name is not that of a kind of stage
TRACEBACK = "Traceback (most recent call last)"
OWN = re.compile(r"tandem [\w-]+: ")
FAILED = re.compile(r"^ *log: (.+) \(check log file", re.MULTILINE)  # Snakemake's words about a job that has failed


class Event(BaseModel):
    """A line of the logger plugin: the kind of event, and the fields that this kind has."""

    event: str
    dryrun: bool = False
    stats: dict[str, int] = {}  # rule → number of jobs, and `total`
    jobid: int = -1
    job_id: int = -1
    rule_name: str = ""
    wildcards: dict[str, str] = {}
    output: list[str] = []
    log: list[str] = []
    done: int = 0
    total: int = 0
    exception: str | None = None
    message: str = ""


@dataclass
class Job:
    """A job that has begun: its rule and files, and when it began, by the monotonic clock."""

    rule: str
    wildcards: dict[str, str]
    output: list[str]
    log: list[str]
    began: float = field(default_factory=time.monotonic)

    @property
    def stage(self) -> tuple[str, str]:
        """(kind, key) of the stage that it makes, or a shard of; empty words for a table or the report."""
        return self.wildcards.get("kind", ""), self.wildcards.get("key", "")

    def share(self) -> float | None:
        """Which share of its work is done, by the progress file that it keeps; None without one."""
        try:
            text = progress_path(Path(self.output[0])).read_text(encoding="utf-8")
            record = ProgressRecord.model_validate_json(text)
        except (OSError, ValidationError, IndexError):
            return None
        return min(1.0, record.done / record.total) if record.total and record.done is not None else None


def kind_of_rule(rule: str) -> str:
    """The kind of stage that a rule's jobs make or share."""
    name = rule.removesuffix("_shard")
    return KINDS_OF_RULES.get(name, name)


class Run:
    """A run of Snakemake, as far as it has been reported.

    Attributes:
        counts: rule → number of its jobs.
        running, finished, failed: jobs by Snakemake's number; one that is tried again has not failed.
        errors: Snakemake's own.
        executes: whether it makes anything; not in a dry run, nor with flags like `--unlock`.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.done = 0
        self.running: dict[int, Job] = {}
        self.finished: dict[int, Job] = {}
        self.failed: dict[int, Job] = {}
        self.errors: list[Event] = []
        self.executes = False

    @property
    def total(self) -> int:
        """The number of jobs."""
        return self.counts.total()

    def take(self, event: Event) -> None:
        """Note an event."""
        match event.event:
            case "run_info":
                self.counts = Counter({rule: count for rule, count in event.stats.items() if rule != "total"})
            case "workflow_started":
                self.executes = not event.dryrun
            case "job_info":
                self.failed.pop(event.jobid, None)
                self.running[event.jobid] = Job(event.rule_name, event.wildcards, event.output, event.log)
            case "job_finished" if event.job_id in self.running:
                self.finished[event.job_id] = self.running.pop(event.job_id)
            case "job_error" if event.jobid in self.running:
                self.failed[event.jobid] = self.running.pop(event.jobid)
            case "progress":
                self.done = event.done
            case "error":
                self.errors.append(event)


def stage_words(logs: Iterable[Path]) -> str:
    """A stage's last `tandem …:` line and what follows; empty where it said none, or fell over after it."""
    words = [line for path in logs for line in read_lines(path)]
    own = [at for at, line in enumerate(words) if OWN.match(line)]
    if not own or any(line.startswith(TRACEBACK) for line in words[own[-1] :]):
        return ""
    return "\n".join(words[own[-1] :])


def words_of_failed_stages(logs: Iterable[str]) -> str:
    """What the stages said that failed, by Snakemake's own logs of a run; empty where they said nothing."""
    named = FAILED.findall("\n".join(line for log in logs for line in read_lines(Path(log))))
    endings = (stage_words(map(Path, paths.split(", "))) for paths in dict.fromkeys(named))
    return "\n".join(filter(None, endings))


def read_lines(path: Path) -> list[str]:
    """The lines of a log that are not blank; none where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]
