"""Options of a job, read one by one: each has a type, and one that nobody reads is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headrace.base.quantities import NotAQuantity, parse_duration_ms, parse_size
from headrace.jobs.errors import WrongJobs


class Options:
    def __init__(self, where: str, given: Mapping[str, Any], directory: Path) -> None:
        """`where` begins every message; relative paths are below `directory`."""
        self.where = where
        self._given = given
        self._directory = directory
        self._known: list[str] = []

    def wrong(self, name: str, what: str) -> WrongJobs:
        shown = self._given.get(name)
        return WrongJobs(f"{self.where}: {name}{'' if shown is None else f': {shown}'}: {what}")

    def _read(self, name: str) -> Any:
        self._known.append(name)
        return self._given.get(name)

    def optional(self, name: str) -> str | None:
        value = self._read(name)
        if value is None:
            return None
        if isinstance(value, bool | list | dict):
            raise self.wrong(name, "must be a text")
        return str(value)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.optional(name)
        if value is None:
            value = default
        if not value:
            raise WrongJobs(f"{self.where}: the option {name} is missing")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise self.wrong(name, f"must be {' or '.join(choices)}")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._read(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "must be true or false")
        return value

    def number(self, name: str, default: int | None, *, minimum: int = 1) -> int | None:
        """A plain number, or 1M, 64KiB."""
        value = self._read(name)
        if value is None:
            return default
        try:
            count = parse_size(str(value))
        except NotAQuantity as error:
            raise self.wrong(name, str(error)) from None
        if isinstance(value, bool) or count < minimum:
            raise self.wrong(name, f"must be at least {minimum}")
        return count

    def duration_s(self, name: str, default: str) -> float:
        value = self.text(name, default)
        try:
            return parse_duration_ms(value) / 1000
        except NotAQuantity as error:
            raise self.wrong(name, str(error)) from None

    def path(self, name: str) -> Path:
        return self._directory / self.text(name)

    def optional_path(self, name: str) -> Path | None:
        value = self.optional(name)
        return None if value is None else self._directory / value

    def texts(self, name: str) -> tuple[str, ...]:
        """One text, or a list of texts."""
        value = self._read(name)
        if value is None:
            return ()
        found = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str | int) and not isinstance(one, bool) for one in found):
            raise self.wrong(name, "must be a text or a list of texts")
        return tuple(map(str, found))

    def finish(self) -> None:
        for name in self._given:
            if name not in self._known:
                likely = get_close_matches(str(name), self._known, 1)
                hint = (
                    f"did you mean {likely[0]}?" if likely else f"known are {', '.join(sorted(self._known))}"
                )
                raise WrongJobs(f"{self.where}: unknown option {name}; {hint}")
