"""Passage length control: short paragraphs of a document are joined until a passage says enough on its own.

DuReader-retrieval §2.2.2, with what its text leaves open read from the released passages: paragraphs meet without a
blank, every character counts (also punctuation and white space), and what is left at a document's end is a passage.
"""

from collections.abc import Iterator


def passages(paragraphs: list[str], enough: int) -> Iterator[list[str]]:
    """The paragraphs of each passage of a document; joined they are its text.

    A document shorter than `enough` is one passage. In another, a paragraph shorter than `enough` takes the next one,
    and the next, until together they are longer than `enough`; any other paragraph is a passage by itself.

    Args:
        paragraphs: the document's, none of them blank.
        enough: in characters.
    """
    together: list[str] = []
    length = 0
    for paragraph in paragraphs:
        together.append(paragraph)
        length += len(paragraph)
        alone = len(together) == 1 and length >= enough
        if alone or length > enough:
            yield together
            together, length = [], 0
    if together:
        yield together
