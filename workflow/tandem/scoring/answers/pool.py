"""Matching by one process or several; results come in the order of the pieces, so that their number shows nowhere."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

from tandem.scoring.answers.match import Matcher
from tandem.scoring.answers.results import Integers, Piece

Done = tuple[list[bool], int]  # for each pair in order, whether it matches; and the searches that were given up

AHEAD = 4  # pieces per process that wait for it or for being fetched
_own: dict[str, Matcher] = {}  # where a worker process keeps its matcher


def match(matcher: Matcher, texts: list[str], asked: list[list[int]]) -> Done:
    """Try each of some passages on its questions."""
    before = matcher.timeouts
    values = [value for text, questions in zip(texts, asked, strict=True) for value in matcher.matches(text, questions)]
    return values, matcher.timeouts - before


def match_all(matcher: Matcher, pieces: Iterator[Piece], workers: int) -> Iterator[tuple[Integers, Done]]:
    """Pairs and their values, piece by piece in order; only a few pieces are held at a time.

    Args:
        matcher: the prepared answers.
        pieces: passages and the questions that found them.
        workers: processes; with one, this process does it all.
    """
    if workers <= 1:
        yield from ((piece.pairs, match(matcher, piece.texts, piece.asked)) for piece in pieces)
        return
    waiting: deque[tuple[Integers, Future[Done]]] = deque()
    with ProcessPoolExecutor(workers, get_context("spawn"), _start, (matcher,)) as pool:
        for piece in pieces:
            waiting.append((piece.pairs, pool.submit(_match_own, piece.texts, piece.asked)))
            if len(waiting) >= AHEAD * workers:
                pairs, future = waiting.popleft()
                yield pairs, future.result()
        yield from ((pairs, future.result()) for pairs, future in waiting)


def _start(matcher: Matcher) -> None:
    """Keep the matcher in a new worker process."""
    _own["matcher"] = matcher


def _match_own(texts: list[str], asked: list[list[int]]) -> Done:
    """`match` in a worker process."""
    return match(_own["matcher"], texts, asked)
