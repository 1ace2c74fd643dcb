"""Stage `noise`: duplicates among the passages, faults of the labels, overlap of splits, holes in runs.

Cost: one pass over the corpus, and another over the row groups that hold a candidate. Measured on 400,000 generated
passages of 56 words (64 permutations, shingles of 3 words, 6 % of them repetitions): 36 µs of processor time per
passage. 8.8 million passages thus take about 5 minutes of one core, divided among the workers. Memory: 90 bytes per
passage at the peak and 150 MiB per process, about 1 GiB for 8.8 million. Temporary disk: 8 bytes per band and passage
(0.7 GB).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from tandem.contrib.audits.duplicates import EXACT, Duplicates, DuplicateSearch, unpack_rows
from tandem.contrib.audits.labels import (
    Holes,
    JudgedSplit,
    Overlap,
    count_holes,
    find_overlap,
    find_repeated_across,
    read_splits,
)
from tandem.contrib.audits.minhash import Shingling, Sketcher
from tandem.contrib.audits.options import NoiseParams
from tandem.data.collection import CORPUS, Collection, join_contents
from tandem.data.rows import IdRows, index_passages
from tandem.data.runs import iter_run, require_run_split
from tandem.errors import UserError
from tandem.evaluation.measures import skip_excluded
from tandem.store.files import csv_text, write_json, write_text
from tandem.store.job import Job, writing

FindingLine = tuple[str, str, int, str]  # a line of noise.csv: finding, where, count, share
_SPLIT_FINDINGS = (  # finding, its name among a split's counts, and the whole of its share
    ("queries without judgement", "unjudged", "queries"),
    ("judged queries without a positive", "without_positive", "judged"),
    ("judgements of passages that the corpus lacks", "unknown", "judgements"),
    ("judged queries with a positive that the corpus lacks", "missing", "judged"),
    ("judged queries all of whose positives the corpus lacks", "missing_all", "judged"),
    ("queries asked more than once", "repeated", "queries"),
)
_EXAMPLES_PER_FINDING = 5  # examples of a finding, and passages of an example
_CHARACTERS_PER_TEXT = 200  # of an example's text


@dataclass(frozen=True)
class Findings:
    """All findings of an audit."""

    split: str  # the split of the runs
    corpus: dict[str, int]
    splits: dict[str, dict[str, int]]
    # (split, another split, (query of the latter, query of the former with its text))
    repeated: list[tuple[str, str, list[tuple[str, str]]]]
    overlaps: dict[str, Overlap]  # by split: positives that train has, too
    holes: dict[str, Holes]  # unjudged results, by key of the run


def run(job: Job[NoiseParams]) -> None:
    """Audit a dataset for leakage and noise.

    Inputs: dataset, run.0, run.1, … (any number, all of `split`).
    Writes duplicates.parquet, summary.json, examples.json and noise.csv (finding, where, count, share).

    Two passages are exact duplicates if their contents (title and text) are the same after
    `minhash.normalise_for_equality`. Near duplicates are searched for among distinct texts: the first of equal passages
    represents all. Passages without a word are neither.
    """
    params, runs = job.params, job.many("run")
    sketcher = Sketcher(
        Shingling(params.shingle.unit, params.shingle.size),
        params.threshold,
        params.permutations,
        params.seed,
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
        with TemporaryDirectory(dir=draft.folder) as scratch:
            corpus, workers = collection.artifact.path(CORPUS), job.execution.workers or 1
            search = DuplicateSearch(corpus, sketcher, Path(scratch), workers, f"noise {job.key}")
            duplicates, searched = search.run()

        findings = gather_findings(job, splits, duplicates, ids)
        examples = add_texts(collect_examples(findings, splits, duplicates, ids), collection)
        lines = csv_text(["finding", "where", "count", "share"], list_finding_lines(findings))
        duplicates.write(draft.path("duplicates.parquet"), ids)
        write_json(draft.path("summary.json"), summarise_findings(findings, sketcher, searched))
        write_json(draft.path("examples.json"), examples)
        write_text(draft.path("noise.csv"), lines)
        draft.facts.update(findings.corpus)


def gather_findings(
    job: Job[NoiseParams], splits: dict[str, JudgedSplit], duplicates: Duplicates, ids: IdRows
) -> Findings:
    """Return everything that is counted, once the corpus' duplicates are known."""
    params, dataset = job.params, job.inputs["dataset"]
    overlaps: dict[str, Overlap] = {}
    if "train" in splits:
        others = [name for name in splits if name != "train"]
        overlaps = {
            name: find_overlap(splits["train"], splits[name], duplicates) for name in others
        }

    judged = splits.get(params.split or "", JudgedSplit())
    holes: dict[str, Holes] = {}
    for run in job.many("run"):
        ranked = skip_excluded(iter_run(run, dataset), judged.judged, params.ignore_identical_ids)
        holes[run.key] = count_holes(
            ranked, judged, params.depths, duplicates, ids, _EXAMPLES_PER_FINDING
        )

    return Findings(
        split=params.split or "",
        corpus=duplicates.count(),
        splits={name: split.count() for name, split in splits.items()},
        repeated=list(find_repeated_across(splits)),
        overlaps=overlaps,
        holes=holes,
    )


