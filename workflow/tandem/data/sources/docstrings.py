"""Docstrings of a module's functions, classes and methods, by reading its syntax tree."""

import ast
import inspect
import re
import warnings
from collections.abc import Iterator
from itertools import dropwhile, groupby

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# how NumPy and torch document what is written in C
_ATTACHING = frozenset({"add_newdoc", "add_docstr"})


def list_docstrings(source: str) -> list[tuple[str, str]]:
    """Return (last part of its name, docstring without the source's indentation) of each documented object of a module.

    Objects come in the module's order; there are none if this Python cannot parse it. Functions within functions are
    left out: nobody can call them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in other people's strings
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return []
    return list(_walk_documented(tree))


def _walk_documented(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield documented objects below a node, conditional definitions included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DEFINITIONS):
            if text := ast.get_docstring(child):
                yield child.name, text
            if isinstance(child, ast.ClassDef):
                yield from _walk_documented(child)
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _walk_documented(child)
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from _read_attached(child.value)


def _read_attached(call: ast.Call) -> Iterator[tuple[str, str]]:
    """Yield the docstring in `add_newdoc(module, object, text | (method, text))` or `add_docstr(object, text)`."""
    function = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if function not in _ATTACHING or not call.args:
        return
    names = []
    docs = []
    for argument in call.args:
        for node in ast.walk(argument):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if "\n" in node.value:
                docs.append(node.value)
            else:
                names.append(node.value)
    if function == "add_docstr":
        names = [ast.unparse(call.args[0])]
    if docs:
        name = names[-1].split(".")[-1] if names else ""
        yield name, inspect.cleandoc("".join(docs))


_SIGNATURE = re.compile(r"^[\w\.]+\s*\(.*\)\s*(->.*)?$", re.DOTALL)
_UNDERLINE = re.compile(r"^\s*[-=~^]{3,}\s*$")
# A line that starts something else than prose, and so ends a summary.
_FIELD = re.compile(r"^\s*(:param|:return|@param|>>>|\.\. )")
_HEAD = re.compile(
    r"^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?)\s*:?\s*$"
)
# Heads without an underline: after the first kind everything is left out until one of the second kind.
_SKIPPED_HEAD = re.compile(
    r"^\s*(Examples?|References|See Also|Doctest|Usage)\s*:{0,2}\s*$", re.IGNORECASE
)
_PROSE_HEAD = re.compile(
    r"^\s*(Args|Arguments|Parameters|Keyword args|Attributes|Returns?|Raises|Yields|Notes?|Inputs?|Outputs?|Shape)"
    r"\s*:\s*$",
    re.IGNORECASE,
)
_SKIPPED_TITLE = re.compile(r"^\s*(Examples?|References|See Also)\s*$", re.IGNORECASE)
_CODE = re.compile(r"^\s*(>>>|\.\.\. |```)")
_SENTENCE_END = re.compile(r"(?<=[a-z0-9\)\]`'\"])\.(?=\s+[A-Z`]|\s*$)")
WHITE_SPACE = re.compile(r"\s+")
_MARKUP = [
    (re.compile(r":[a-zA-Z:]+:`~?([^`<]*?)(?:\s*<[^>]*>)?`"), r"\1"),  # :func:`~name <target>`
    (re.compile(r"``([^`]*)``"), r"\1"),
    (re.compile(r"`([^`]*)`_*"), r"\1"),
    (re.compile(r"\[([^\]]+)\]\([^)]+\)"), r"\1"),  # [text](target)
    (re.compile(r"https?://\S+"), " "),
    (re.compile(r"\*\*([^*]+)\*\*"), r"\1"),
    (re.compile(r"\{[a-zA-Z_]+\}|%\([a-zA-Z_]+\)s"), " "),  # {placeholder} %(placeholder)s
    (re.compile(r"\[\d+\]_"), " "),  # [1]_
    (re.compile(r"\.\. (math|versionadded|versionchanged|deprecated|note|warning|seealso)::"), " "),
]


def strip_markup(text: str) -> str:
    """Return text without markup, white space run together."""
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return WHITE_SPACE.sub(" ", text).strip()


def split_docstring(docstring: str) -> tuple[str, str] | None:
    """Return the first sentence of a docstring and what follows, both plain; None if it starts with no prose.

    The summary has no final full stop. The rest of its paragraph begins the body.
    """
    lines = docstring.expandtabs().split("\n")
    blocks = groupby(lines, key=lambda line: bool(line.strip()))
    paragraphs = _drop_signatures([list(block) for is_text, block in blocks if is_text])
    if not paragraphs:
        return None
    first, after = _split_at_section(paragraphs[0])
    if not first:
        return None

    text = strip_markup(" ".join(line.strip() for line in first))
    rest = ""
    end = _SENTENCE_END.search(text)
    if end:
        rest = text[end.end() :].strip()
        text = text[: end.start()]
    else:
        text = text.rstrip(" .:")

    following = []
    for paragraph in [after, *paragraphs[1:]]:
        following += [*paragraph, ""]
    return text, strip_markup(" ".join([rest, *_iterate_prose(following)]))


def _drop_signatures(paragraphs: list[list[str]]) -> list[list[str]]:
    """Return paragraphs after the call signatures that open docstrings of what is written in C."""
    prose = list(
        dropwhile(lambda lines: _SIGNATURE.match(" ".join(map(str.strip, lines))), paragraphs)
    )
    if prose and len(prose[0]) > 1 and _SIGNATURE.match(prose[0][0].strip()):
        prose[0] = prose[0][1:]
    return prose


def _split_at_section(paragraph: list[str]) -> tuple[list[str], list[str]]:
    """Return a paragraph's lines before a section's head, and from the head on."""
    for number, line in enumerate(paragraph):
        if _UNDERLINE.match(line):
            head = max(number - 1, 0)
            return paragraph[:head], paragraph[head:]
        if _HEAD.match(line) or _FIELD.match(line):
            return paragraph[:number], paragraph[number:]
    return paragraph, []


def _iterate_prose(lines: list[str]) -> Iterator[str]:
    is_selected = True
    number = 0
    while number < len(lines):
        line = lines[number]
        following = lines[number + 1] if number + 1 < len(lines) else ""
        number += 1
        if line.strip() and _UNDERLINE.match(following):
            is_selected = not _SKIPPED_TITLE.match(line)
            number += 1  # past the underline
        elif _SKIPPED_HEAD.match(line):
            is_selected = False
        elif _PROSE_HEAD.match(line):
            is_selected = True
        elif is_selected and line.strip() and not _CODE.match(line):
            yield line.strip()
