"""A settings file: TOML, or Kafka's `server.properties`, read into a flat dict of Kafka's key names.

In TOML, tables are joined with dots, so `[log.retention]` with `hours = 24` is `log.retention.hours=24`;
lists become comma-separated. An error names the file and the line, or `--set` for a value of the command
line. An unknown key is accepted with a warning that suggests the closest name.
"""

import os
import re
import socket
from collections.abc import Iterable
from typing import Any

from headrace.base.secret import HIDDEN
from headrace.base.values import Value
from headrace.machines.configs.values import InvalidConfig
from headrace.node.settings import Settings
from headrace.server.config_providers import CannotResolve, resolve
from headrace.server.secret_files import is_secret, readable_by_others, secret_files

_TOML_LINE = re.compile(r"\(at line (\d+)")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class WrongSettings(Exception):
    """The file cannot be used; the message says where and why."""


class SettingsFile(Value):
    settings: Settings
    warnings: list[str]
    open_files: list[str]  # with secrets, which other users can read


def read_settings(path: str | os.PathLike[str], overrides: dict[str, str] | None = None) -> SettingsFile:
    """The settings of a file with `overrides`; refuses wrong values and returns warnings of unknown keys."""
    path = os.fspath(path)
    overrides = overrides or {}
    written, lines = read_values(path)
    try:
        values, literals, files = resolve(written, _read_properties)
    except CannotResolve as error:
        raise WrongSettings(f"{_at(path, lines, named_key(str(error), written))}: {error}") from None

    def origin(name: str) -> str:
        return f"--set {name}" if name in overrides else _at(path, lines, name)

    try:
        told = {name: text for name, text in literals.items() if name not in overrides}
        settings = Settings.parse(values | overrides, own_names=_own_names(), literals=told)
    except InvalidConfig as error:
        message = _without_secrets(str(error), values | overrides, literals)
        name = named_key(message, values | overrides)
        if name in overrides:
            raise WrongSettings(option_error(name, message)) from None
        raise WrongSettings(f"{_at(path, lines, name)}: {message}") from None
    warnings = []
    for name, meant in settings.unknown.items():
        suggestion = f"; did you mean {meant}?" if meant else ""
        warnings.append(f"{origin(name)}: unknown setting {name}{suggestion}")
    open_files = readable_by_others(secret_files(path, written, files))
    return SettingsFile(settings, warnings, open_files)


def _without_secrets(message: str, values: dict[str, str], literals: dict[str, str]) -> str:
    for name, value in values.items():
        if value and value in message and (name in literals or is_secret(name)):
            message = message.replace(value, HIDDEN)
    return message


def _read_properties(path: str, text: str) -> dict[str, str]:
    """A file of secrets, which is always in Java's format."""
    return _from_properties(path, text, {})


def named_key(message: str, names: Iterable[str]) -> str:
    """The setting that an error is about: the one that it begins with, or else the longest that it names.

    The longest, because log.dir is in log.dirs too.
    """
    found = sorted((name for name in names if name in message), key=len, reverse=True)
    return next((name for name in found if message.startswith(name)), found[0] if found else "")


def option_error(name: str, message: str) -> str:
    """An error in `--set NAME=…`, which names the setting once."""
    return f"--set {message}" if message.startswith(name) else f"--set {name}: {message}"


def _own_names() -> frozenset[str]:
    name = socket.gethostname().lower()
    return frozenset((name, name.partition(".")[0]))


def read_values(path: str) -> tuple[dict[str, str], dict[str, int]]:
    """What a file says, unchecked: values by name, and in which line of it each was found."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise WrongSettings(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise WrongSettings(f"{path}: not UTF-8 at byte {error.start}") from None
    lines: dict[str, int] = {}
    read = _from_toml if path.endswith(".toml") else _from_properties
    return read(path, text, lines), lines


def _at(path: str, lines: dict[str, int], name: str) -> str:
    line = lines.get(name)
    return f"{path}:{line}" if line else path


# --- TOML -----------------------------------------------------------------------------------------------


def _from_toml(path: str, text: str, lines: dict[str, int]) -> dict[str, str]:
    import tomllib

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _TOML_LINE.search(str(error))
        where = f"{path}:{at[1]}" if at else path
        raise WrongSettings(f"{where}: {error}") from None
    values: dict[str, str] = {}
    _flatten(path, "", tree, values)
    for name in values:
        lines[name] = _line_of(text, name)
    return values


def _flatten(path: str, prefix: str, tree: dict[str, Any], values: dict[str, str]) -> None:
    for key, value in tree.items():
        name = prefix + key
        if isinstance(value, dict):
            _flatten(path, name + ".", value, values)
            continue
        if name in values:
            raise WrongSettings(f"{path}: {name} is set twice")
        values[name] = _toml_text(path, name, value)


def _toml_text(path: str, name: str, value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case list() if all(isinstance(item, str | int | float) for item in value):
            return ",".join(_toml_text(path, name, item) for item in value)
        case _:
            raise WrongSettings(f"{path}: {name} must be a text, a number, true or false, or a list of those")


def _line_of(text: str, name: str) -> int:
    """The line where the key's last word stands before an equals sign; 0 when it is written in another
    way.
    """
    last = re.escape(name.rpartition(".")[2])
    found = re.search(rf"^[^#\n]*\b{last}[\"']?[ \t]*=", text, re.MULTILINE)
    return text.count("\n", 0, found.end()) + 1 if found else 0


# --- properties -----------------------------------------------------------------------------------------


def _from_properties(path: str, text: str, lines: dict[str, int]) -> dict[str, str]:
    """Java's format: `key=value`, `key: value` or `key value`; # and ! comment, a backslash at the end
    continues.
    """
    values: dict[str, str] = {}
    logical = ""
    began = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.lstrip(" \t\f")
        if not logical:
            if not stripped or stripped[0] in "#!":
                continue
            began = number
        body = stripped
        trailing = len(body) - len(body.rstrip("\\"))
        if trailing % 2:
            logical += body[:-1]
            continue
        name, value = _split_property(path, began, logical + body)
        logical = ""
        values[name] = value
        lines[name] = began
    return values


def _split_property(path: str, line: int, text: str) -> tuple[str, str]:
    position = 0
    while position < len(text) and text[position] not in "=: \t\f":
        position += 2 if text[position] == "\\" else 1
    name = _unescape(path, line, text[:position])
    rest = text[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    if not name:
        raise WrongSettings(f"{path}:{line}: the line has a value without a key")
    return name, _unescape(path, line, rest).rstrip()


def _unescape(path: str, line: int, text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                raise WrongSettings(f"{path}:{line}: \\u{digits} is not a character")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)
