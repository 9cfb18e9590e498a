"""`headrace dump`: shows the contents of log files, and verifies them."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from headrace.cli.options import json_option
from headrace.cli.terminal import count_text, note, say, say_lines
from headrace.server.log_check import check
from headrace.server.log_files import Damaged, kind_of, rows_of

VALUE_CHARACTERS_MAX = 200


@click.command("dump")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--records", "with_records", is_flag=True, help="Open the batches and show their records.")
@click.option("--verify", is_flag=True, help="Only report errors; exit code 1 if there are any.")
@json_option
def command(paths: tuple[Path, ...], with_records: bool, verify: bool, as_json: bool) -> None:
    """Show the files of a log: segments, indexes, producer snapshots, checkpoints.

    For a directory, show all such files below it. The files may be Headrace's or Kafka's. No broker needs to
    run, and nothing is changed.
    """
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise click.ClickException(f"{', '.join(map(str, paths))}: no log files found.")
    is_sound = (
        _verify(files, as_json=as_json)
        if verify
        else _show(files, with_records=with_records, as_json=as_json)
    )
    if not is_sound:
        click.get_current_context().exit(1)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        if kind_of(path) is None:
            raise click.ClickException(
                f"{path} does not have the name of a log file, such as 00000000000000000000.log."
            )
        yield path
        return
    for file in sorted(path.rglob("*")):
        if file.is_file() and kind_of(file) is not None:
            yield file


def _verify(files: list[Path], *, as_json: bool) -> bool:
    faults = 0
    for file in files:
        for fault in check(file):
            faults += 1
            if as_json:
                say(json.dumps({"file": str(fault.path), "fault": fault.what}))
            else:
                say(f"{fault.path}: {fault.what}")
    if faults or as_json:
        note(f"{count_text(len(files), 'file')} checked, {count_text(faults, 'error')}")
    else:
        say(f"{count_text(len(files), 'file')} checked, no errors")
    return faults == 0


def _show(files: list[Path], *, with_records: bool, as_json: bool) -> bool:
    is_sound = True
    for number, file in enumerate(files):
        if not as_json:
            if number:
                say()
            say(str(file), bold=True)
        try:
            for row in rows_of(file, with_records=with_records):
                if as_json:
                    say(json.dumps({"file": str(file)} | row, default=_as_json))
                else:
                    say_lines(_line(row))
        except Damaged as error:
            is_sound = False
            if as_json:
                say(json.dumps({"file": str(file), "fault": str(error)}))
            else:
                say(f"{file}: {error}", err=True)
    return is_sound


def _as_json(value: Any) -> Any:
    assert isinstance(value, bytes)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _line(row: dict[str, Any]) -> str:
    """One row as `name value` words, its records indented below it."""
    words = [f"{name.replace('_', ' ')} {_word(value)}" for name, value in row.items() if name not in _SILENT]
    if row.get("valid") is False:
        words.append("INVALID")
    lines = ["  " + ", ".join(words)]
    lines += ["  " + _line(record) for record in row.get("records", ())]
    return "\n".join(lines)


_SILENT = {"records", "valid"}


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        text = repr(value)[1:]
        return (
            text
            if len(text) <= VALUE_CHARACTERS_MAX
            else f"{text[:VALUE_CHARACTERS_MAX]}… ({len(value)} bytes)"
        )
    if isinstance(value, list):
        return "[" + ", ".join(f"{name}={_word(data)}" for name, data in value) + "]"
    return str(value)
