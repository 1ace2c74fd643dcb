"""Broken queries: one typo in some words, capitals, or another order of the words.

The change of a query depends only on a seed, the kind and the query's id, not on the order or the number of queries.
"""

import hashlib
import random
import re
from collections.abc import Callable

from tandem.extras.words import MARKS

# letters of any script, with their marks
_LETTERS = re.compile(rf"[^\W\d_]+(?:[{MARKS}]+[^\W\d_]*)*")
# least number of letters of a word that gets a typo, if any word is that long: short words are mostly function words
FEWEST_LETTERS = 4
# rows of a US keyboard; each is half a key further right than the row above
_KEYBOARD_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def find_neighbours() -> dict[str, str]:
    """Return the letters around each letter of a US keyboard, in the order of the rows."""
    places = {}
    for row, letters in enumerate(_KEYBOARD_ROWS):
        for column, letter in enumerate(letters):
            places[letter] = row, column
    neighbours = {}
    for letter, (row, column) in places.items():
        # A key touches those at the same place and to the right in the row above, and at the same place and to the left
        # in the row below.
        above = [(row - 1, column), (row - 1, column + 1)]
        beside = [(row, column - 1), (row, column + 1)]
        below = [(row + 1, column - 1), (row + 1, column)]
        around = {*above, *beside, *below}
        neighbours[letter] = "".join(other for other, place in places.items() if place in around)
    return neighbours


NEIGHBOURS = find_neighbours()


def replace_letter(word: str, draw: random.Random) -> str:
    """Return a word with one letter replaced by a neighbour on the keyboard; a word without such letters as it is."""
    places = [place for place, letter in enumerate(word) if letter.lower() in NEIGHBOURS]
    if not places:
        return word
    place = draw.choice(places)
    letter = draw.choice(NEIGHBOURS[word[place].lower()])
    if word[place].isupper():
        letter = letter.upper()
    return word[:place] + letter + word[place + 1 :]


def swap_letters(word: str, draw: random.Random) -> str:
    """Return a word with two different adjacent letters swapped; a word without such letters is unchanged."""
    places = [place for place in range(len(word) - 1) if word[place] != word[place + 1]]
    if not places:
        return word
    place = draw.choice(places)
    first = word[place]
    second = word[place + 1]
    return word[:place] + second + first + word[place + 2 :]


def drop_letter(word: str, draw: random.Random) -> str:
    """Return a word without one of its letters; a word of one letter is unchanged."""
    if len(word) < 2:
        return word
    place = draw.randrange(len(word))
    return word[:place] + word[place + 1 :]


def repeat_letter(word: str, draw: random.Random) -> str:
    """Return a word with one of its letters doubled."""
    place = draw.randrange(len(word))
    return word[:place] + word[place] + word[place:]


TYPOS: dict[str, Callable[[str, random.Random], str]] = {
    "keyboard": replace_letter,
    "swap": swap_letters,
    "drop": drop_letter,
    "double": repeat_letter,
}


def break_words(text: str, kind: str, count: int, draw: random.Random) -> str:
    """Return a text with a typo in `count` of its words, or in all if it has fewer; the rest is unchanged."""
    words = list(_LETTERS.finditer(text))
    long = [word for word in words if len(word[0]) >= FEWEST_LETTERS] or words
    chosen = draw.sample(long, min(count, len(long)))
    # from the end, so that the positions of earlier words stay valid
    for word in sorted(chosen, key=lambda word: -word.start()):
        broken = TYPOS[kind](word[0], draw)
        text = text[: word.start()] + broken + text[word.end() :]
    return text


def shuffle_words(text: str, draw: random.Random) -> str:
    """Return a text with its words, split at spaces, in another order; a text of equal words keeps its order."""
    words = text.split()
    shuffled = draw.sample(words, len(words))
    while shuffled == words and len(set(words)) > 1:
        shuffled = draw.sample(words, len(words))
    return " ".join(shuffled)


def perturb(text: str, kind: str, query: str, seed: int, words: int = 1) -> str:
    """Return a query's text with one kind of fault.

    Args:
        kind: `keyboard`, `swap`, `drop`, `double`: a typo in `words` words; `case`: capitals; `order`: another order of
            its words.
        query: its id.
    """
    if kind == "case":
        return text.upper()
    digest = hashlib.sha256(f"{seed} {kind} {query}".encode()).digest()
    draw = random.Random(int.from_bytes(digest, "big"))
    if kind == "order":
        return shuffle_words(text, draw)
    return break_words(text, kind, words, draw)


def name_copy(kind: str, query: str) -> str:
    """Return the id of a query's copy that is broken by a kind of fault."""
    return f"{kind}.{query}"
