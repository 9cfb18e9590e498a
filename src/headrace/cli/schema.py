"""`headrace schema`: the subjects of a schema registry, Headrace's own or any with Confluent's REST API."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace.cli.completers import subjects as complete_subjects
from headrace.cli.confirmation import confirm, yes_option
from headrace.cli.options import KEY_VALUE, OneOf, json_option, registry_option, timeout_option
from headrace.cli.suggestions import closest
from headrace.cli.terminal import count_text, note, print_json, print_table, say, say_lines
from headrace.client.errors import InvalidInput
from headrace.schema_formats.schema import Reference, Schema, SchemaType
from headrace.schemas.errors import Incompatible, SchemaUnknown
from headrace.schemas.registry import Registered, Registry

F = TypeVar("F", bound=Callable[..., Any])

TYPES = {"avro": SchemaType.AVRO, "json": SchemaType.JSON, "protobuf": SchemaType.PROTOBUF}
TYPES_BY_ENDING = {".avsc": SchemaType.AVRO, ".json": SchemaType.JSON, ".proto": SchemaType.PROTOBUF}
LEVELS = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)


def registry_options(function: F) -> F:
    """--registry, --timeout and --json."""
    return registry_option(timeout_option(json_option(function)))


def schema_options(function: F) -> F:
    """FILE with a schema, --type and --reference."""
    reference = click.option(
        "--reference",
        "-r",
        "references",
        type=KEY_VALUE,
        multiple=True,
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one refers to as NAME; may be repeated.",
    )
    kind = click.option(
        "--type",
        "-t",
        "kind",
        type=OneOf(*TYPES),
        help="Type of the schema.  [default: by the file's extension .avsc, .json or .proto]",
    )
    file = click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
    return file(kind(reference(function)))


@click.group("schema")
def command() -> None:
    """List, show, register, check and delete schemas of a registry.

    The registry is --registry, else $HEADRACE_REGISTRY, else http://localhost:9644, where `headrace up`
    serves one.
    """


# --- list and show ---------------------------------------------------------------------------------------


@command.command("list")
@click.option("--deleted", is_flag=True, help="Also list subjects that were deleted, but not permanently.")
@registry_options
def list_subjects(deleted: bool, registry: str, timeout: float, as_json: bool) -> None:
    """List subjects with their newest versions.

    In a pipe it prints one subject per line.
    """
    client = Registry(registry, timeout_s=timeout)
    subjects = sorted(client.subjects(with_deleted=deleted))
    if not as_json and not sys.stdout.isatty():
        for subject in subjects:
            say(subject)
        return
    found = [_summary(client, subject, deleted=deleted) for subject in subjects]
    if as_json:
        print_json(found)
        return
    rows = [
        (one["subject"], one["type"], one["version"], one["id"], len(one["versions"]), _state_text(one))
        for one in found
    ]
    headings = ("SUBJECT", "TYPE", "VERSION", "ID", "VERSIONS", "STATE")
    print_table(headings, rows, right=("VERSION", "ID", "VERSIONS"))


def _summary(client: Registry, subject: str, *, deleted: bool) -> dict[str, Any]:
    """By its newest version, which may be one of those deleted."""
    versions = client.versions(subject, with_deleted=deleted)
    newest = client.version(subject, versions[-1])
    living = versions if not deleted else _living(client, subject)
    return {
        "subject": subject,
        "type": newest.schema.type.value,
        "version": newest.version,
        "id": newest.id,
        "versions": versions,
        "deleted": [version for version in versions if version not in living],
    }


def _living(client: Registry, subject: str) -> list[int]:
    try:
        return client.versions(subject)
    except SchemaUnknown:
        return []


def _state_text(summary: dict[str, Any]) -> str:
    deleted = len(summary["deleted"])
    if deleted == 0:
        return "-"
    return "deleted" if deleted == len(summary["versions"]) else f"{deleted} deleted"


@command.command()
@click.argument("subject", required=False, shell_complete=complete_subjects)
@click.option(
    "--version", "-v", type=click.IntRange(min=1), help="The version to show.  [default: the newest]"
)
@click.option("--id", "schema_id", type=click.IntRange(min=0), help="Show the schema with this id.")
@registry_options
def show(
    subject: str | None,
    version: int | None,
    schema_id: int | None,
    registry: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Print a schema: the newest of SUBJECT, one of its versions, or the one with an id.

    Only the schema goes to stdout, so that you can redirect it to a file.
    """
    if (subject is None) == (schema_id is None):
        raise click.UsageError("Give either SUBJECT or --id.")
    if schema_id is not None and version is not None:
        raise click.UsageError("--version cannot be used with --id: an id means one schema.")
    client = Registry(registry, timeout_s=timeout)
    if schema_id is not None:
        schema = client.schema(schema_id)
        if as_json:
            print_json({"id": schema_id} | _schema_as_json(schema))
        else:
            note(f"id {schema_id}, {schema.type}")
            _print_text(schema)
        return
    assert subject is not None
    with _suggesting(client, subject):
        versions = client.versions(subject)
        if version is not None and version not in versions:
            raise _no_version(subject, version, versions)
        found = client.version(subject, version or versions[-1])
    if as_json:
        level = client.level(subject)
        print_json(_as_json(found) | {"versions": versions, "compatibility": level})
        return
    note(
        f"{subject} version {found.version} of {_numbers_text(versions)}, id {found.id}, {found.schema.type}"
    )
    for name, needed, number in found.schema.references:
        note(f"refers to {name}: {needed} version {number}")
    _print_text(found.schema)


