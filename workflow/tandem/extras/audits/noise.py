"""Stage `noise`: duplicates among the passages, faults of the labels, overlap of splits, holes of runs.

Cost: one pass over the corpus, and another over the row groups that hold a candidate. Measured on 400,000 generated
passages of 56 words (64 permutations, shingles of 3 words, 6 % of them repetitions): 36 µs of processor time a passage,
so 8.8 million take about 5 minutes of one core, shared out among the workers. Memory: 90 bytes a passage at the peak
and 150 MiB a process, about 1 GiB for 8.8 million; on disk meanwhile, 8 bytes a band and passage (0.7 GB).
"""

import csv
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from tandem.artifact import Artifact, Job, write_json, writing
from tandem.data.collection import CORPUS, Collection
from tandem.data.rows import IdRows, doc_rows
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.extras.audits.duplicate_search import search
from tandem.extras.audits.duplicates import CorpusCounts, Duplicates
from tandem.extras.audits.labels import (
    Depth,
    Split,
    SplitCounts,
    holes,
    overlap,
    read_splits,
    repeated_across,
)
from tandem.extras.audits.minhash import Shingling, Sketcher
from tandem.extras.audits.noise_examples import (
    MOST,
    Examples,
    corpus_examples,
    hole_examples,
    overlap_examples,
    repeated_examples,
    split_examples,
    with_texts,
)
from tandem.stages.audits import NoiseParams

HEADER = ("finding", "where", "count", "share")


class SearchCounts(NamedTuple):
    """How duplicates were searched for: see `minhash.Sketcher` and `duplicate_search.Search`."""

    bands: int
    rows: int
    recall_at_threshold: float
    candidates: int
    skipped: int


class Repeated(NamedTuple):
    """Number of queries of the split `other` whose text `split` has."""

    split: str
    other: str
    queries: int


class OverlapCounts(NamedTuple):
    """The lengths of an `Overlap`'s lists."""

    split: str
    positives: int
    shared: int
    exact: int
    near: int
    queries: int


class RunCounts(NamedTuple):
    """A run's holes."""

    split: str
    queries: int
    missing: int
    depths: dict[int, Depth]


@dataclass
class Summary:
    """All counts of an audit, as summary.json has them; runs are named by their keys."""

    search: SearchCounts
    corpus: CorpusCounts
    splits: dict[str, SplitCounts]
    repeated_queries: list[Repeated] = field(default_factory=list)
    overlap: list[OverlapCounts] = field(default_factory=list)
    runs: dict[str, RunCounts] = field(default_factory=dict)

    def json(self) -> dict[str, object]:
        """The counts as JSON."""
        records = {
            "normalisation": "title and text; Unicode NFKC, case folded, white space one space each",
            "search": self.search._asdict(),
            "corpus": asdict(self.corpus),
            "splits": {name: asdict(counts) for name, counts in self.splits.items()},
            "repeated_queries": [counts._asdict() for counts in self.repeated_queries],
            "overlap": [counts._asdict() for counts in self.overlap],
        }
        runs = {
            key: run._asdict() | {"depths": {at: asdict(depth) for at, depth in run.depths.items()}}
            for key, run in self.runs.items()
        }
        return records | {"runs": runs}


def run(job: Job[NoiseParams]) -> None:
    """Audit a dataset for leakage and noise.

    Inputs: dataset, run.0, run.1, … (any number, all of `split`).
    Writes duplicates.parquet, summary.json, examples.json and noise.csv (finding, where, count, share).

    Two passages are exact duplicates if their contents (title and text) are the same after `minhash.normalised`. Near
    duplicates are compared text by text: of equal ones the first stands for all. Empty passages are neither.
    """
    params, runs = job.params, job.many("run")
    shingling = Shingling(params.shingle.unit, params.shingle.size)
    sketcher = Sketcher(shingling, params.threshold, params.permutations, params.seed)
    collection = Collection(job.inputs["dataset"])
    ids = doc_rows(collection)
    splits = read_splits(collection, ids)
    _check_runs(runs, params.split, splits, job.inputs["dataset"])
    with writing(job) as draft, _scratch(job.out) as scratch:
        corpus, workers = collection.artifact.path(CORPUS), job.execution.workers or 1
        duplicates, searched = search(corpus, sketcher, scratch, workers, f"noise {job.key}")
        counts = duplicates.counts()
        summary = Summary(
            SearchCounts(*sketcher.bands, sketcher.recall, *searched),
            counts,
            {name: split.counts() for name, split in splits.items()},
        )
        examples = corpus_examples(duplicates, ids) | split_examples(splits)
        _compare_splits(splits, duplicates, ids, summary, examples)
        for artifact in runs:
            split = splits[params.split or ""]
            part = holes(iter_run(artifact.path("run.trec")), split, params.depths, duplicates, ids, MOST)
            summary.runs[artifact.key] = RunCounts(params.split or "", part.queries, part.missing, part.depths)
            examples[f"Unjudged results of {artifact.key} that repeat a positive"] = hole_examples(part, split, ids)
        duplicates.write(draft.path("duplicates.parquet"), ids)
        write_json(draft.path("summary.json"), summary.json())
        write_json(draft.path("examples.json"), with_texts(examples, collection))
        write_findings(draft.path("noise.csv"), findings(summary))
        draft.facts.update(asdict(counts))


