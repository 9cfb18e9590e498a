"""SQL definition files: statements, the elements that they define, and the tables that a query reads.

Spark's own server parses these files for `spark-pipelines run`. Our runner needs their headers only; queries
go to Spark as they are, but without the word STREAM, since the runner decides how a dataset is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from headrace.pipelines.errors import InvalidPipeline, Place, Problem

_NAME = r"`?(?:[\w]+`?\.`?)*(?P<name>[\w]+)`?"
_HEADER = re.compile(
    rf"CREATE\s+(?:OR\s+REFRESH\s+)?(?P<kind>STREAMING\s+TABLE|MATERIALIZED\s+VIEW|TEMPORARY\s+VIEW)\s+"
    rf"(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}\s*(?:USING\s+(?P<format>\w+)\s*)?(?:COMMENT\s+'[^']*'\s*)?"
    r"(?:AS\s+(?P<query>.+))?",
    re.IGNORECASE | re.DOTALL,
)
_FLOW = re.compile(
    r"CREATE\s+FLOW\s+`?(?P<flow>\w+)`?\s+(?:COMMENT\s+'[^']*'\s*)?AS\s+INSERT\s+INTO\s+(?:TABLE\s+)?"
    rf"{_NAME}\s+BY\s+NAME\s+(?P<query>.+)",
    re.IGNORECASE | re.DOTALL,
)
_READ = re.compile(r"\b(?:FROM|JOIN)\s+(STREAM\b\s*\(?\s*)?((?:`?\w+`?\.)*`?\w+`?)", re.IGNORECASE)
_STREAM = re.compile(
    r"\b(FROM|JOIN)(\s+)STREAM(?:\s*\(\s*((?:`?\w+`?\.)*`?\w+`?)\s*\)|\s+(?=[`\w]))", re.IGNORECASE
)
# FROM inside a function or an operator: extract(YEAR FROM t), trim(BOTH ' ' FROM t), a IS DISTINCT FROM b
_NO_TABLE = re.compile(
    r"\b(?:extract|trim|substring|overlay)\s*\([^()]*?\bFROM\b|\bDISTINCT\s+FROM\b", re.IGNORECASE
)
_CTE = re.compile(r"(?:\bWITH|,)\s+(\w+)\s+AS\s*\(", re.IGNORECASE)
# Parts that may hold a semicolon or a word that is not SQL.
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)

KINDS = {
    "streaming table": "table",
    "materialized view": "materialized view",
    "temporary view": "temporary view",
}


class Statement(NamedTuple):
    kind: str  # table, materialized view, temporary view, flow
    name: str
    target: str
    query: str | None
    format: str | None
    place: Place


def statements(text: str, file: str) -> list[Statement]:
    """Return the elements of a file; raise InvalidPipeline for a statement that defines none."""
    found = []
    for sql, line in _split(text):
        place = Place(file, line)
        flow, element = _FLOW.fullmatch(sql), _HEADER.fullmatch(sql)
        if flow is not None:
            found.append(Statement("flow", flow["flow"], flow["name"], flow["query"], None, place))
        elif element is not None:
            kind = KINDS[" ".join(element["kind"].lower().split())]
            name = element["name"]
            found.append(Statement(kind, name, name, element["query"], element["format"], place))
        else:
            first = " ".join(sql.split()[:4])
            raise InvalidPipeline(
                [
                    Problem(
                        place,
                        f"{first} …: not supported here; write CREATE STREAMING TABLE, MATERIALIZED VIEW, "
                        "TEMPORARY VIEW or FLOW",
                    )
                ]
            )
    return found


def _split(text: str) -> Iterator[tuple[str, int]]:
    """Statements without comments, with the lines on which they begin."""
    blank = _QUOTED.sub(_without_comment, text)
    masked = re.sub(r"'[^']*'|\"[^\"]*\"", lambda found: "x" * len(found[0]), blank)
    start = 0
    for end in [*(found.start() for found in re.finditer(";", masked)), len(blank)]:
        sql = blank[start:end]
        if sql.strip():
            begin = start + len(sql) - len(sql.lstrip())
            yield sql.strip(), blank.count("\n", 0, begin) + 1
        start = end + 1


def _without_comment(found: re.Match[str]) -> str:
    """Blanks for a comment, so that lines keep their numbers."""
    if found[0].startswith(("--", "/*")):
        return re.sub(r"[^\n]", " ", found[0])
    return found[0]


def tables_of(query: str) -> list[tuple[str, bool]]:
    """The tables that a query names after FROM and JOIN, and whether it reads them as streams."""
    masked = _NO_TABLE.sub(" ", _QUOTED.sub(" ", query))
    own = {name.lower() for name in _CTE.findall(masked)}
    found: list[tuple[str, bool]] = []
    for stream, identifier in _READ.findall(masked):
        name = identifier.replace("`", "").rpartition(".")[2]
        if name.lower() not in own and (name, bool(stream)) not in found:
            found.append((name, bool(stream)))
    return found


def without_stream(query: str) -> str:
    """The query that reads every dataset as it is given."""
    parts, end = [], 0
    for quoted in [*_QUOTED.finditer(query), None]:
        start = len(query) if quoted is None else quoted.start()
        parts.append(_STREAM.sub(lambda found: found[1] + found[2] + (found[3] or ""), query[end:start]))
        if quoted is not None:
            parts.append(quoted[0])
            end = quoted.end()
    return "".join(parts)