def _print_text(schema: Schema) -> None:
    """As it was registered; laid out for a person who looks at it."""
    text = schema.text.rstrip("\n")
    if sys.stdout.isatty() and schema.type is not SchemaType.PROTOBUF:
        with suppress(ValueError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    say_lines(text)


def _check_version(subject: str, version: int | None, versions: list[int]) -> None:
    if version is not None and version not in versions:
        raise _no_version(subject, version, versions)


def _no_version(subject: str, version: int, versions: list[int]) -> InvalidInput:
    return InvalidInput(
        f"subject {subject!r} has no version {version}: it has versions {_numbers_text(versions)}"
    )


def _numbers_text(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _as_json(found: Registered) -> dict[str, Any]:
    return {"subject": found.subject, "version": found.version, "id": found.id} | _schema_as_json(
        found.schema
    )


def _schema_as_json(schema: Schema) -> dict[str, Any]:
    return {
        "type": schema.type.value,
        "schema": schema.text,
        "references": [reference._asdict() for reference in schema.references],
    }


# --- register and check ----------------------------------------------------------------------------------


@command.command()
@click.argument("subject", shell_complete=complete_subjects)
@schema_options
@registry_options
def register(
    subject: str,
    file: str,
    kind: str | None,
    references: tuple[tuple[str, str], ...],
    registry: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Register the schema in FILE (- is stdin) as a new version of SUBJECT.

    A schema that the subject has already keeps its version and id.

    Example: headrace schema register clicks-value click.avsc
    """
    schema = _read(file, kind, references)
    client = Registry(registry, timeout_s=timeout)
    is_new = False
    try:
        found = client.find(subject, schema)
    except SchemaUnknown:
        is_new = True
        found = _registered(client, subject, schema)
    if as_json:
        print_json({"subject": subject, "version": found.version, "id": found.id, "created": is_new})
    else:
        done = "registered" if is_new else "exists already:"
        say(f"{done} {subject} version {found.version} with id {found.id}")


def _registered(client: Registry, subject: str, schema: Schema) -> Registered:
    try:
        return client.register_version(subject, schema)
    except Incompatible as error:
        reasons = "".join(f"  {reason}\n" for reason in client.obstacles(subject, schema))
        refused = Incompatible(
            error.code,
            f"the schema is not compatible with {subject} under level {client.level(subject)}",
        )
        refused.advice = (
            f"{reasons}Change the schema, or the level with `headrace schema level {subject} --set LEVEL`."
        )
        raise refused from error


@command.command()
@click.argument("subject", shell_complete=complete_subjects)
@schema_options
@click.option("--version", "-v", type=click.IntRange(min=1), help="Compare with this version only.")
@registry_options
def check(
    subject: str,
    file: str,
    kind: str | None,
    references: tuple[tuple[str, str], ...],
    version: int | None,
    registry: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Say whether the schema in FILE could be registered, and if not, why.

    Exit code 1 if it could not. Nothing is registered.
    """
    schema = _read(file, kind, references)
    client = Registry(registry, timeout_s=timeout)
    with _suggesting(client, subject):
        client.versions(subject)  # a misspelt subject has no versions, and everything would fit
        reasons = client.obstacles(subject, schema, version=version)
    level = client.level(subject)
    if as_json:
        print_json({"subject": subject, "compatible": not reasons, "level": level, "reasons": reasons})
    elif not reasons:
        say(f"compatible with {subject} under level {level}")
    else:
        say(f"not compatible with {subject} under level {level}:")
        for reason in reasons:
            say(f"  {reason}")
    if reasons:
        click.get_current_context().exit(1)


def _read(file: str, kind: str | None, references: tuple[tuple[str, str], ...]) -> Schema:
    if kind is not None:
        schema_type = TYPES[kind]
    elif (ending := Path(file).suffix.lower()) in TYPES_BY_ENDING:
        schema_type = TYPES_BY_ENDING[ending]
    else:
        where = "stdin" if file == "-" else file
        raise click.UsageError(f"{where}: give the type of the schema with --type: {', '.join(TYPES)}.")
    needed = tuple(_reference(name, where) for name, where in references)
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file} is not UTF-8 at byte {error.start}.") from None
    return Schema(text, schema_type, needed)


def _reference(name: str, where: str) -> Reference:
    subject, _, version = where.rpartition(":")
    if not subject or not version.isdecimal() or not version.isascii():
        raise click.BadParameter(
            f"{name}={where} is not of the form NAME=SUBJECT:VERSION", param_hint="--reference"
        )
    return Reference(name, subject, int(version))


# --- delete and level ------------------------------------------------------------------------------------


@command.command()
@click.argument("subject", shell_complete=complete_subjects)
@click.option("--version", "-v", type=click.IntRange(min=1), help="Only this version.")
@click.option(
    "--permanent", is_flag=True, help="Remove it permanently: records with its id may become unreadable."
)
@yes_option
@registry_options
def delete(
    subject: str,
    version: int | None,
    permanent: bool,
    yes: bool,
    registry: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Delete a subject, or one of its versions, after a confirmation.

    Without --permanent it is only hidden: new records cannot be written with it, and existing records can
    still be read.
    """
    client = Registry(registry, timeout_s=timeout)
    with _suggesting(client, subject):
        versions = client.versions(subject, with_deleted=permanent)
    _check_version(subject, version, versions)
    gone = versions if version is None else [version]
    how = " permanently" if permanent else ""
    confirm(f"Delete {count_text(len(gone), 'version')} of {subject}{how}?", yes=yes)
    if version is None:
        gone = client.delete(subject, permanently=permanent)
    else:
        client.delete_version(subject, version, permanently=permanent)
    if as_json:
        print_json({"subject": subject, "versions": gone, "permanent": permanent})
    else:
        say(f"deleted{how} {subject} {_versions_text(gone)}")


def _versions_text(versions: list[int]) -> str:
    return f"version{'' if len(versions) == 1 else 's'} {_numbers_text(versions)}"


@command.command()
@click.argument("subject", required=False, shell_complete=complete_subjects)
@click.option("--set", "wanted", type=OneOf(*LEVELS), help="Change it to this level.")
@registry_options
def level(subject: str | None, wanted: str | None, registry: str, timeout: float, as_json: bool) -> None:
    """Show or set the compatibility level of SUBJECT; without SUBJECT, the default level."""
    client = Registry(registry, timeout_s=timeout)
    if wanted is not None:
        client.set_level(wanted, subject)
    holds = client.level(subject)
    if as_json:
        print_json({"subject": subject, "level": holds})
    else:
        say(holds)


@contextmanager
def _suggesting(client: Registry, subject: str) -> Iterator[None]:
    try:
        yield
    except SchemaUnknown as error:
        meant = closest(subject, client.subjects())
        if meant is not None:
            error.advice = f"Did you mean {meant}? `headrace schema list` shows all."
        raise
