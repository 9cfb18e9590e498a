"""`headrace strays`: lists, restores and removes partition directories that the metadata does not know.

A node renames such a directory and keeps it (see docs/formats.md). The list works at any time; the node must
not run while a stray is restored or removed.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from headrace.cli.confirmation import confirm, yes_option
from headrace.cli.options import json_option
from headrace.cli.terminal import bytes_text, count_text, note, print_json, print_table, say
from headrace.server.lock import DirectoryInUse, DirectoryLock
from headrace.storage.checkpoints import META_PROPERTIES
from headrace.storage.strays import Stray, parse_stray


@click.command("strays")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--remove", "removed", multiple=True, metavar="NAME", help="Delete this stray permanently.")
@click.option("--remove-all", is_flag=True, help="Delete all strays permanently.")
@click.option(
    "--restore", "restored", multiple=True, metavar="NAME", help="Rename it back to its original name."
)
@yes_option
@json_option
def command(
    directory: Path,
    removed: tuple[str, ...],
    remove_all: bool,
    restored: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """List the stray partitions of a log directory, restore or remove them.

    A stray is a partition directory whose topic the metadata does not know. The node renames it to a name
    that contains the time and the reason and ends in -stray. Restore a stray after you have repaired the
    metadata: if the node still does not know the topic, it becomes a stray again.
    """
    removed, restored = tuple(dict.fromkeys(removed)), tuple(dict.fromkeys(restored))
    found = {stray.name: stray for stray in strays_in(directory)}
    if not found:
        _check_log_directory(directory)
    for name in (*removed, *restored):
        if name not in found:
            raise click.UsageError(
                f"{directory} has no stray {name!r}; `headrace strays {directory}` lists them."
            )
    if not (removed or remove_all or restored):
        _list(directory, list(found.values()), as_json=as_json)
        return
    if both := sorted(set(removed) & set(restored)):
        raise click.UsageError(f"{both[0]} is named by both --restore and --remove; choose one.")
    if remove_all:
        removed = tuple(name for name in found if name not in restored)
    lock = _lock(directory)
    try:
        if removed:  # asked first, so that a no changes nothing
            confirm(f"Remove {count_text(len(removed), 'stray')} of {directory} with all records?", yes=yes)
        for name in restored:
            _restore(directory, found[name])
        for name in removed:
            _remove(directory / name)
    finally:
        lock.release()
    if as_json:
        print_json({"restored": list(restored), "removed": list(removed)})
    elif removed:
        note(f"{count_text(len(removed), 'stray')} removed")


def log_directories(data: Path) -> list[Path]:
    """`data` itself, or what `headrace up` has below it: node-1/data."""
    if not data.is_dir() or not os.access(data, os.R_OK | os.X_OK):
        return []
    candidates = [data, *sorted(data.glob("*")), *sorted(data.glob("*/*"))]
    return [path for path in candidates if (path / META_PROPERTIES).is_file()]


def _check_log_directory(directory: Path) -> None:
    if (directory / META_PROPERTIES).is_file():
        return
    below = log_directories(directory)
    hint = f"Did you mean {below[0]}?" if below else "The node's setting log.dirs names it."
    raise click.UsageError(f"{directory} is not a log directory: it has no {META_PROPERTIES}. {hint}")


def strays_in(directory: Path) -> list[Stray]:
    names = sorted(path.name for path in directory.iterdir() if path.is_dir())
    return [stray for name in names if (stray := parse_stray(name)) is not None]


def _lock(directory: Path) -> DirectoryLock:
    try:
        return DirectoryLock(str(directory))
    except DirectoryInUse as error:
        raise click.ClickException(f"{error}.") from error


def _list(directory: Path, strays: list[Stray], *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "name": stray.name,
            "partition": stray.original,
            "since": _moment(stray.since_ms),
            "why": stray.why,
            "bytes": sum(path.stat().st_size for path in (directory / stray.name).iterdir()),
        }
        for stray in strays
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(
            ["partition", "since", "why", "size", "directory"],
            [
                (stray.original, row["since"] or "-", stray.why, bytes_text(row["bytes"]), stray.name)
                for stray, row in zip(strays, rows, strict=True)
            ],
        )
    else:
        say(f"No strays in {directory}.")


def _moment(wall_ms: int | None) -> str | None:
    return (
        None
        if wall_ms is None
        else datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    )


def _restore(directory: Path, stray: Stray) -> None:
    target = directory / stray.original
    if target.exists():
        raise click.ClickException(f"{target} exists already; {stray.name} was not renamed.")
    (directory / stray.name).rename(target)
    note(f"{stray.name} was renamed to {stray.original}")


def _remove(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
