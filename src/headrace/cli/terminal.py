"""Output for people: aligned columns, JSON, sizes and counts. Plain text, which is the same in a pipe.

All commands print by `say` and the functions beside it, so that no control character of somebody else reaches
the terminal: names, client ids, principals and error texts come from the network. A control character could
move the cursor, change the title of the window, or write text that was never printed.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

# C0 with its escape, DEL, C1 (8-bit escapes), what changes the direction of text, two line breaks of Unicode,
# and halves of surrogate pairs, which cannot be encoded.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with control characters as escapes, which are valid in JSON, too: \\u001b."""
    return _CONTROL.sub(_escape, text)


def visible_lines(text: str) -> str:
    """The same for text of several lines: its line ends and tabs stay."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in "\n\t" else _escape(found), text)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def say(text: str = "", *, err: bool = False, bold: bool | None = None, fg: str | None = None) -> None:
    """Prints one line to stdout, or to stderr."""
    click.secho(visible(text), err=err, bold=bold, fg=fg)


def say_marked(mark: str, colour: str, text: str) -> None:
    """Prints one line that begins with a coloured word."""
    click.echo(f"{click.style(mark, fg=colour)}  {visible(text)}")


def say_lines(text: str, *, err: bool = False) -> None:
    """Prints text of several lines."""
    click.echo(visible_lines(text), err=err)


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()
) -> None:
    """Columns under headings, aligned left or, for those named, right."""
    cells = [[visible(str(cell)) for cell in row] for row in rows]
    widths = [max([len(heading), *(len(row[i]) for row in cells)]) for i, heading in enumerate(headings)]
    flushed = {i for i, heading in enumerate(headings) if heading in set(right)}
    click.secho(_line(headings, widths, flushed), bold=True)
    for row in cells:
        click.echo(_line(row, widths, flushed))


def _line(cells: Sequence[str], widths: list[int], flushed: set[int]) -> str:
    padded = (
        cell.rjust(width) if i in flushed else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def print_json(value: Any) -> None:
    """One document: indented for a person, on one line for a program."""
    import json  # not before there is something to print

    if sys.stdout.isatty():
        say_lines(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        say(json.dumps(value, ensure_ascii=False))


@contextmanager
def printed_even_if_it_fails(done: list[Any], *, as_json: bool) -> Iterator[None]:
    """Prints the list as JSON, also if the work fails half-way: a script then knows what was done."""
    try:
        yield
    except BaseException:
        if as_json and done:
            print_json(done)
        raise
    if as_json:
        print_json(done)


def note(text: str) -> None:
    """Prints a hint to stderr, if that is a terminal."""
    if sys.stderr.isatty():
        click.secho(visible(text), dim=True, err=True)


def bytes_text(count: float) -> str:
    """1536 → 1.5 KiB; empty for a size that nobody knows."""
    if count < 0:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes all")


def count_text(number: float, noun: str) -> str:
    return f"{number:,.0f} {noun}" if number == 1 else f"{number:,.0f} {noun}s"


def number_text(value: int | None) -> str:
    return "-" if value is None else str(value)
