"""Split texts into sentences."""

import re
from itertools import pairwise

# A sentence ends after these marks, and the quotes and brackets that close there, if white space follows: dots,
# exclamation and question marks, the dandas of Hindi and Bengali, Urdu's full stop, Arabic's question mark. The marks
# of Chinese and Japanese, which are written without spaces, end a sentence anywhere. So does an empty line.
_SENTENCE_END = re.compile(r"""(?<=[.!?…।॥۔؟])["'”’)\]]*\s+|(?<=[。！？])[”’」』）]*\s*|\n\s*\n""")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, in order, without white space around them; those without a letter are left out.

    Only marks count, in any language: an abbreviation with a full stop ends a sentence, too.

    >>> split_sentences("Otters swim. “Do owls?” They do not…")
    ['Otters swim.', '“Do owls?”', 'They do not…']
    """
    bounds = [0]
    for end in _SENTENCE_END.finditer(text):
        bounds.append(end.end())
    bounds.append(len(text))
    pieces = [text[first:last].strip() for first, last in pairwise(bounds)]
    return [piece for piece in pieces if any(map(str.isalnum, piece))]
