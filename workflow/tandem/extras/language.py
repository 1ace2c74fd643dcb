"""Guesses of script and language by the letters' Unicode names and by frequent words: enough to see a wrong analyzer.

A text has the script of most of its letters. A script that only one language uses decides the language. A text in Latin
script has the language whose stop words make up most of it. Short texts without stop words are not counted.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

_WORD = re.compile(r"[^\W\d_]+")
_CHARACTERS = 400  # characters of a text
# words that a text in Latin script needs before it counts as none of the languages below: titles are shorter
_FEWEST_WORDS = 12
_LEAST_STOP_WORDS = 0.12  # share of stop words among a text's words: English prose has about 0.4
# Scripts that a single language uses, as far as retrieval collections go.
_LANGUAGE_OF_SCRIPT = {
    "CJK": "zh", "HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "THAI": "th", "BENGALI": "bn", "TELUGU": "te",
    "GREEK": "el", "HEBREW": "he",
}  # fmt: skip
# Scripts that several languages use: texts in it may be in any of these.
_SHARED_SCRIPT_OF = {
    "ru": "cyrillic",
    "uk": "cyrillic",
    "ar": "arabic",
    "fa": "arabic",
    "hi": "devanagari",
}
TEXTS_SAMPLED = 2000  # texts of a collection, at least; at most twice as many
# share of the texts in another language; above it, the analysis of one language does not fit
MOST_OTHERS = 0.2
_LEAST_EXPECTED = 0.5  # share of the texts in the expected language, at least
LEAST_NAMED = 0.01
_LEAST_OF_SCRIPT = 0.8  # share of a vocabulary's pieces
_LEAST_KANA = 0.1  # share of kana from which a text with Chinese characters is Japanese
STOP_WORDS = {
    "en": "the of and to in is that for with this are be from by an it was which or as not have what how who when",
    "de": "der die das und ist nicht ein eine den von zu mit sich auf für dem des im auch als wie wird wer welche",
    "fr": "le la les et est une des du dans que qui pour pas sur au avec ce par plus sont quel quelle aux il elle",
    "es": "el los las una y es que en por con para del se lo como más su al qué cuál quién son fue no este",
    "it": "il lo gli della di che è per un una non con del nel sono da alla si chi come quale dei le anche",
    "pt": "o os as um uma e é que em por com para do da não no na dos se mais como qual quem são ao foi",
    "nl": "de het een en van is niet dat op te voor met zijn aan er ook als wie wat bij door worden naar",
    "sv": "och att det som är en på av för med den till inte om ett var har hur vad vem från kan eller",
    "pl": "nie się na jest że do to jak w z co po przez dla od czy oraz są był który kto ale jego",
    "tr": "ve bir bu için ile da de ne olarak daha çok gibi en kadar olan sonra değil nasıl kim hangi mi",
    "id": "yang dan di dengan untuk dari ini tidak itu pada adalah dalam ke oleh akan atau juga apa siapa",
    "vi": "và của là có không được trong cho người một các những với này đã để khi về từ tại ai gì nào",
    "fi": "ja on ei se että oli kun mutta niin hän joka ovat myös kuin mitä tai sen olla mikä kuka",
}
# word → the languages in which it is frequent, in the order above
BY_WORD: dict[str, list[str]] = {}
for _language, _words in STOP_WORDS.items():
    for _word in dict.fromkeys(_words.split()):
        BY_WORD.setdefault(_word, []).append(_language)


@cache
def get_script(letter: str) -> str:
    """Return a letter's script by its Unicode name: LATIN, CJK, ARABIC, …; empty for what is not a letter."""
    return unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else ""


def identify_script(text: str) -> str:
    """Return the script of most letters of a text's beginning; empty without letters."""
    letters = map(get_script, text[:_CHARACTERS])
    scripts = Counter(script for script in letters if script)
    kana = scripts["HIRAGANA"] + scripts["KATAKANA"]
    if kana > _LEAST_KANA * scripts.total():
        return "HIRAGANA"
    for script, _ in scripts.most_common(1):
        return script
    return ""


def identify_language(text: str) -> str:
    """Return a text's language, else its script in lower case; empty where the text is too short."""
    script = identify_script(text)
    if script != "LATIN":
        return _LANGUAGE_OF_SCRIPT.get(script, script.lower())
    words = _WORD.findall(text[:_CHARACTERS].lower())
    votes = Counter[str]()
    for word in words:
        votes.update(BY_WORD.get(word, ()))
    for language, count in votes.most_common(1):
        if count >= max(2, _LEAST_STOP_WORDS * len(words)):
            return language
    return "latin" if len(words) >= _FEWEST_WORDS else ""


class TextSample:
    """Measures the shares of scripts and of guessed languages in a sample of texts.

    It samples every text at first; as more come, every second, every fourth, …: evenly, whatever the batches are.
    """

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self._texts: list[str] = []
        self._every = 1
        self._seen = 0
        self.add(texts)

    def add(self, texts: Sequence[str]) -> None:
        """Take the next texts into the sample."""
        first = -self._seen % self._every
        self._texts += [text[:_CHARACTERS] for text in texts[first :: self._every]]
        self._seen += len(texts)
        while len(self._texts) > 2 * TEXTS_SAMPLED:
            self._texts = self._texts[::2]
            self._every *= 2

    def facts(self) -> dict[str, dict[str, float]]:
        """Return `scripts` and `languages` → name → share, the most frequent first."""
        scripts = Counter(identify_script(text).lower() for text in self._texts)
        return {
            "scripts": _compute_shares(scripts),
            "languages": _compute_shares(Counter(map(identify_language, self._texts))),
        }


def _compute_shares(counts: Counter[str]) -> dict[str, float]:
    named = Counter({name: count for name, count in counts.items() if name})
    return {name: round(count / named.total(), 3) for name, count in named.most_common()}


def describe_misfits(language: str, shares: Mapping[str, float]) -> str:
    """Describe the other languages of texts, `41% zh, 9% latin`; empty if texts fit their language or it is unclear.

    Texts in a script that several languages have fit each of them.

    >>> describe_misfits("fa", {"arabic": 0.7, "en": 0.3})
    '30% en'
    """
    own = _SHARED_SCRIPT_OF.get(language, language)
    others = {name: share for name, share in shares.items() if name != own}
    identified = sum(share for name, share in others.items() if name != "latin")
    is_recognised = own in {*STOP_WORDS, *_LANGUAGE_OF_SCRIPT.values(), *_SHARED_SCRIPT_OF.values()}
    fits = identified <= MOST_OTHERS and shares.get(own, 0.0) >= _LEAST_EXPECTED
    if not shares or not is_recognised or fits:
        return ""
        # in a language that uses Latin script, the remarkable thing about such a text is its few common words
    latin = f"latin with few common words of {language}" if language in STOP_WORDS else "latin"
    return ", ".join(
        f"{share:.0%} {latin if name == 'latin' else name}"
        for name, share in others.items()
        if share >= LEAST_NAMED
    )


def find_vocabulary_script(pieces: Sequence[str]) -> str | None:
    """Return the script that a tokenizer's pieces share, in lower case; None where they have several."""
    sample = TextSample(pieces)
    name, share = next(iter(sample.facts()["scripts"].items()), ("", 0.0))
    return name if share >= _LEAST_OF_SCRIPT else None
