"""The types of wrong predictions of DuReader-retrieval (§3.5, Table 10), and a guess of a pair's by simple signals.

The guess saves an annotator typing; it is no annotation. Every rule is a comparison of words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

ENTITY, NUMERAL, MODIFIER = "Entity mismatch", "Numeral mismatch", "Modifier mismatch"
SYNTACTIC, TYPO, OVERLAP = "Syntactic mismatch", "Robustness on typos", "Over-sensitivity on term overlap"
FALSE_NEGATIVE, OTHER = "False negatives", "Others"
# Type → category, in the order of Table 10.
TYPES = dict.fromkeys((ENTITY, NUMERAL, MODIFIER), "Salient Phrase Mismatch")
TYPES |= {SYNTACTIC: "Syntactic mismatch", TYPO: "Other Challenges", OVERLAP: "Other Challenges"}
TYPES |= {FALSE_NEGATIVE: "Others", OTHER: "Others"}
# What an annotator may write instead, in the same order.
_SHORT = ("entity", "numeral", "modifier", "syntactic", "typo", "overlap", "false negative", "other")
SHORT = dict(zip(_SHORT, TYPES, strict=True))
NEAR = 0.6  # Jaccard similarity of words from which a passage says what a labelled positive says
MOST = 0.5  # share of the query's weight from which a passage is about most of it


@dataclass(frozen=True)
class Pair:
    """The words of a query and of a passage that was ranked high for it, in order, and of each labelled positive."""

    query: list[str]
    passage: list[str]
    positives: list[set[str]] = field(default_factory=list)
    weights: Mapping[str, float] = field(default_factory=dict)  # of content words: the rarer, the heavier
    misspelt: Mapping[str, str] = field(default_factory=dict)  # query word that no passage has → the like one


def guess(pair: Pair) -> tuple[str, str]:
    """The type (a key of TYPES) that the words suggest, and why in words; the first rule that holds."""
    words = set(pair.passage)
    if any(jaccard(words, positive) >= NEAR for positive in pair.positives):
        return FALSE_NEGATIVE, "nearly the words of a labelled positive"
    # `b12` is a name, no numeral
    query, passage = ({word for word in text if word.isdecimal()} for text in (pair.query, pair.passage))
    if query - passage and passage:
        return NUMERAL, f"asks for {min(query - passage)}, tells {min(passage - query or passage)}"
    if pair.misspelt:
        return TYPO, ", ".join(f"{word} for {meant}?" for word, meant in pair.misspelt.items())
    salient = sorted(pair.weights, key=lambda word: (-pair.weights[word], pair.query.index(word)))
    missing = [word for word in salient if word not in words]
    if not salient:
        return OTHER, "the query has no rare word"
    if not missing:
        return (SYNTACTIC, "all words, mostly the other way round") if reordered(pair) else (OTHER, "all words")
    if salient[0] in missing:
        return ENTITY, f"no {salient[0]}"
    covered = sum(weight for word, weight in pair.weights.items() if word in words) / sum(pair.weights.values())
    if covered < MOST:
        return OVERLAP, f"{salient[0]}, but neither {' nor '.join(missing)}"
    return MODIFIER, f"{salient[0]}, but not {', '.join(missing)}"


def jaccard(left: set[str], right: set[str]) -> float:
    """|A ∩ B| / |A ∪ B|, 0 of two empty sets."""
    return len(left & right) / len(left | right) if left or right else 0.0


def reordered(pair: Pair) -> bool:
    """Whether most pairs of the query's content words stand in the other order where the passage first has them."""
    words = [word for word in dict.fromkeys(pair.query) if word in pair.weights]
    pairs = list(combinations(map(pair.passage.index, words), 2))
    return sum(first > second for first, second in pairs) * 2 > len(pairs)
