"""The question before something is deleted, and the option --yes that answers it."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.cli.terminal import visible

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(function: F) -> F:
    return click.option(
        "--yes", "-y", is_flag=True, help="Do not ask for confirmation; required without a terminal."
    )(function)


def confirm(question: str, *, yes: bool) -> None:
    """Returns only after a yes. Ends the command if there is no terminal to ask on."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{question} This needs a confirmation, and stdin is not a terminal. Nothing was changed. "
            "To confirm, give --yes.",
            click.get_current_context(),
        )
    click.confirm(visible(question), abort=True, err=True)
