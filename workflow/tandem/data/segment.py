"""Words of text that is written without spaces, by jieba's dictionary (accurate mode)."""

import logging
import tempfile
from collections.abc import Callable


def segmenter() -> Callable[[str], list[str]]:
    """A function from a text to its words: lower case, without those that hold neither letter nor digit.

    jieba keeps a compiled dictionary in the temporary folder and trusts what it finds there; here it gets a folder of
    its own, which costs a second.
    """
    import jieba

    jieba.setLogLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = jieba.Tokenizer()
        tokenizer.tmp_dir = folder
        tokenizer.initialize()

    def words(text: str) -> list[str]:
        """The words of one text."""
        return [word.lower() for word in tokenizer.cut(text) if any(map(str.isalnum, word))]

    return words
