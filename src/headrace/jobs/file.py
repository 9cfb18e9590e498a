"""The file of `headrace jobs serve`: YAML or TOML that declares jobs with kind, schedule and options.

    jobs:
      copy-clicks:
        kind: replay
        schedule: continuous
        source: clicks
        target: clicks-copy

Everything is checked before a runner starts: kinds, schedules and the options of each kind.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from headrace.base.extras import require
from headrace.base.quantities import NotAQuantity, parse_duration_ms
from headrace.jobs.errors import WrongJobs
from headrace.jobs.options import Options
from headrace.machines.jobs.schedule import Schedule, parse_schedule

DEFAULT_TOPIC: Final = "headrace-jobs"
DEFAULT_PARTITIONS: Final = 8  # by which jobs are shared out to runners
DEFAULT_TAKEOVER: Final = "10s"  # Kafka's brokers take 6 s and more
# A list of names, and a directory of reports, stay readable.
JOBS_MAX: Final = 1_000

# kind → the module with `parse` and `run`
KINDS: Final = {
    "replay": "headrace.jobs.kinds.replay",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FIELDS: Final = ("topic", "group", "partitions", "takeover", "jobs")


@dataclass(frozen=True, slots=True)
class Definition:
    name: str
    kind: str
    schedule: Schedule
    options: Mapping[str, Any]
    directory: Path  # of the file: relative paths begin there

    @property
    def digest(self) -> str:
        """Another one if the definition changes."""
        text = json.dumps([self.kind, str(self.schedule), self.options], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class JobsFile:
    topic: str
    group: str
    partitions: int
    takeover_ms: int
    jobs: Mapping[str, Definition]

    @property
    def cursors(self) -> str:
        """The topic in which copies keep how far they are."""
        return cursors_of(self.topic)


def cursors_of(topic: str) -> str:
    return f"{topic}-cursors"


def module_of(kind: str) -> ModuleType:
    return import_module(KINDS[kind])


def load_jobs(path: Path) -> JobsFile:
    """WrongJobs says what is wrong with the file, and where."""
    return parse_jobs(_read(path), path)


def _read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise WrongJobs(f"{path}: not TOML: {error}") from None
    if path.suffix not in (".yml", ".yaml"):
        raise WrongJobs(f"{path}: a file of jobs ends with .yml, .yaml or .toml")
    require("yaml", "a file of jobs in YAML")
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise WrongJobs(f"{where}: not YAML: {getattr(error, 'problem', error)}") from None


def parse_jobs(read: Any, path: Path) -> JobsFile:
    if not isinstance(read, dict) or not isinstance(read.get("jobs"), dict) or not read["jobs"]:
        raise WrongJobs(f"{path}: must be a mapping with the field jobs, which has at least one job")
    for field in read:
        if field not in _FIELDS:
            raise WrongJobs(f"{path}: unknown field {field}{_hint(str(field), _FIELDS)}")
    common = Options(str(path), read, path.parent)
    topic = common.text("topic", DEFAULT_TOPIC)
    partitions = common.number("partitions", DEFAULT_PARTITIONS)
    assert partitions is not None
    takeover = common.text("takeover", DEFAULT_TAKEOVER)
    try:
        takeover_ms = parse_duration_ms(takeover)
    except NotAQuantity as error:
        raise common.wrong("takeover", str(error)) from None
    if len(read["jobs"]) > JOBS_MAX:
        raise WrongJobs(f"{path}: {len(read['jobs'])} jobs; at most {JOBS_MAX} are served from one file")
    jobs = {str(name): _definition(str(name), one, path) for name, one in read["jobs"].items()}
    return JobsFile(topic, common.text("group", topic), partitions, takeover_ms, jobs)


def _definition(name: str, read: Any, path: Path) -> Definition:
    where = f"{path}: job {name}"
    if not _NAME.fullmatch(name):
        raise WrongJobs(f"{where}: a name has 1 to 100 letters, digits, dots, dashes and underscores")
    if not isinstance(read, dict):
        raise WrongJobs(f"{where}: must be a mapping with a kind, a schedule and options")
    options = {str(key): value for key, value in read.items()}
    kind, schedule = options.pop("kind", None), options.pop("schedule", None)
    if kind not in KINDS:
        told = "the kind is missing" if kind is None else f"unknown kind {kind}"
        raise WrongJobs(f"{where}: {told}{_hint(str(kind), tuple(KINDS))}")
    if schedule is None:
        raise WrongJobs(f"{where}: the schedule is missing; write on demand for a job that runs when asked")
    try:
        when = parse_schedule(str(schedule))
    except ValueError as error:
        raise WrongJobs(f"{where}: {error}") from None
    definition = Definition(name, kind, when, options, path.resolve().parent)
    parse_options(definition, where)
    return definition


def parse_options(definition: Definition, where: str) -> Any:
    """The options as the kind understands them."""
    options = Options(where, definition.options, definition.directory)
    parsed = module_of(definition.kind).parse(options)
    options.finish()
    return parsed


def _hint(name: str, known: tuple[str, ...]) -> str:
    likely = get_close_matches(name, known, 1)
    return f"; did you mean {likely[0]}?" if likely else f"; known are {', '.join(known)}"
