"""Prompts for language models, and the meaning of their answers."""

import re
from collections.abc import Callable, Iterator, Sequence

YES_NO = {
    "chat": (
        "{instruction}.\n\nQuery: {query}\n\nPassage: {passage}\n\n"
        "Is the passage relevant to the query? Answer with one word, yes or no."
    ),
    "qwen3": "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {passage}",
    "monot5": "Query: {query} Document: {passage} Relevant:",  # Nogueira et al. 2020, §2
}
CHAT = "chat"  # the tokenizer's own chat template
# The template that a form's prompt is inserted into; None: no template.
TEMPLATES: dict[str, str | None] = {
    "chat": CHAT,
    # The input that Qwen3-Reranker was trained with.
    "qwen3": (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "{{ messages[0].content }}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>{{ '\n\n' }}"
    ),
    "monot5": None,
    "duot5": None,
}
# words for and against relevance
ANSWER_WORDS = {"chat": ("yes", "no"), "qwen3": ("yes", "no"), "monot5": ("true", "false")}
LISTWISE = (
    "Order {count} passages by how well they answer the query, best first.\n\nQuery: {query}\n\n{passages}\n\n"
    "Write only the numbers in brackets, for example [2] > [1] > [3], and each number once."
)
PAIR = {
    "chat": (
        "Query: {query}\n\nPassage A: {first}\n\nPassage B: {second}\n\n"
        "Which passage answers the query better? Answer with one letter, A or B."
    ),
    # Pradeep et al. 2021
    "duot5": "Query: {query} Document0: {first} Document1: {second} Relevant:",
}
# words for the first and for the second passage
PAIR_WORDS = {"chat": ("A", "B"), "duot5": ("true", "false")}
GRADE = """Grade how well a passage answers a query:
3: it is about the query, and answers it fully.
2: it answers the query, but only in part, unclearly, or among much else.
1: it is on the topic of the query, but does not answer it.
0: it has nothing to do with the query.

Query: {query}

Passage: {passage}

Write only the grade, in the form `Grade: n`."""  # the scale of UMBRELA (Upadhyay et al. 2024)
RELEVANCE_GRADES = ("0", "1", "2", "3")
TOKENS_PER_NUMBER = 6  # in an answer: brackets, digits, sign and spaces
BRACKETED = re.compile(r"\[(\d+)\]")
_NUMBER = r"(?<![\w.,-])\d+(?![\w]|[.,]\d)"  # a whole number
CHAIN = re.compile(rf"(?:\[\d+\]|{_NUMBER})(?:\s*>\s*(?:\[\d+\]|{_NUMBER}))+")
VALUE = r"-?\d+(?:[.,/]\d+)*"  # 2, and also 2.5, 2/3 and -2, which are not grades
AT_THE_END = re.compile(rf"{VALUE}\W*$")
_RANGE = r"\d\s*(?:[-–]|to)\s*\d"  # the range of grades, which an answer may repeat
NAMED = re.compile(
    rf"grade(?:\s*[(\[]{_RANGE}[)\]])?(?:\s+is)?[^\w-]*(?!{_RANGE})({VALUE})", re.IGNORECASE
)


def write_yes_no_prompt(form: str, instruction: str, query: str, passage: str) -> str:
    """Return the prompt about one passage."""
    return YES_NO[form].format(instruction=instruction, query=query, passage=passage)


def write_listwise_prompt(query: str, passages: Sequence[str]) -> str:
    """Return the prompt about a window of passages, numbered from 1."""
    numbered = "\n\n".join(
        f"[{number}] {passage}" for number, passage in enumerate(passages, start=1)
    )
    return LISTWISE.format(count=len(passages), query=query, passages=numbered)


def write_pair_prompt(form: str, query: str, first: str, second: str) -> str:
    """Return the prompt about two passages."""
    return PAIR[form].format(query=query, first=first, second=second)


def write_grade_prompt(query: str, passage: str) -> str:
    """Return the prompt that asks for a grade."""
    return GRADE.format(query=query, passage=passage)


def strip_thoughts(answer: str) -> str:
    """Return a model's answer without its thoughts, which end at `</think>`; empty if the thoughts were cut off."""
    return answer.rpartition("</think>")[2].partition("<think>")[0]


def read_grade(answer: str) -> tuple[int | None, bool]:
    """Return the grade that an answer names, and whether it had to be repaired; None if it names none or several.

    A grade follows the word "grade"; otherwise it is the only number, at the answer's end: numbers elsewhere are prose.
    See `strip_thoughts`.
    """
    text = strip_thoughts(answer).strip()
    values = set(NAMED.findall(text))
    if not values and AT_THE_END.search(text):
        values = set(re.findall(VALUE, text))
    value = values.pop() if len(values) == 1 else ""
    grade = int(value) if value in RELEVANCE_GRADES else None
    return grade, text != f"Grade: {grade}"


def read_permutation(answer: str, count: int) -> tuple[list[int], bool]:
    """Return the order, counted from 0, that an answer such as `[2] > [1]` names, and whether it had to be repaired.

    The longest chain of `>` counts, and the last of several as long. Without a chain, the numbers in brackets count:
    other numbers are prose. A number that is repeated or out of range is skipped. Passages that are not named follow in
    their order. See `strip_thoughts`.
    """
    text = strip_thoughts(answer)
    chains = [re.findall(r"\d+", chain) for chain in CHAIN.findall(text)]
    numbers = max(reversed(chains), key=len, default=BRACKETED.findall(text))
    # Python parses no number of thousands of digits; nine digits suffice to see that one is out of range
    named = [int(number[:9]) - 1 for number in numbers]
    valid = list(dict.fromkeys(at for at in named if 0 <= at < count))
    order = valid + [at for at in range(count) if at not in valid]
    return order, order != named


def iterate_windows(count: int, size: int, step: int) -> Iterator[slice]:
    """Yield the windows over a list, from its end to its top; the last one begins at the top."""
    start = max(0, count - size)
    while True:
        yield slice(start, min(start + size, count))
        if start == 0:
            return
        start = max(0, start - step)


def order_by_windows(
    count: int, size: int, step: int, order_of: Callable[[list[int]], list[int]]
) -> list[int]:
    """Return the order of a list after each of its windows has been ordered (RankGPT, Sun et al. 2023, §3.2).

    `order_of` returns the order of a window, as positions in it, from the passages in the window.
    """
    ranked = list(range(count))
    for window in iterate_windows(count, size, step):
        inside = ranked[window]
        ranked[window] = [inside[at] for at in order_of(inside)]
    return ranked
