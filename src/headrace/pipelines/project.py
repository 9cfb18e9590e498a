"""The project file `spark-pipeline.yml`: its fields, its definition files and the settings of our runner.

`spark-pipelines` rejects fields that it does not know, so the runner's own settings are entries of
`configuration`, and of a flow's `spark_conf`, that begin with `headrace.`:

    headrace.trigger      once (until caught up), continuous, or an interval such as 10 seconds
    headrace.refresh      how often materialized views are computed again in a long run
    headrace.max.offsets  the largest micro-batch of a flow, in records
    headrace.output.mode  append, update or complete
    headrace.once         true: a flow without streams that runs one time
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.pipelines.errors import ProjectError

FILE_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
FIELDS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
PREFIX = "headrace."
SETTINGS = (
    "headrace.trigger",
    "headrace.refresh",
    "headrace.max.offsets",
    "headrace.output.mode",
    "headrace.once",
)
MODES = ("append", "update", "complete")
REFRESH_S = 60.0

_UNITS_S = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "s": 1.0, "m": 60.0, "h": 3600.0, "ms": 0.001}
_INTERVAL = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|second|minute|hour)s?")


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a flow runs: once until it is caught up, all the time, or at an interval."""

    kind: str  # once, continuous, every
    interval_s: float = 0.0

    def __str__(self) -> str:
        return f"every {self.interval_s:g} s" if self.kind == "every" else self.kind


ONCE = Trigger("once")


@dataclass(frozen=True, slots=True)
class FlowSettings:
    trigger: Trigger = ONCE
    refresh_s: float = REFRESH_S
    offsets_per_trigger_max: int | None = None
    output_mode: str = "append"
    is_once: bool = False


@dataclass(frozen=True, slots=True)
class Project:
    file: Path
    name: str
    storage: Path
    configuration: Mapping[str, str]
    patterns: tuple[str, ...]

    @property
    def root(self) -> Path:
        return self.file.parent

    @property
    def spark_settings(self) -> dict[str, str]:
        return {name: text for name, text in self.configuration.items() if not name.startswith(PREFIX)}

    def flow_settings(self, conf: Mapping[str, str], trigger: Trigger | None = None) -> FlowSettings:
        """Return the settings of a flow: its own win over the command's, and those over the project's."""
        common = read_settings(self.configuration, str(self.file))
        told = {} if trigger is None else {"trigger": trigger}
        return FlowSettings(**{**common, **told, **read_settings(conf, "spark_conf")})

    def definition_files(self) -> list[Path]:
        """Return the Python and SQL files in the order of their names."""
        found: set[Path] = set()
        for pattern in self.patterns:
            wide = pattern + "/*" if pattern.endswith("/**") else pattern
            matching = [path for path in self.root.glob(wide) if path.is_file()]
            found.update(path for path in matching if "__pycache__" not in path.parts)
        for path in sorted(found):
            if path.suffix not in (".py", ".sql"):
                raise ProjectError(
                    f"{path}: a definition file ends with .py or .sql; move this one out of the "
                    "directories that `libraries` names"
                )
        if not found:
            shown = ", ".join(self.patterns) or "nothing"
            raise ProjectError(f"{self.file}: no definition file; `libraries` matches {shown}")
        return sorted(found)


def find_project(start: Path) -> Path:
    """Return the project file in this directory or the nearest one above."""
    if start.is_file():
        return start
    for directory in (start, *start.parents):
        for name in FILE_NAMES:
            if (directory / name).is_file():
                return directory / name
    raise ProjectError(
        f"there is no {FILE_NAMES[0]} in {start} or above; `headrace pipeline init NAME` makes a project"
    )


def load_project(file: Path) -> Project:
    import yaml

    try:
        read = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark is not None else str(file)
        raise ProjectError(f"{where}: not YAML: {getattr(error, 'problem', error)}") from None
    return parse_project(read, file.resolve())


def parse_project(read: Any, file: Path) -> Project:
    if not isinstance(read, dict):
        raise ProjectError(f"{file}: must be a mapping with the fields name, storage and libraries")
    for field in read:
        if field not in FIELDS:
            raise ProjectError(f"{file}: unknown field {field}{_hint(str(field), FIELDS)}")
    for field in ("name", "storage"):
        if not isinstance(read.get(field), str) or not read[field]:
            raise ProjectError(f"{file}: the field {field} is missing")
    configuration = read.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise ProjectError(f"{file}: configuration must be a mapping of names to texts")
    for name, text in configuration.items():
        if not isinstance(text, str):
            raise ProjectError(f'{file}: configuration: {name}={text}: must be a text; write "{text}"')
    read_settings(configuration, str(file))
    return Project(
        file,
        read["name"],
        storage_path(read["storage"], file),
        configuration,
        tuple(_pattern(entry, file) for entry in read.get("libraries") or []),
    )


def _pattern(entry: Any, file: Path) -> str:
    include = entry.get("glob", {}).get("include") if isinstance(entry, dict) else None
    if not isinstance(include, str):
        raise ProjectError(f"{file}: libraries: write `- glob: {{include: transformations/**}}`")
    stem = include.removesuffix("/**")
    if any(mark in stem for mark in "*?["):
        raise ProjectError(
            f"{file}: libraries: {include}: name a file, or a directory that ends with /**; Spark takes "
            "no other patterns"
        )
    return include


def storage_path(text: str, file: Path) -> Path:
    where = urlsplit(text)
    if where.scheme not in ("", "file"):
        raise ProjectError(
            f"{file}: storage={text}: must be a directory of a local file system, as /path or file:///path"
        )
    return (file.parent / unquote(where.path)).resolve()


def read_settings(conf: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return the arguments of FlowSettings that these settings hold."""
    found: dict[str, Any] = {}
    for key, text in conf.items():
        if not key.startswith(PREFIX):
            continue
        if key not in SETTINGS:
            raise ProjectError(f"{where}: unknown setting {key}{_hint(key, SETTINGS)}")
        match key.removeprefix(PREFIX):
            case "trigger":
                found["trigger"] = parse_trigger(text)
            case "refresh":
                found["refresh_s"] = parse_interval(text)
            case "max.offsets":
                if not text.isdecimal() or int(text) < 1:
                    raise ProjectError(f"{where}: {key}={text}: must be a whole number, at least 1")
                found["offsets_per_trigger_max"] = int(text)
            case "output.mode":
                if text not in MODES:
                    raise ProjectError(f"{where}: {key}={text}: must be {', '.join(MODES)}")
                found["output_mode"] = text
            case "once":
                found["is_once"] = text.lower() == "true"
    return found


def parse_trigger(text: str) -> Trigger:
    if text in ("once", "continuous"):
        return Trigger(text)
    return Trigger("every", parse_interval(text))


def parse_interval(text: str) -> float:
    read = _INTERVAL.fullmatch(text.strip().lower().removeprefix("every "))
    if read is None:
        raise ProjectError(f"{text!r} is not an interval; write once, continuous, 10 seconds or 5 minutes")
    return float(read[1]) * _UNITS_S[read[2]]


def _hint(name: str, known: tuple[str, ...]) -> str:
    likely = get_close_matches(name, known, 1, 0.8)
    return f"; did you mean {likely[0]}?" if likely else f"; known are {', '.join(known)}"
