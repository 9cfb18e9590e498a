"""What the demo tells while it runs: lines that stay, and under them one that lives, where a person watches.

Without a terminal the live line is an ordinary one, every few seconds.
"""

import shutil
import sys
import time
from typing import Self

import click

PLAIN_EVERY_S = 10.0


class Screen:
    """Says nothing at all if it is quiet."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet
        self._is_live = sys.stdout.isatty()
        self._has_status = False
        self._plain_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def say(self, text: str, **style: object) -> None:
        """A line that stays."""
        if not self._is_quiet:
            self._clear()
            click.secho(text, **style)  # type: ignore[arg-type]

    def status(self, text: str) -> None:
        """The line that lives."""
        if self._is_quiet:
            return
        if self._is_live:
            width = shutil.get_terminal_size().columns - 1  # one that wraps could not be taken back
            click.echo(f"\r\x1b[2K{text[:width]}", nl=False)
            self._has_status = True
        elif time.monotonic() - self._plain_at >= PLAIN_EVERY_S:
            self._plain_at = time.monotonic()
            click.echo(text)

    def _clear(self) -> None:
        if self._has_status:
            click.echo("\r\x1b[2K", nl=False)
            self._has_status = False
