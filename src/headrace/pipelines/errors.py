"""Errors of declared pipelines: what is wrong with a project, its graph or a case."""

from typing import NamedTuple


class Place(NamedTuple):
    """Where something is defined."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Problem(NamedTuple):
    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class ProjectError(ValueError):
    """The project cannot be used; the message says what is wrong, where, and what to do."""


class InvalidPipeline(ProjectError):
    """The graph has problems; each names the file and line of an element."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def is_from_spark(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "pyspark"


def short_message(error: BaseException) -> str:
    """The first lines of an error of Spark, without its plans and traces."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    kept = []
    for line in lines[:4]:
        if line.startswith(("'", "+-", ":-", "JVM stacktrace", "\tat ", "== SQL ==")):
            break
        kept.append(line.strip())
    return " ".join(one for one in kept if one)
