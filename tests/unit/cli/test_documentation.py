"""Every command and every option that users type is in docs/cli.md, and the README's commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from headrace.cli.main import COMMANDS, headrace

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "cli.md").read_text()
EVERYWHERE = {"--help", "--json", "--bootstrap", "--timeout"}


def commands() -> list[tuple[str, click.Command]]:
    context = click.Context(headrace)
    found: list[tuple[str, click.Command]] = []
    for name in COMMANDS:
        command = headrace.get_command(context, name)
        assert command is not None
        inner = command.commands.items() if isinstance(command, click.Group) else ()
        found += [(f"{name} {word}", sub) for word, sub in inner] or [(name, command)]
    return found


@pytest.mark.parametrize(
    ("name", "command"), commands(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_command_and_its_options_are_on_the_page(name: str, command: click.Command) -> None:
    assert f"headrace {name}" in PAGE
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            longest = max(parameter.opts, key=len)
            short = {option for option in parameter.opts if not option.startswith("--")}
            known = longest in EVERYWHERE or longest in PAGE or any(f"{s} " in PAGE for s in short)
            assert known, f"headrace {name} {longest}"


def test_the_readme_names_only_commands_that_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    for word in re.findall(r"^\$ headrace ([a-z]+)", readme, re.MULTILINE):
        assert word in COMMANDS
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([a-z]+)", readme, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for page in re.findall(r"\]\((docs/[^)]+)\)", readme):
        assert (ROOT / page).exists(), page
