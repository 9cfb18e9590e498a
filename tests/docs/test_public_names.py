"""The names that users import: all there, loaded late, and documented with examples that run."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys

import pytest

import headrace
import headrace.aio
from headrace.testing import Broker

DOCUMENTED = [headrace.Producer, headrace.aio.Producer]


def test_every_name_is_there_and_nothing_else_is_promised() -> None:
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None
    assert set(headrace.__all__) == {*headrace._HOME_OF, "__version__"}
    assert set(headrace.__all__) <= set(dir(headrace))
    with pytest.raises(AttributeError, match="no attribute 'Producr'"):
        headrace.Producr  # noqa: B018


def test_names_are_loaded_when_they_are_used() -> None:
    """A broker's start must not pay for a client; nobody pays for pyarrow unasked."""
    program = (
        "import sys, headrace\n"
        "assert 'headrace.client' not in sys.modules\n"
        "headrace.Producer\n"
        "assert 'asyncio' not in sys.modules and 'pyarrow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("kind", DOCUMENTED, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_examples_run(kind: type, headrace_broker: Broker) -> None:
    names = {"headrace": headrace, "bootstrap": headrace_broker.bootstrap_servers}
    examples = doctest.DocTestFinder(recurse=True).find(kind, kind.__name__, globs=names)
    assert any(example.examples for example in examples)
    for example in examples:
        headrace_broker.reset()
        with headrace.Producer(headrace_broker.bootstrap_servers) as producer:
            example.globs.setdefault("producer", producer)
            results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
        assert results.failed == 0


@pytest.mark.parametrize("kind", DOCUMENTED, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_public_method_is_documented_and_typed(kind: type) -> None:
    for name, member in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.getdoc(member), name
            hints = inspect.get_annotations(member)
            assert {*inspect.signature(member).parameters} - {"self"} | {"return"} == set(hints), name
