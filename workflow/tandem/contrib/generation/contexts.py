"""What a generator learns to write for a query, instead of a query for a passage (GAR: Mao et al. 2021).

GAR has three contexts: the query's answer, the sentence of a relevant passage that holds it, and such a passage's
title. In a collection without answers, the sentence is the one of a relevant passage that shares the most words with
the query. A collection without answers and titles still has the passages, whose beginning a generator learns.
"""

from collections.abc import Callable, Iterator

from tandem.contrib.generation.options import Target
from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.extras.answer_rules import Matcher
from tandem.extras.sentences import split_sentences
from tandem.extras.words import split_into_terms

Passages = list[tuple[str, str]]  # (title, text) of the passages that are relevant to a query


def read_contexts(
    collection: Collection, split: str, target: Target, rule: str
) -> list[tuple[str, str]]:
    """Return (query, context) of a split's queries, in their order, each pair once.

    A query may have several contexts, one per relevant passage, but only its first answer, as in GAR. A blank answer
    does not count. Memory: the relevant passages' texts.

    Args:
        rule: the rule of `MATCHING_RULES` by which an answer is found in a sentence.
    Raises:
        UserError: no query has such a context; the message names what is missing.
    """
    queries = collection.queries(split)
    answers = {
        query: [answer for answer in own if answer.strip()]
        for query, own in collection.known_answers(split).items()
    }
    if target == "answer":
        pairs = [(queries[query], own[0]) for query, own in answers.items() if own]
    else:
        contexts = _CONTEXTS_OF[target]
        pairs = []
        for query, passages in _read_passages(collection, split, queries):
            found = contexts(queries[query], passages, answers.get(query, []), rule)
            pairs += [(queries[query], context) for context in dict.fromkeys(found)]
    if not pairs:
        raise UserError(f"{collection.artifact.folder}: {_LACKING[target].format(split=split)}")
    return pairs


_LACKING: dict[Target, str] = {
    "answer": "no query of split {split} has an answer, which target: answer needs; name another target, or a dataset "
    "with answers",
    "sentence": "no relevant passage of split {split} has a sentence with an answer, or with a word of its query; name "
    "another target",
    "title": "no relevant passage of split {split} has a title, which target: title needs; name another target",
    "passage": "no relevant passage of split {split} has a text",
}


def _read_passages(
    collection: Collection, split: str, queries: dict[str, str]
) -> Iterator[tuple[str, Passages]]:
    """Yield each query that has relevant passages, together with these, in the order of the labels."""
    relevant = {
        query: [doc for doc, relevance in judged.items() if relevance > 0]
        for query, judged in collection.qrels(split).items()
        if query in queries
    }
    texts = collection.texts({doc for docs in relevant.values() for doc in docs})
    for query, docs in relevant.items():
        yield query, [texts[doc] for doc in docs if doc in texts]


def _sentences(query: str, passages: Passages, answers: list[str], rule: str) -> list[str]:
    """Return a sentence of each passage: the first with an answer, or for a query without answers the nearest one."""
    found = []
    for _, text in passages:
        sentences = split_sentences(text)
        sentence = (
            _find_answer(sentences, answers, rule) if answers else _find_nearest(sentences, query)
        )
        found += [sentence] if sentence else []
    return found


def _find_answer(sentences: list[str], answers: list[str], rule: str) -> str | None:
    matcher = Matcher(rule, [answers])
    return next((sentence for sentence in sentences if matcher.matches(sentence, [0])[0]), None)


def _find_nearest(sentences: list[str], query: str) -> str | None:
    """Return the sentence with the most of a query's words, of equal ones the first; None if none has any of them.

    In scripts without spaces, pairs of neighbouring characters count as words; see `split_into_terms`.
    """
    asked = set(split_into_terms(query))
    shared = [len(asked.intersection(split_into_terms(sentence))) for sentence in sentences]
    return sentences[shared.index(max(shared))] if any(shared) else None


def _titles(query: str, passages: Passages, answers: list[str], rule: str) -> list[str]:
    return [title for title, _ in passages if title]


def _texts(query: str, passages: Passages, answers: list[str], rule: str) -> list[str]:
    return [text for _, text in passages if text]


_CONTEXTS_OF: dict[Target, Callable[[str, Passages, list[str], str], list[str]]] = {
    "sentence": _sentences,
    "title": _titles,
    "passage": _texts,
}
