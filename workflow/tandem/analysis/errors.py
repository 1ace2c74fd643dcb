"""Stage `errors`: queries whose top results hold no positive, with each wrong result on a sheet for an annotator.

DuReader-retrieval §3.5: 100 queries of the development set whose top 5 hold no positive, 500 pairs in all.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tandem.analysis.error_sheet import Row, write_sheet
from tandem.analysis.types import TYPES, Pair, guess
from tandem.analysis.words import Rarity
from tandem.artifact import Job, write_json, writing
from tandem.audits.similar.words import terms
from tandem.data.collection import Collection, contents
from tandem.data.runs import iter_run, ranked_order
from tandem.data.select import subset
from tandem.errors import UserError
from tandem.evaluation.measures import Qrels
from tandem.evaluation.relevance import relevance
from tandem.retrieval.inputs import require_dataset


@dataclass(frozen=True)
class Wrong:
    """A query without a positive among its first results.

    Attributes:
        query: its id.
        top: the first results with their scores, best first.
        positives: rank of each labelled positive in the run, None where the run lacks it; the best ranked first.
    """

    query: str
    top: list[tuple[str, float]]
    positives: dict[str, int | None]


def run(job: Job) -> None:
    """Write sheet.csv (to fill in), pairs.parquet (the same, for programs) and summary.json.

    Params: split; top (a query is wrong if none of so many results is relevant); queries (so many wrong ones are
    sampled at most, those whose ids hash lowest).
    Inputs: dataset, run; match, where answers tell what is relevant.

    Raises:
        UserError: inputs that do not fit, or no query is wrong.
    """
    require_dataset(job, "run")
    split, collection = job.params["split"], Collection(job.inputs["dataset"])
    judged = relevance(job, [])
    wrong = {one.query: one for one in wrong_queries(job, judged.qrels, set(judged.queries))}
    if not wrong:
        folder, top = job.inputs["run"].folder, job.params["top"]
        raise UserError(f"errors: every query has a positive in the top {top} of {folder}; lower analysis.errors.top")
    kept = subset(dict.fromkeys(wrong, split), {split: job.params["queries"]})
    rows = list(described([wrong[query] for query in kept], collection, collection.queries(split)))
    with writing(job) as draft:
        write_sheet(draft, rows)
        guesses = Counter(row.guess for row in rows)
        told = {
            "split": split,
            "run": job.inputs["run"].key,
            "top": job.params["top"],
            "queries": len(judged.queries),
            "without_positive": len(wrong),
            "percent": round(100 * len(wrong) / len(judged.queries), 2),
            "sampled": len(kept),
            "pairs": len(rows),
            "guesses": {name: guesses[name] for name in TYPES},
        }
        write_json(draft.path("summary.json"), told)
        draft.facts |= {"queries": len(kept), "pairs": len(rows)}


def wrong_queries(job: Job, qrels: Qrels, queries: set[str]) -> Iterator[Wrong]:
    """The scored queries of the run whose first results hold no positive, in the run's order."""
    for query, docs, scores in iter_run(job.inputs["run"].path("run.trec")):
        if query not in queries:
            continue
        ranked = ranked_order(docs, scores)
        relevant = [doc for doc, told in qrels[query].items() if told > 0]
        ranks = {doc: rank for rank, (doc, _) in enumerate(ranked, 1)}
        positives = {
            doc: ranks.get(doc) for doc in sorted(relevant, key=lambda doc: (ranks.get(doc, len(ranks) + 1), doc))
        }
        if not any(rank and rank <= job.params["top"] for rank in positives.values()):
            yield Wrong(query, ranked[: job.params["top"]], positives)


def described(wrong: list[Wrong], collection: Collection, queries: dict[str, str]) -> Iterator[Row]:
    """The sheet's rows: each wrong result with its guess, query after query, best first."""
    rarity = Rarity(collection, (queries[one.query] for one in wrong))
    texts = collection.texts(doc for one in wrong for doc in (*(doc for doc, _ in one.top), *one.positives))
    for one in wrong:
        query = terms(queries[one.query])
        positives = {doc: set(terms(contents(*texts[doc]))) for doc in one.positives if doc in texts}
        best = next(iter(positives), None)
        for rank, (doc, score) in enumerate(one.top, 1):
            passage = terms(contents(*texts[doc]))
            pair = Pair(query, passage, list(positives.values()), rarity.weights(query), rarity.misspelt(query))
            suggested, why = guess(pair)
            yield Row(
                query_id=one.query,
                doc_id=doc,
                rank=rank,
                score=score,
                query=queries[one.query],
                title=texts[doc][0],
                passage=texts[doc][1],
                positive=contents(*texts[best]) if best else "",
                positive_rank=one.positives[best] if best else None,
                guess=suggested,
                why=why,
            )
