"""A program as one text, the same whatever Python reads it: what a hash of code is taken of.

`ast.dump` is no such text: which empty fields it shows, and which fields a node has, changes from one Python to the
next. Here a node is its class and its fields that hold something, in their order; constants are written by type
and value. Comments, docstrings, blank lines, line breaks, quotes and parentheses that change nothing do not count.

It needs the standard library alone, so that any Python can be asked.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable
from typing import Any

IGNORED_NAMES = ("__version__", "__all__")  # what assignments to them say changes no measurement
IGNORED_FIELDS = ("kind", "type_comment", "type_ignores")  # u"" is "", and comments are none of the program
WITH_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def program_sha256(source: bytes, filename: str = "<source>") -> str:
    """Hash of the program in a source: equal for equal programs, under each Python that can read it. Raises
    SyntaxError: it is no Python.
    """
    return hashlib.sha256(text_of(program(source, filename)).encode()).hexdigest()


def program(source: bytes, filename: str = "<source>") -> ast.Module:
    """The syntax of a source without docstrings and what else does nothing. Raises SyntaxError: it is no Python."""
    tree = ast.parse(source, filename=filename)
    for node in ast.walk(tree):
        if isinstance(node, WITH_DOCSTRING) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                del node.body[0]
    tree.body = [node for node in tree.body if not _is_ignored(node)]
    return tree


def text_of(node: ast.AST) -> str:
    """A syntax tree as one text; pure."""
    words: list[str] = []
    _write(node, words.append)
    return "".join(words)


def _is_ignored(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and all(
        getattr(target, "id", None) in IGNORED_NAMES for target in node.targets
    )


def _write(value: Any, say: Callable[[str], None]) -> None:
    if isinstance(value, ast.Constant):
        say(_constant(value.value))
    elif isinstance(value, ast.AST):
        say(f"{type(value).__name__}(")
        for name in value._fields:
            held = getattr(value, name, None)
            if name == "values" and isinstance(value, ast.JoinedStr):
                held = _pieces(value)
            if name not in IGNORED_FIELDS and not _is_empty(name, held):
                say(f"{name}=")
                _write(held, say)
                say(",")
        say(")")
    elif isinstance(value, list):
        say("[")
        for each in value:  # None among them says something: a keyword without a default, a ** in a dictionary
            _write(each, say)
            say(",")
        say("]")
    else:
        say(_constant(value))


def _is_empty(name: str, held: Any) -> bool:
    spec = held if name == "format_spec" else None
    return held is None or held == [] or (isinstance(spec, ast.JoinedStr) and not _pieces(spec))


def _pieces(joined: ast.JoinedStr) -> list[ast.expr]:
    """What an f-string consists of: Pythons differ in empty and in adjacent pieces of text."""
    found: list[ast.expr] = []
    for piece in joined.values:
        for each in _pieces(piece) if isinstance(piece, ast.JoinedStr) else [piece]:
            if not isinstance(each, ast.Constant):
                found.append(each)
            elif found and isinstance(found[-1], ast.Constant):
                found[-1] = ast.Constant(value=str(found[-1].value) + str(each.value))
            elif each.value:
                found.append(each)
    return found


def _constant(value: Any) -> str:
    """A constant by type and value, in ASCII: what `repr` shows as it is depends on a Python's Unicode tables."""
    text = hex(value) if type(value) is int else ascii(value)  # digits of long numbers are limited
    return f"{type(value).__name__}:{text}"