def summarise_findings(
    findings: Findings, sketcher: Sketcher, searched: dict[str, int]
) -> dict[str, object]:
    """Return summary.json: all counts, and how duplicates were searched for."""
    bands, rows = sketcher.bands
    repeated = [
        {"split": split, "other": other, "queries": len(pairs)}
        for split, other, pairs in findings.repeated
    ]
    return {
        "normalisation": "title and text; Unicode NFKC, case folded, white space one space each; no word: empty",
        "search": {
            "bands": bands,
            "rows": rows,
            "recall_at_threshold": sketcher.recall,
            **searched,
        },
        "corpus": findings.corpus,
        "splits": findings.splits,
        "repeated_queries": repeated,
        "overlap": [{"split": name, **part.count()} for name, part in findings.overlaps.items()],
        "runs": {
            key: {"split": findings.split, **part.count()} for key, part in findings.holes.items()
        },
    }


def list_finding_lines(findings: Findings) -> Iterator[FindingLine]:
    """Yield all findings, zeros included; the share (0 to 1, six decimals) is empty if there is no natural whole."""

    def make_line(finding: str, where: str, count: int, whole: int) -> FindingLine:
        return finding, where, count, f"{count / whole:.6f}" if whole else ""

    corpus, passages = findings.corpus, findings.corpus["passages"]
    yield make_line("empty passages", "corpus", corpus["empty"], passages)
    yield "texts that several passages have", "corpus", corpus["exact_groups"], ""
    yield make_line("passages that have such a text", "corpus", corpus["exact_passages"], passages)
    yield "pairs of near-duplicate texts", "corpus", corpus["near_pairs"], ""
    yield "groups of duplicates and near-duplicates", "corpus", corpus["groups"], ""
    yield make_line("passages in such a group", "corpus", corpus["group_passages"], passages)
    for name, counts in findings.splits.items():
        for finding, number, of in _SPLIT_FINDINGS:
            yield make_line(finding, name, counts[number], counts[of])
    for name, other, pairs in findings.repeated:
        queries = findings.splits[other]["queries"]
        yield make_line(
            "queries that another split asks too", f"{other} in {name}", len(pairs), queries
        )
    for name, part in findings.overlaps.items():
        whole, judged = len(part.positives), findings.splits[name]["judged"]
        yield make_line("positives that are positives of train", name, len(part.shared), whole)
        yield make_line(
            "positives that have the text of a positive of train", name, len(part.exact), whole
        )
        yield make_line(
            "positives that are near-duplicates of one of train", name, len(part.near), whole
        )
        yield make_line("judged queries with any of these positives", name, part.queries, judged)
    for key, unjudged in findings.holes.items():
        for at, depth in unjudged.depths.items():
            top = f"in the top {at}"
            yield (
                f"unjudged {top}",
                key,
                depth.unjudged,
                "" if depth.hole is None else f"{depth.hole:.6f}",
            )
            yield make_line(
                f"unjudged {top} with the text of a positive", key, depth.exact, depth.unjudged
            )
            yield make_line(
                f"unjudged {top}, near-duplicates of a positive", key, depth.near, depth.unjudged
            )
            yield make_line(
                f"queries with such a result {top}", key, depth.queries, unjudged.queries
            )


class Example(NamedTuple):
    """An example of a finding: a remark, passages (ids) and queries (id and text)."""

    note: str
    passages: list[str]
    queries: Sequence[tuple[str, str]] = ()


Examples = dict[str, list[Example]]


