"""Shards: jobs that share the work of one stage; what each has made the stage finds, so that it changes no result."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.cluster.progress import Progress
from tandem.errors import UserError
from tandem.search.store import Array
from tandem.store.files import write_json
from tandem.store.job import Job, read_job

if TYPE_CHECKING:
    from tandem.search.pairs import PairScores

Asked = tuple["PairScores", Array, Array]  # whom a stage asks, and the query rows and passage rows of its pairs


def read_shard(kind: str, words: list[str]) -> tuple[Job, int, int]:
    """The stage's job that a shard's command line describes, the shard's number and how many there are.

    Takes the flags of the stage and `--run.shard`, `--run.shards`; `--out` is `<artifact>/shards/<shard>-of-<n>.json`.
    """
    job = read_job(kind, words)
    shard, shards = job.execution.shard, job.execution.shards
    if shard is None or not 0 <= shard < shards:
        raise UserError(f"{kind} shard: --run.shard is {shard}; of {shards} shards, 0 to {shards - 1} are allowed")
    return replace(job, out=job.out.parent), shard, shards


def score_shard(kind: str, words: list[str], asked: Callable[[Job], Iterator[Asked]]) -> int:
    """Score this shard's share of the pairs a stage will ask for, into the store where the stage looks first.

    Args:
        kind: the stage.
        words: the shard's command line.
        asked: the pairs, a bounded number at a time.
    """
    from tandem.models.device import use_workers  # brings torch, which shards of searches do without

    job, shard, shards = read_shard(kind, words)
    use_workers(job.execution.workers)
    scored = 0
    with Progress(f"{kind} {job.key} · shard {shard} of {shards}", 0, "pairs") as progress:
        for scores, queries, passages in asked(job):
            mine = (queries + passages) % shards == shard
            before = scores.computed
            scores.score(queries[mine], passages[mine], progress)
            scored += scores.computed - before
    write_json(Path(words[words.index("--out") + 1]), {"scored": scored})
    return 0
