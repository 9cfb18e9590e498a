"""What errors say to people: nothing of a program that the reader may not be using."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import headrace.client
import headrace.schemas
from headrace.client import errors
from headrace.client.errors import KafkaError
from headrace.protocol.errors import ErrorCode

# an option of a command line, and not an arrow of a diagram
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?![\w-]*-->|[ \w,]*-->)")


def texts(path: Path) -> list[str]:
    """The string literals of a file, but for its docstrings."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            is_docstring = isinstance(node, ast.Expr)
            if isinstance(child, ast.Constant) and isinstance(child.value, str) and not is_docstring:
                found.append(child.value)
    return found


@pytest.mark.parametrize("package", [headrace.client, headrace.schemas], ids=["client", "schemas"])
def test_no_message_names_an_option_of_a_command(package: object) -> None:
    (root,) = package.__path__  # type: ignore[attr-defined]
    named = {
        path.name: hits
        for path in Path(root).rglob("*.py")
        if (hits := [text for text in texts(path) if OPTION.search(text)])
    }
    assert named == {}


@pytest.mark.parametrize("code", list(ErrorCode))
def test_advice_of_a_broker_s_error_is_a_sentence(code: ErrorCode) -> None:
    advice = KafkaError(code).advice
    assert advice == "" or advice.endswith(".")


def test_a_broker_s_sentence_and_the_name_are_one_sentence() -> None:
    error = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a' already exists.", subject="topic 'a'")
    assert str(error) == "topic 'a': Topic 'a' already exists (TOPIC_ALREADY_EXISTS)"


def test_errors_have_advice() -> None:
    for name in ("Unreachable", "ConnectionLost", "TimedOut", "BadResponse", "RecordLost", "BufferExhausted"):
        assert getattr(errors, name).advice.endswith(".")


def test_advice_names_no_command() -> None:
    """Whoever uses the library may not have the command line at hand."""
    advice = [KafkaError(code).advice for code in ErrorCode]
    advice += [getattr(getattr(errors, name), "advice", "") for name in dir(errors)]
    assert not [text for text in advice if isinstance(text, str) and ("`headrace " in text or " --" in text)]
