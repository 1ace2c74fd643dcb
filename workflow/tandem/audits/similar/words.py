"""What counts as a word of a query, in any script, without a model or a dictionary."""

import unicodedata

import regex

# Scripts written without spaces: a run of them is no word, its pairs of neighbouring characters stand for words.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
RUN = regex.compile(rf"(?V1)(?P<unspaced>[{UNSPACED}]+)|[[\p{{L}}\p{{N}}\p{{M}}]--[{UNSPACED}]]+")


def folded(text: str) -> str:
    """The text without differences of case and width (Unicode NFKC, then case folding)."""
    return unicodedata.normalize("NFKC", text).casefold()


def normal(text: str) -> str:
    """The runs of letters and digits, joined by spaces; a text without any is itself."""
    plain = folded(text)
    return " ".join(match[0] for match in RUN.finditer(plain)) or plain.strip()


def terms(text: str) -> list[str]:
    """The words of a text; of an unspaced run its overlapping pairs of characters, or its only character."""
    found: list[str] = []
    for match in RUN.finditer(folded(text)):
        run = match[0]
        if match["unspaced"] and len(run) > 1:
            found += [run[at : at + 2] for at in range(len(run) - 1)]
        else:
            found.append(run)
    return found
