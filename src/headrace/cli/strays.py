"""`headrace strays`: partition directories that the metadata does not know, listed, restored and removed.

A node puts them aside and keeps them (see docs/formats.md). This command works on the files of a log
directory whose node does not run, except for the list, which may be asked at any time.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from headrace.cli.confirmation import confirm, yes_option
from headrace.cli.options import json_option
from headrace.cli.terminal import bytes_text, count_text, note, print_json, print_table
from headrace.server.lock import DirectoryInUse, DirectoryLock
from headrace.storage.strays import Stray, parse_stray


@click.command("strays")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--remove", "removed", multiple=True, metavar="NAME", help="Remove this stray for good.")
@click.option("--remove-all", is_flag=True, help="Remove all strays for good.")
@click.option("--restore", "restored", multiple=True, metavar="NAME", help="Give it its own name back.")
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

    A stray is a partition directory whose topic the metadata does not know. The node keeps it aside under a
    name that ends in -stray and says since when and why. Restore one after its metadata was repaired: a node
    that still does not know the topic puts it aside again.
    """
    found = {stray.name: stray for stray in strays_in(directory)}
    for name in (*removed, *restored):
        if name not in found:
            raise click.UsageError(
                f"there is no stray {name!r} in {directory}; `headrace strays {directory}` lists them."
            )
    if not (removed or remove_all or restored):
        _list(directory, list(found.values()), as_json=as_json)
        return
    lock = _lock(directory)
    try:
        for name in restored:
            _restore(directory, found[name])
        doomed = list(found) if remove_all else list(removed)
        if doomed:
            confirm(f"Remove {count_text(len(doomed), 'stray')} of {directory} with all records?", yes=yes)
            for name in doomed:
                _remove(directory / name)
            note(f"{count_text(len(doomed), 'stray')} removed")
    finally:
        lock.release()


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
        click.echo(f"No strays in {directory}.")


def _moment(wall_ms: int | None) -> str | None:
    return (
        None
        if wall_ms is None
        else datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    )


def _restore(directory: Path, stray: Stray) -> None:
    target = directory / stray.original
    if target.exists():
        raise click.ClickException(f"{target} is there already; {stray.name} was left as it is.")
    (directory / stray.name).rename(target)
    note(f"{stray.name} is {stray.original} again")


def _remove(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
