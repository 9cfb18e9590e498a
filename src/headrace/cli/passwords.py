"""Passwords for commands: asked on the terminal, or from stdin or a file. Never from the command line, which
other users of the computer can see.
"""

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace.cli.client_warnings import warn

F = TypeVar("F", bound=Callable[..., Any])

PASSWORD_BYTES_MAX = 64 * 1024  # more is a file that was named by mistake


def password_options(function: F) -> F:
    """--password-stdin and --password-file."""
    from_file = click.option(
        "--password-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Read the password from the first line of a file.",
    )
    from_stdin = click.option(
        "--password-stdin", is_flag=True, help="Read the password from the first line of stdin."
    )
    return from_stdin(from_file(function))


def read_password(user: str, *, from_stdin: bool, file: Path | None, as_json: bool) -> str:
    """The password for a user; asks twice for it on a terminal."""
    if from_stdin and file is not None:
        raise click.UsageError("Give only one of --password-stdin and --password-file.")
    if from_stdin:
        return _first_line(sys.stdin.buffer.readline(PASSWORD_BYTES_MAX + 1), "stdin")
    if file is not None:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                warn(f"{file} can be read by other users; chmod 600 changes that.", as_json=as_json)
            return _first_line(opened.readline(PASSWORD_BYTES_MAX + 1), str(file))
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"The password of {user} is missing, and stdin is not a terminal. Give --password-stdin or "
            "--password-file."
        )
    password: str = click.prompt(
        f"Password of {user!r}", hide_input=True, confirmation_prompt="Once more", err=True
    )
    return password


def _first_line(line: bytes, where: str) -> str:
    if len(line) > PASSWORD_BYTES_MAX:
        raise click.ClickException(f"{where}: the first line is too long for a password.")
    try:
        password = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise click.ClickException(f"{where}: the password is not UTF-8.") from None
    if not password:
        raise click.ClickException(f"{where}: the password is empty.")
    return password