def collect_examples(
    findings: Findings, splits: dict[str, JudgedSplit], duplicates: Duplicates, ids: IdRows
) -> Examples:
    """Return examples of each finding; the list is empty for a finding without any."""
    result = collect_corpus_examples(duplicates, ids)
    for name, split in splits.items():
        result |= collect_split_examples(name, split)

    for name, other, pairs in findings.repeated:
        first, second = splits[name].queries, splits[other].queries
        repeated = result[f"Queries of {other} that {name} asks too"] = []
        for query, before in pairs[:_EXAMPLES_PER_FINDING]:
            repeated.append(
                Example("the same text", [], [(query, second[query]), (before, first[before])])
            )

    # the same passages first, then equal texts, then near-duplicates
    for name, part in findings.overlaps.items():
        shown = result[f"Positives of {name} that train has shown"] = []
        for doc in ids.ids(part.shared[:_EXAMPLES_PER_FINDING]):
            shown.append(Example(f"a positive of train and of {name}", [doc]))
        for likeness, alike in (("the same text", part.exact), ("near-duplicates", part.near)):
            note = f"{likeness}: a positive of {name}, one of train"
            for pair in alike[:_EXAMPLES_PER_FINDING]:
                shown.append(Example(note, ids.ids(np.asarray(pair, np.int64))))

    for key, unjudged in findings.holes.items():
        repeats = result[f"Unjudged results of {key} that repeat a positive"] = []
        for hint in unjudged.examples:
            likeness = (
                "the same text" if hint.likeness == EXACT else f"similarity {hint.likeness:.2f}"
            )
            note = f"unjudged at rank {hint.rank}; a positive, {likeness}"
            asked = hint.query, splits[findings.split].queries[hint.query]
            repeats.append(
                Example(note, [hint.doc, *ids.ids(np.asarray([hint.positive]))], [asked])
            )
    return result


def collect_corpus_examples(duplicates: Duplicates, ids: IdRows) -> Examples:
    """Return empty passages, equal texts, and near-duplicates: the least similar first, as these are doubtful."""
    first, most = duplicates.first, _EXAMPLES_PER_FINDING
    empty = [Example("", [doc]) for doc in ids.ids(np.flatnonzero(duplicates.empty)[:most])]

    same = []
    for row in np.unique(first[duplicates.copies])[:most].tolist():
        group = np.flatnonzero(first == row)
        same.append(Example(f"{len(group)} passages", ids.ids(group[:most])))

    near = []
    least_alike = np.argsort(duplicates.similarity, kind="stable")[:most]
    lower, higher = (ids.ids(rows) for rows in unpack_rows(duplicates.pairs[least_alike]))
    for similarity, one, other in zip(
        duplicates.similarity[least_alike].tolist(), lower, higher, strict=True
    ):
        near.append(Example(f"similarity {similarity:.2f}", [one, other]))

    return {
        "Empty passages": empty,
        "Passages with the same text": same,
        "Near-duplicates, the least alike": near,
    }


def collect_split_examples(name: str, split: JudgedSplit) -> Examples:
    """Return positives that the corpus lacks, judged queries without a positive, and repeated queries."""

    most = _EXAMPLES_PER_FINDING

    def make_example(note: str, *queries: str) -> Example:
        return Example(note, [], [(query, split.queries[query]) for query in queries[:most]])

    missing = [
        make_example(f"the corpus lacks {', '.join(docs[:most])}", query)
        for query, docs in islice(split.find_missing().items(), most)
    ]
    judged = [
        make_example(f"{len(split.judged[query])} judgements", query)
        for query in split.list_without_positive()[:most]
    ]
    repeated = [
        make_example(f"{len(group)} queries", *group) for group in split.list_repeated()[:most]
    ]
    return {
        f"Positives that the corpus lacks, {name}": missing,
        f"Judged queries without a positive, {name}": judged,
        f"Queries asked more than once, {name}": repeated,
    }


def add_texts(examples: Examples, collection: Collection) -> dict[str, list[dict[str, object]]]:
    """Return the examples of each finding that has any, as JSON, with texts; one pass over the corpus."""
    docs: list[str] = []
    for shown in examples.values():
        for example in shown:
            docs += example.passages
    texts = collection.texts(docs)

    def shorten(text: str) -> str:
        return text if len(text) <= _CHARACTERS_PER_TEXT else f"{text[:_CHARACTERS_PER_TEXT]}…"

    def list_texts(rows: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
        return [{"id": name, "text": shorten(text)} for name, text in rows]

    def describe_example(example: Example) -> dict[str, object]:
        """Return an example with its texts, shortened, in the report's form."""
        passages = [(doc, join_contents(*texts[doc])) for doc in example.passages]
        return {
            "note": example.note,
            "queries": list_texts(example.queries),
            "passages": list_texts(passages),
        }

    return {
        finding: list(map(describe_example, shown)) for finding, shown in examples.items() if shown
    }
