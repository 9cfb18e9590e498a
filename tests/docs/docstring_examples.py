"""Runs the examples of a docstring; `await` may stand in them as in asyncio's own prompt."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import types
from typing import Any

_CHECKER = doctest.OutputChecker()


def documented(kind: type) -> list[str]:
    """The public methods and properties of a class."""
    shown = {"__iter__", "__aiter__"}
    names = [name for base in kind.__mro__[:-1] for name in vars(base)]
    return [name for name in dict.fromkeys(names) if not name.startswith("_") or name in shown]


def examples(subject: Any) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(subject) or "")


def run(subject: Any, names: dict[str, Any], runner: asyncio.Runner) -> None:
    """Each example must print what stands below it; what raises fails the test as it is."""
    for example in examples(subject):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(example.source, "<example>", "single", flags)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if code.co_flags & inspect.CO_COROUTINE:
                runner.run(_awaited(code, names))
            else:
                exec(code, names)
        assert _CHECKER.check_output(example.want, printed.getvalue(), 0), (
            f"{example.source}expected:\n{example.want}printed:\n{printed.getvalue()}"
        )


async def _awaited(code: types.CodeType, names: dict[str, Any]) -> None:
    await types.FunctionType(code, names)()
