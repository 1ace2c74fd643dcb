"""What language models are asked, and what their answers mean."""

import re
from collections.abc import Callable, Iterator, Sequence

YES_NO = {
    "chat": (
        "{instruction}.\n\nQuery: {query}\n\nPassage: {passage}\n\n"
        "Is the passage relevant to the query? Answer with one word, yes or no."
    ),
    # The input that Qwen3-Reranker was trained with.
    "qwen3": (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {passage}"
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    ),
    "monot5": "Query: {query} Document: {passage} Relevant:",  # Nogueira et al. 2020, §2
}
WORDS = {"chat": ("yes", "no"), "qwen3": ("yes", "no"), "monot5": ("true", "false")}  # for and against relevance
LISTWISE = (
    "Order {count} passages by how well they answer the query, best first.\n\nQuery: {query}\n\n{passages}\n\n"
    "Write only the numbers in brackets, for example [2] > [1] > [3], and each number once."
)
TOKENS_PER_NUMBER = 6  # of an answer: brackets, digits, sign and spaces
NUMBER = re.compile(r"\d+")


def yes_no_prompt(form: str, instruction: str, query: str, passage: str) -> str:
    """The prompt about one passage."""
    return YES_NO[form].format(instruction=instruction, query=query, passage=passage)


def listwise_prompt(query: str, passages: Sequence[str]) -> str:
    """The prompt about a window of passages, numbered from 1."""
    numbered = "\n\n".join(f"[{number}] {passage}" for number, passage in enumerate(passages, start=1))
    return LISTWISE.format(count=len(passages), query=query, passages=numbered)


def permutation(answer: str, count: int) -> tuple[list[int], bool]:
    """The order, counted from 0, that an answer such as `[2] > [1]` names, and whether it had to be repaired.

    A number that is repeated or out of range is passed over, and passages that are not named follow in their order.
    """
    named = [int(number) - 1 for number in NUMBER.findall(answer)]
    valid = list(dict.fromkeys(at for at in named if 0 <= at < count))
    order = valid + [at for at in range(count) if at not in valid]
    return order, order != named


def windows(count: int, size: int, step: int) -> Iterator[slice]:
    """The windows over a list, from its end to its top; the last one begins at the top."""
    start = max(0, count - size)
    while True:
        yield slice(start, min(start + size, count))
        if start == 0:
            return
        start = max(0, start - step)


def slide(count: int, size: int, step: int, order_of: Callable[[list[int]], list[int]]) -> list[int]:
    """The order of a list after each of its windows has been ordered (RankGPT, Sun et al. 2023, §3.2).

    Args:
        order_of: the order of a window, as positions in it, of the passages that stand there.
    """
    ranked = list(range(count))
    for window in windows(count, size, step):
        inside = ranked[window]
        ranked[window] = [inside[at] for at in order_of(inside)]
    return ranked