def _compare_splits(
    splits: dict[str, Split], duplicates: Duplicates, ids: IdRows, summary: Summary, examples: Examples
) -> None:
    """Add what splits have in common: queries of any two, positives of train and each other."""
    for name, other, repeated in repeated_across(splits):
        summary.repeated_queries.append(Repeated(name, other, len(repeated)))
        examples[f"Queries of {other} that {name} asks too"] = repeated_examples(splits[name], splits[other], repeated)
    for name, split in splits.items():
        if name != "train" and "train" in splits:
            part = overlap(splits["train"], split, duplicates)
            sizes = (len(some) for some in (part.positives, part.shared, part.exact, part.near))
            summary.overlap.append(OverlapCounts(name, *sizes, part.queries))
            examples[f"Positives of {name} that train has shown"] = overlap_examples(name, part, ids)


def _check_runs(runs: list[Artifact], split: str | None, splits: dict[str, Split], dataset: Artifact) -> None:
    """Refuse runs of another split, and a split that the dataset lacks."""
    if runs and split not in splits:
        raise UserError(f"split: {split} does not exist in {dataset.folder}; it has {', '.join(splits)}")
    for artifact in runs:
        searched = artifact.params.get("split", split)
        if searched != split:
            raise UserError(
                f"{artifact.folder}: is a run of split {searched}, but split is {split}; give a run of {split}"
            )


@contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A temporary folder beside the artifact; what a killed process left in it is removed first."""
    folder = out / ".scratch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Finding(NamedTuple):
    """A line of noise.csv; the share (0 to 1) is None where there is no natural whole."""

    finding: str
    where: str
    count: int
    share: float | None


def findings(summary: Summary) -> Iterator[Finding]:
    """All findings of a summary, zeros included."""
    yield from _corpus_findings(summary.corpus)
    for name, split in summary.splits.items():
        yield from _split_findings(name, split)
    for both in summary.repeated_queries:
        where, whole = f"{both.other} in {both.split}", summary.splits[both.other].queries
        yield _share("queries that another split asks too", where, both.queries, whole)
    for part in summary.overlap:
        yield _share("positives that are positives of train", part.split, part.shared, part.positives)
        yield _share("positives that have the text of a positive of train", part.split, part.exact, part.positives)
        yield _share("positives that are near-duplicates of one of train", part.split, part.near, part.positives)
        judged = summary.splits[part.split].judged
        yield _share("judged queries with any of these positives", part.split, part.queries, judged)
    for key, counts in summary.runs.items():
        for at, depth in counts.depths.items():
            top = f"in the top {at}"
            yield Finding(f"unjudged {top}", key, depth.unjudged, depth.hole)
            yield _share(f"unjudged {top} with the text of a positive", key, depth.exact, depth.unjudged)
            yield _share(f"unjudged {top}, near-duplicates of a positive", key, depth.near, depth.unjudged)
            yield _share(f"queries with such a result {top}", key, depth.queries, counts.queries)


def _share(finding: str, where: str, count: int, whole: int) -> Finding:
    return Finding(finding, where, count, count / whole if whole else None)


def _corpus_findings(corpus: CorpusCounts) -> Iterator[Finding]:
    """Shares of all passages."""
    whole = corpus.passages
    yield _share("empty passages", "corpus", corpus.empty, whole)
    yield Finding("texts that several passages have", "corpus", corpus.exact_groups, None)
    yield _share("passages that have such a text", "corpus", corpus.exact_passages, whole)
    yield Finding("pairs of near-duplicate texts", "corpus", corpus.near_pairs, None)
    yield Finding("groups of duplicates and near-duplicates", "corpus", corpus.groups, None)
    yield _share("passages in such a group", "corpus", corpus.group_passages, whole)


def _split_findings(name: str, split: SplitCounts) -> Iterator[Finding]:
    """Shares of the queries, of those judged, or of the judgements."""
    judged = split.judged
    yield _share("queries without judgement", name, split.unjudged, split.queries)
    yield _share("judged queries without a positive", name, split.without_positive, judged)
    yield _share("judgements of passages that the corpus lacks", name, split.unknown, split.judgements)
    yield _share("judged queries with a positive that the corpus lacks", name, split.missing, judged)
    yield _share("judged queries all of whose positives the corpus lacks", name, split.missing_all, judged)
    yield _share("queries asked more than once", name, split.repeated, split.queries)


def write_findings(path: Path, lines: Iterable[Finding]) -> None:
    """Write noise.csv: shares with six decimals, empty where there is none."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for finding, where, count, share in lines:
            writer.writerow([finding, where, count, "" if share is None else f"{share:.6f}"])
