"""Docstrings of a module's functions, classes and methods, by reading its syntax tree."""

import ast
import inspect
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
ATTACHING = frozenset({"add_newdoc", "add_docstr"})  # how NumPy and torch document what is written in C


@dataclass(frozen=True)
class Documented:
    """An object and its docstring.

    Attributes:
        name: the last part of the object's name.
        docstring: without the indentation of the source.
    """

    name: str
    docstring: str


def docstrings(source: str) -> list[Documented]:
    """Documented objects of a module's source, in order; none if this Python cannot parse it.

    Functions within functions are left out: nobody can call them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in other people's strings
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return []
    return list(_documented(tree))


def _documented(node: ast.AST) -> Iterator[Documented]:
    """Documented objects below a node, conditional definitions included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, DEFINITIONS):
            if text := ast.get_docstring(child):
                yield Documented(child.name, text)
            if isinstance(child, ast.ClassDef):
                yield from _documented(child)
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _documented(child)
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from _attached(child.value)


def _attached(call: ast.Call) -> Iterator[Documented]:
    """The docstring in `add_newdoc(module, object, text | (method, text))` or `add_docstr(object, text)`."""
    function = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if function not in ATTACHING or not call.args:
        return
    texts = [node.value for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.Constant)]
    names = [text for text in texts if isinstance(text, str) and "\n" not in text]
    if function == "add_docstr":
        names = [ast.unparse(call.args[0])]
    if docs := [text for text in texts if isinstance(text, str) and "\n" in text]:
        yield Documented(names[-1].split(".")[-1] if names else "", inspect.cleandoc("".join(docs)))
