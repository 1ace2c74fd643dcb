"""The stage `noise`: duplicates among the passages, faults of the labels, overlap of splits, holes of runs.

Cost: one pass over the corpus, and another over the row groups that hold a candidate. Measured on 400,000 generated
passages of 56 words (64 permutations, shingles of 3 words, 6 % of them repetitions): 36 µs of processor time a passage,
so 8.8 million take about 5 minutes of one core, shared out among the workers. Memory: 90 bytes a passage at the peak
and 150 MiB a process, about 1 GiB for 8.8 million; on disk meanwhile, 8 bytes a band and passage (0.7 GB).
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tandem.audits.noise import examples as show
from tandem.audits.noise.duplicates import Duplicates
from tandem.audits.noise.findings import csv_text, findings
from tandem.audits.noise.holes import holes
from tandem.audits.noise.labels import Split, read_splits, repeated_across
from tandem.audits.noise.minhash import Sketcher
from tandem.audits.noise.overlap import overlap
from tandem.audits.noise.search import search
from tandem.audits.noise.shingles import Shingling
from tandem.data.collection import CORPUS, Collection
from tandem.data.rows import IdRows, doc_rows
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing

DUPLICATES, SUMMARY, EXAMPLES, TABLE = "duplicates.parquet", "summary.json", "examples.json", "noise.csv"


def run(job: Job) -> None:
    """Audit a dataset for leakage and noise.

    Params: threshold (Jaccard similarity from which texts are near-duplicates), permutations (of MinHash), shingle
    {unit: words or characters, size}, seed, depths (cutoffs of the hole rates), split (of the runs).
    Inputs: dataset, run.0, run.1, … (any number, all of `split`). `job.execution` may hold `workers`.
    Writes duplicates.parquet, summary.json, examples.json and noise.csv (finding, where, count, share).

    Two passages are exact duplicates if their contents (title and text) are the same after `shingles.normalised`. Near
    duplicates are compared text by text: of equal ones the first stands for all. Empty passages are neither.
    """
    sketcher = _sketcher(job.params)
    runs = job.many("run")
    collection = Collection(job.inputs["dataset"])
    ids = doc_rows(collection)
    splits = read_splits(collection, ids)
    _check_runs(runs, job.params["split"], splits, job.inputs["dataset"])
    with writing(job) as draft, _scratch(job.out) as scratch:
        corpus, workers = collection.artifact.path(CORPUS), int(job.execution.workers or 1)
        duplicates, searched = search(corpus, sketcher, scratch, workers, f"noise {job.key}")
        bands, rows = sketcher.bands
        summary = {
            "normalisation": "title and text; Unicode NFKC, case folded, white space one space each",
            "search": {"bands": bands, "rows": rows, "recall_at_threshold": sketcher.recall, **searched._asdict()},
            "corpus": duplicates.counts(),
            "splits": {name: split.counts() for name, split in splits.items()},
        }
        examples = show.of_corpus(duplicates, ids) | show.of_splits(splits)
        _compare_splits(splits, duplicates, ids, summary, examples)
        _look_through(runs, job.params, splits, duplicates, ids, summary, examples)
        duplicates.write(draft.path(DUPLICATES), ids)
        write_json(draft.path(SUMMARY), summary)
        write_json(draft.path(EXAMPLES), show.with_texts(examples, collection))
        draft.path(TABLE).write_text(csv_text(findings(summary)), encoding="utf-8")
        draft.facts.update(duplicates.counts())


def _sketcher(params: dict[str, Any]) -> Sketcher:
    """The typed parameters of the search; a `UserError` on a value that makes no sense."""
    shingle = params["shingle"]
    if shingle["unit"] not in ("words", "characters"):
        raise UserError(f"shingle.unit: {shingle['unit']!r}; allowed are words and characters")
    if type(shingle["size"]) is not int or shingle["size"] < 1:
        raise UserError(f"shingle.size: {shingle['size']!r}; a whole number from 1 is allowed")
    threshold, permutations = params["threshold"], params["permutations"]
    if type(threshold) not in (int, float) or not 0 < threshold <= 1:
        raise UserError(f"threshold: {threshold!r}; a number above 0 and up to 1 is allowed")
    if type(permutations) is not int or permutations < 2:
        raise UserError(f"permutations: {permutations!r}; a whole number from 2 is allowed")
    depths = params["depths"]
    if not isinstance(depths, list) or not depths or any(type(depth) is not int or depth < 1 for depth in depths):
        raise UserError(f"depths: {depths!r}; a list of whole numbers from 1 is allowed")
    return Sketcher(Shingling(shingle["unit"], shingle["size"]), float(threshold), permutations, int(params["seed"]))


def _check_runs(runs: list[Artifact], split: str, splits: dict[str, Split], dataset: Artifact) -> None:
    """Refuse runs of another split or over another corpus, and a split that the dataset lacks."""
    if runs and split not in splits:
        raise UserError(f"split: {split} is none of {dataset.folder}; it has {', '.join(splits)}")
    for one in runs:
        searched = one.params.get("split", split)
        if searched != split:
            raise UserError(f"{one.folder}: is a run of split {searched}, but split is {split}; give a run of {split}")


def _compare_splits(
    splits: dict[str, Split], duplicates: Duplicates, ids: IdRows, summary: dict[str, Any], examples: show.Examples
) -> None:
    """Add what splits have in common: queries of any two, positives of train and each other."""
    summary["repeated_queries"], summary["overlap"] = [], []
    for name, other, found in repeated_across(splits):
        summary["repeated_queries"].append({"split": name, "other": other, "queries": len(found)})
        examples[f"Queries of {other} that {name} asks too"] = show.of_repeated(splits[name], splits[other], found)
    for name, split in splits.items():
        if name != "train" and "train" in splits:
            shown = overlap(splits["train"], split, duplicates)
            summary["overlap"].append({"split": name, **shown.counts()})
            examples[f"Positives of {name} that train has shown"] = show.of_overlap(name, shown, ids)


def _look_through(
    runs: list[Artifact],
    params: dict[str, Any],
    splits: dict[str, Split],
    duplicates: Duplicates,
    ids: IdRows,
    summary: dict[str, Any],
    examples: show.Examples,
) -> None:
    """Add the holes of every run."""
    summary["runs"] = {}
    for one in runs:
        split = splits[params["split"]]
        found = holes(iter_run(one.path("run.trec")), split, params["depths"], duplicates, ids, show.MOST)
        summary["runs"][one.key] = {"split": params["split"], **found.counts()}
        examples[f"Unjudged results of {one.key} that repeat a positive"] = show.of_run(found.examples, split, ids)


@contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A folder beside the artifact for what is needed only meanwhile; one that a killed process left is cleared."""
    folder = out / ".scratch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
