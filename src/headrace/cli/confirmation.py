"""The question before something is deleted, and the option --yes that answers it."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(function: F) -> F:
    return click.option("--yes", "-y", is_flag=True, help="Do not ask; needed where nobody can be asked.")(
        function
    )


def confirm(question: str, *, yes: bool) -> None:
    """Returns only after a yes. Without a terminal nobody can answer, and the command ends."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{question} Nothing was changed: stdin is not a terminal, so nobody can answer. "
            "To do it, give --yes.",
            click.get_current_context(),
        )
    click.confirm(question, abort=True, err=True)
