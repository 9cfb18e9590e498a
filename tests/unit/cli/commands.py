"""All commands of the command line, and an address where no broker is."""

from __future__ import annotations

import click

from headrace.cli.main import COMMANDS, headrace

NOWHERE = "127.0.0.1:1"  # a port that nobody listens on


def all_commands() -> list[tuple[str, ...]]:
    context = click.Context(headrace)
    return [words for name in COMMANDS for words in _below((name,), headrace.get_command(context, name))]


def _below(words: tuple[str, ...], command: click.Command | None) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [words]
    inner = command.commands.items()
    return [words, *(found for name, each in inner for found in _below((*words, name), each))]


GROUPS = (
    ("topic",),
    ("group",),
    ("config",),
    ("acl",),
    ("user",),
    ("quota",),
    ("token",),
    ("tenant",),
    ("lake",),
    ("pipeline",),
    ("jobs",),
    ("cluster",),
    ("cluster", "sinks"),
    ("schema",),
)
