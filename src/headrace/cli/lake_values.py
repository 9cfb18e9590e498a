"""Options of `headrace lake enable` for tables with typed columns."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from headrace.lake.table import LakeTable, Snapshot
    from headrace.lake.typed_rows import TypedRows
    from headrace.lake.values import ValueFormat

F = TypeVar("F", bound=Callable[..., Any])


def typed_options(function: F) -> F:
    """--values, --schema, --message, --keep-values, --dead-letters and --upsert."""
    format = click.option(
        "--values",
        "format",
        type=click.Choice(["json", "avro", "protobuf", "registry"]),
        help="Make a column of each field of the values, which are of this format. registry: each value "
        "begins with the id of its schema.",
    )
    schema = click.option(
        "--schema",
        "schema_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="With --values json, avro or protobuf: the schema of the values.",
    )
    message = click.option(
        "--message", help="With a Protobuf schema that has several messages: the name of one."
    )
    keep = click.option(
        "--keep-values", is_flag=True, help="With --values: also keep the bytes, in the column _value."
    )
    dead_letters = click.option(
        "--dead-letters",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIRECTORY",
        help="With --values: table for records that cannot be rows. Without it, such a record is an error.",
    )
    upsert = click.option(
        "--upsert",
        is_flag=True,
        help="One row for each key, its newest record; a tombstone removes it. For compacted topics.",
    )
    return format(schema(message(keep(dead_letters(upsert(function))))))


def value_format(
    format: str | None, schema_file: Path | None, message: str | None, *, keeps_value: bool
) -> "ValueFormat | None":
    """Return what the options say; None: the table has the values' bytes."""
    if format is None:
        if schema_file is not None or message is not None or keeps_value:
            raise click.UsageError("--schema, --message and --keep-values need --values.")
        return None
    if format == "registry" and schema_file is not None:
        raise click.UsageError("--values registry takes the schemas from the registry: leave --schema out.")
    if format != "registry" and schema_file is None:
        raise click.UsageError(
            f"--values {format} needs --schema FILE. If the values have ids of schemas in a registry, use "
            "--values registry."
        )
    from headrace.lake.values import ValueFormat

    text = None if schema_file is None else schema_file.read_text(encoding="utf-8")
    return ValueFormat(format, text, message, keeps_value)


def typed_rows(place: "LakeTable", snapshot: "Snapshot", registry: str) -> "TypedRows | None":
    from headrace.lake.dead_letters import dead_letters_of
    from headrace.lake.typed_rows import TypedRows, table_decoder

    decoder = table_decoder(snapshot, registry)
    return None if decoder is None else TypedRows(place, decoder, dead_letters_of(place, snapshot))
