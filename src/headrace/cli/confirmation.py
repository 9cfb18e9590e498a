"""Consent before something is destroyed: --yes, or a person at a terminal who says so."""

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
    """Returns only if it may be done. Without a terminal nobody can be asked, and silence is not consent."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{question} There is no terminal to ask at: give --yes. Nothing was changed.",
            click.get_current_context(),
        )
    click.confirm(question, abort=True, err=True)
