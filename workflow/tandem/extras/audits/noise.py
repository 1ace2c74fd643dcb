"""Stage `noise`: duplicates among the passages, faults of the labels, overlap of splits, holes of runs.

Cost: one pass over the corpus, and another over the row groups that hold a candidate. Measured on 400,000 generated
passages of 56 words (64 permutations, shingles of 3 words, 6 % of them repetitions): 36 µs of processor time a passage,
so 8.8 million take about 5 minutes of one core, shared out among the workers. Memory: 90 bytes a passage at the peak
and 150 MiB a process, about 1 GiB for 8.8 million; on disk meanwhile, 8 bytes a band and passage (0.7 GB).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from tandem.data.collection import CORPUS, Collection, join_contents
from tandem.data.rows import IdRows, index_passages
from tandem.data.runs import iter_run, require_run_split
from tandem.errors import UserError
from tandem.extras.audits.duplicates import EXACT, Duplicates, Search, unpack
from tandem.extras.audits.labels import Holes, Overlap, Split, holes, overlap, read_splits, repeated_across
from tandem.extras.audits.minhash import Shingling, Sketcher
from tandem.stages.evaluation import NoiseParams
from tandem.store.files import csv_text, write_json, write_text
from tandem.store.job import Job, writing

Line = tuple[str, str, int, str]  # of noise.csv: finding, where, count, share
OF_SPLITS = (  # finding, its number among a split's counts, and of what it is a share
    ("queries without judgement", "unjudged", "queries"),
    ("judged queries without a positive", "without_positive", "judged"),
    ("judgements of passages that the corpus lacks", "unknown", "judgements"),
    ("judged queries with a positive that the corpus lacks", "missing", "judged"),
    ("judged queries all of whose positives the corpus lacks", "missing_all", "judged"),
    ("queries asked more than once", "repeated", "queries"),
)
MOST = 5  # examples of a finding, and passages of an example
CHARACTERS = 200  # of an example's text


@dataclass(frozen=True)
class Findings:
    """All findings of an audit."""

    split: str  # of the runs
    corpus: dict[str, int]
    splits: dict[str, dict[str, int]]
    # (split, another split, (query of the latter, query of the former with its text))
    repeated: list[tuple[str, str, list[tuple[str, str]]]]
    overlaps: dict[str, Overlap]  # positives that train has too, by split
    holes: dict[str, Holes]  # unjudged results, by key of the run


def run(job: Job[NoiseParams]) -> None:
    """Audit a dataset for leakage and noise.

    Inputs: dataset, run.0, run.1, … (any number, all of `split`).
    Writes duplicates.parquet, summary.json, examples.json and noise.csv (finding, where, count, share).

    Two passages are exact duplicates if their contents (title and text) are the same after `minhash.normalised`. Near
    duplicates are compared text by text: of equal ones the first stands for all. Passages without a word
    are neither.
    """
    params, runs = job.params, job.many("run")
    sketcher = Sketcher(
        Shingling(params.shingle.unit, params.shingle.size), params.threshold, params.permutations, params.seed
    )
    collection = Collection(job.inputs["dataset"])
    ids = index_passages(collection)
    splits = read_splits(collection, ids)
    if runs and params.split not in splits:
        dataset, there = job.inputs["dataset"].folder, ", ".join(splits)
        raise UserError(f"split: {params.split} does not exist in {dataset}; it has {there}")
    for artifact in runs:
        require_run_split(artifact, params.split)
    with writing(job) as draft:
        corpus, workers = collection.artifact.path(CORPUS), job.execution.workers or 1
        with TemporaryDirectory(dir=draft.folder) as scratch:
            duplicates, searched = Search(corpus, sketcher, Path(scratch), workers, f"noise {job.key}").run()
        others = [name for name in splits if name != "train" and "train" in splits]
        judged = splits.get(params.split or "", Split())
        findings = Findings(
            split=params.split or "",
            corpus=duplicates.counts(),
            splits={name: split.counts() for name, split in splits.items()},
            repeated=list(repeated_across(splits)),
            overlaps={name: overlap(splits["train"], splits[name], duplicates) for name in others},
            holes={
                run.key: holes(iter_run(run, collection.artifact), judged, params.depths, duplicates, ids, MOST)
                for run in runs
            },
        )
        duplicates.write(draft.path("duplicates.parquet"), ids)
        write_json(draft.path("summary.json"), summary(findings, sketcher, searched))
        write_json(draft.path("examples.json"), with_texts(examples(findings, splits, duplicates, ids), collection))
        write_text(draft.path("noise.csv"), csv_text(["finding", "where", "count", "share"], lines(findings)))
        draft.facts.update(findings.corpus)


def summary(findings: Findings, sketcher: Sketcher, searched: dict[str, int]) -> dict[str, object]:
    """summary.json: all counts, and how duplicates were searched for."""
    bands, rows = sketcher.bands
    return {
        "normalisation": "title and text; Unicode NFKC, case folded, white space one space each; no word: empty",
        "search": {"bands": bands, "rows": rows, "recall_at_threshold": sketcher.recall, **searched},
        "corpus": findings.corpus,
        "splits": findings.splits,
        "repeated_queries": [{"split": a, "other": b, "queries": len(pairs)} for a, b, pairs in findings.repeated],
        "overlap": [{"split": name, **part.counts()} for name, part in findings.overlaps.items()],
        "runs": {key: {"split": findings.split, **part.counts()} for key, part in findings.holes.items()},
    }


def lines(findings: Findings) -> Iterator[Line]:
    """All findings, zeros included; the share (0 to 1, six decimals) is empty where there is no natural whole."""

    def share(finding: str, where: str, count: int, whole: int) -> Line:
        return finding, where, count, f"{count / whole:.6f}" if whole else ""

    corpus, passages = findings.corpus, findings.corpus["passages"]
    yield share("empty passages", "corpus", corpus["empty"], passages)
    yield "texts that several passages have", "corpus", corpus["exact_groups"], ""
    yield share("passages that have such a text", "corpus", corpus["exact_passages"], passages)
    yield "pairs of near-duplicate texts", "corpus", corpus["near_pairs"], ""
    yield "groups of duplicates and near-duplicates", "corpus", corpus["groups"], ""
    yield share("passages in such a group", "corpus", corpus["group_passages"], passages)
    for name, counts in findings.splits.items():
        for finding, number, of in OF_SPLITS:
            yield share(finding, name, counts[number], counts[of])
    for name, other, pairs in findings.repeated:
        queries = findings.splits[other]["queries"]
        yield share("queries that another split asks too", f"{other} in {name}", len(pairs), queries)
    for name, part in findings.overlaps.items():
        whole, judged = len(part.positives), findings.splits[name]["judged"]
        yield share("positives that are positives of train", name, len(part.shared), whole)
        yield share("positives that have the text of a positive of train", name, len(part.exact), whole)
        yield share("positives that are near-duplicates of one of train", name, len(part.near), whole)
        yield share("judged queries with any of these positives", name, part.queries, judged)
    for key, unjudged in findings.holes.items():
        for at, depth in unjudged.depths.items():
            top = f"in the top {at}"
            yield f"unjudged {top}", key, depth.unjudged, "" if depth.hole is None else f"{depth.hole:.6f}"
            yield share(f"unjudged {top} with the text of a positive", key, depth.exact, depth.unjudged)
            yield share(f"unjudged {top}, near-duplicates of a positive", key, depth.near, depth.unjudged)
            yield share(f"queries with such a result {top}", key, depth.queries, unjudged.queries)


class Example(NamedTuple):
    """A remark, and the passages (ids) and queries (id and text) that show a finding."""

    note: str
    passages: list[str]
    queries: Sequence[tuple[str, str]] = ()


Examples = dict[str, list[Example]]


def examples(findings: Findings, splits: dict[str, Split], duplicates: Duplicates, ids: IdRows) -> Examples:
    """Examples of each finding, an empty list for one without any."""
    result = corpus_examples(duplicates, ids)
    for name, split in splits.items():
        result |= split_examples(name, split)
    for name, other, pairs in findings.repeated:
        first, second = splits[name].queries, splits[other].queries
        texts = ([(query, second[query]), (before, first[before])] for query, before in pairs[:MOST])
        result[f"Queries of {other} that {name} asks too"] = [Example("the same text", [], both) for both in texts]
    for name, part in findings.overlaps.items():  # shared ones, then equal texts, then near-duplicates
        shown = [Example(f"a positive of train and of {name}", [doc]) for doc in ids.ids(part.shared[:MOST])]
        for what, alike in (("the same text", part.exact), ("near-duplicates", part.near)):
            note = f"{what}: a positive of {name}, one of train"
            shown += [Example(note, ids.ids(np.asarray(pair, np.int64))) for pair in alike[:MOST]]
        result[f"Positives of {name} that train has shown"] = shown
    for key, unjudged in findings.holes.items():
        repeats = result[f"Unjudged results of {key} that repeat a positive"] = []
        for hint in unjudged.examples:
            likeness = "the same text" if hint.likeness == EXACT else f"similarity {hint.likeness:.2f}"
            note = f"unjudged at rank {hint.rank}; a positive, {likeness}"
            query = hint.query, splits[findings.split].queries[hint.query]
            repeats.append(Example(note, [hint.doc, *ids.ids(np.asarray([hint.positive]))], [query]))
    return result


def corpus_examples(duplicates: Duplicates, ids: IdRows) -> Examples:
    """Empty passages, equal texts, and near-duplicates: the least alike first, as they are the ones to doubt."""
    first = duplicates.first
    groups = [np.flatnonzero(first == row) for row in np.unique(first[duplicates.copies])[:MOST].tolist()]
    some = np.argsort(duplicates.similarity, kind="stable")[:MOST]
    pairs = zip(duplicates.similarity[some].tolist(), *map(ids.ids, unpack(duplicates.pairs[some])), strict=True)
    return {
        "Empty passages": [Example("", [doc]) for doc in ids.ids(np.flatnonzero(duplicates.empty)[:MOST])],
        "Passages with the same text": [Example(f"{len(own)} passages", ids.ids(own[:MOST])) for own in groups],
        "Near-duplicates, the least alike": [Example(f"similarity {s:.2f}", [a, b]) for s, a, b in pairs],
    }


def split_examples(name: str, split: Split) -> Examples:
    """Positives that the corpus lacks, judged queries without a positive, queries asked twice."""

    def example(note: str, *queries: str) -> Example:
        return Example(note, [], [(query, split.queries[query]) for query in queries[:MOST]])

    lost, without, repeated = islice(split.missing().items(), MOST), split.without_positive(), split.repeated()
    lacks = [example(f"the corpus lacks {', '.join(docs[:MOST])}", query) for query, docs in lost]
    judged = [example(f"{len(split.judged[query])} judgements", query) for query in without[:MOST]]
    return {
        f"Positives that the corpus lacks, {name}": lacks,
        f"Judged queries without a positive, {name}": judged,
        f"Queries asked more than once, {name}": [example(f"{len(own)} queries", *own) for own in repeated[:MOST]],
    }


def with_texts(examples: Examples, collection: Collection) -> dict[str, list[dict[str, object]]]:
    """The examples of each finding that has any, as JSON, texts cut to `CHARACTERS`; one pass over the corpus."""
    texts = collection.texts(doc for some in examples.values() for example in some for doc in example.passages)

    def listed(rows: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
        return [{"id": name, "text": t if len(t) <= CHARACTERS else f"{t[:CHARACTERS]}…"} for name, t in rows]

    def as_json(example: Example) -> dict[str, object]:
        passages = [(doc, join_contents(*texts[doc])) for doc in example.passages]
        return {"note": example.note, "queries": listed(example.queries), "passages": listed(passages)}

    return {finding: list(map(as_json, some)) for finding, some in examples.items() if some}
