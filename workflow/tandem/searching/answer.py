"""One query's answer: the best passages of a system, with their texts and every part's score of them."""

import time
from dataclasses import dataclass

from tandem.searching.collection import Known
from tandem.searching.ranking import Ranking
from tandem.searching.session import Session


@dataclass(frozen=True)
class Passage:
    """One passage of an answer.

    Attributes:
        doc_id: its id.
        title: its title, may be empty.
        text: its text.
        score: by the system, as in its run.
        scores: label of each part → its score; None where BM25's own list, as deep as its runs, lacks the passage, and
            where the system's cross-encoder did not look so deep.
        relevant: whether it is judged relevant; None where the query is not one of the collection's.
    """

    doc_id: str
    title: str
    text: str
    score: float
    scores: dict[str, float | None]
    relevant: bool | None


@dataclass(frozen=True)
class Answer:
    """What a query found.

    Attributes:
        query: its text.
        known: the collection's query of that text.
        passages: best first.
        milliseconds: what was done → how long it took; `total` is all of it.
    """

    query: str
    known: Known | None
    passages: list[Passage]
    milliseconds: dict[str, float]


def answer(session: Session, query: str, count: int) -> Answer:
    """The best `count` passages for a query."""
    began = time.monotonic()
    made = Ranking(session, query)
    found = made.ranked(session.run, count)[:count]
    docs = [doc for doc, _ in found]
    columns = {one.label: made.beside(one, docs) for one in session.parts}
    known = session.queries.find(query)
    relevant = None if known is None else known.relevant
    texts = session.passages.texts(session.passages.ids.rows(docs).tolist())
    passages = [
        Passage(
            *(doc, title, text, score),
            {label: scores.get(doc) for label, scores in columns.items()},
            None if relevant is None else doc in relevant,
        )
        for (doc, score), (title, text) in zip(found, texts, strict=True)
    ]
    return Answer(query, known, passages, {**made.milliseconds, "total": 1000 * (time.monotonic() - began)})
