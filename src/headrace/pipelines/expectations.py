"""Expectations: conditions on the rows of a flow, and what happens to rows that do not meet them.

    expect          counts them            expect_or_drop   leaves them out
    expect_or_fail  ends the flow          expect_or_dead   writes the original record to a topic

A condition is SQL; null counts as not met. If a row does not meet several, the one nearest to the function
decides whether it is left out or becomes a dead letter. The decorators stand below those of
`pyspark.pipelines`. With `spark-pipelines run` they change the flow's query, and dead letters have a flow of
their own. Our runner takes the conditions, counts, and writes dead letters in the commit of the good rows if
the target is a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from headrace.schemas.dead_letters import (
    ATTEMPT,
    OFFSET,
    PARTITION,
    PREFIX,
    REASON,
    REASON_CHARACTERS_MAX,
    TIMESTAMP,
    TOPIC,
)

WARN, DROP, FAIL, DEAD = "warn", "drop", "fail", "dead"
RECORD = "_record"  # the original record, a column that `parse` adds
CORRUPT = "_corrupt_record"  # the text of a value that is not JSON, a column that `parse` adds
OWN_COLUMNS = (RECORD, CORRUPT)
OTHER_COLUMNS = f"`(?!(?:{'|'.join(OWN_COLUMNS)})$).*`"  # a pattern of names
HEADERS_TYPE = "ARRAY<STRUCT<key: STRING, value: BINARY>>"

Query = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Expectation:
    name: str
    condition: str
    action: str
    topic: str | None = None  # of dead letters
    options: Mapping[str, str] = field(default_factory=dict)  # of the sink of dead letters


def expect(name: str, condition: str) -> Callable[[Query], Query]:
    """Count rows that do not meet the condition, and keep them.

    :param name: names the condition in counts and messages.
    :param condition: SQL over the columns of the flow.
    """
    return _decorator(Expectation(name, condition, WARN))


def expect_or_drop(name: str, condition: str) -> Callable[[Query], Query]:
    """Leave out rows that do not meet the condition."""
    return _decorator(Expectation(name, condition, DROP))


def expect_or_fail(name: str, condition: str) -> Callable[[Query], Query]:
    """End the flow with an error at the first row that does not meet the condition."""
    return _decorator(Expectation(name, condition, FAIL))


def expect_or_dead(
    name: str, condition: str, *, topic: str, options: Mapping[str, str] | None = None
) -> Callable[[Query], Query]:
    """Write the original records of rows that do not meet the condition to a dead-letter topic.

    The flow needs the column `_record`, which `parse` adds; it is not written to the target.
    `headrace redrive` sends the records back after a fix.

    :param topic: the dead-letter topic.
    :param options: options of the sink, such as `kafka.bootstrap.servers`.
    """
    return _decorator(Expectation(name, condition, DEAD, topic, dict(options or {})))


def expectations_of(function: Query) -> tuple[Expectation, ...]:
    return tuple(getattr(function, "headrace_expectations", ()))


def plain_query(function: Query) -> Query:
    """The query as it was written, without the expectations."""
    plain: Query = getattr(function, "headrace_query", function)
    return plain


def _decorator(expectation: Expectation) -> Callable[[Query], Query]:
    def decorate(function: Query) -> Query:
        inner = expectations_of(function)
        expectations = (*inner, expectation)
        query = plain_query(function)

        @wraps(query)
        def checked() -> Any:
            return applied(query(), expectations)

        checked.headrace_expectations = expectations  # type: ignore[attr-defined]
        checked.headrace_query = query  # type: ignore[attr-defined]
        if expectation.action == DEAD:
            _register_dead_flow(query, inner, expectation)
        return checked

    return decorate


def applied(frame: Any, expectations: Sequence[Expectation]) -> Any:
    """The frame with the rows that go to the target."""
    condition = kept_condition(expectations)
    kept = frame if condition is None else frame.where(condition)
    # drop() would make the server analyze the plan at once, before it knows the datasets that it reads
    return kept.select(kept.colRegex(OTHER_COLUMNS))


def _register_dead_flow(query: Query, inner: Sequence[Expectation], expectation: Expectation) -> None:
    """For Spark's own runner; ours writes dead letters beside the good rows."""
    registry = _registry()
    if registry is None or getattr(registry, "takes_expectations", False):
        return
    from pyspark import pipelines

    name = f"{query.__name__}_{expectation.name}_dead"
    before = kept_condition([one for one in inner if one.action in (DROP, DEAD)])

    def dead() -> Any:
        rows = query()
        return dead_rows(rows if before is None else rows.where(before), [expectation])

    pipelines.create_sink(f"{name}_sink", "headrace", {**expectation.options, "topic": expectation.topic})
    pipelines.append_flow(target=f"{name}_sink", name=name)(dead)


def _registry() -> Any:
    """The registry that evaluates the file; None outside a pipeline."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.pipelines.graph_element_registry import get_active_graph_element_registry
    except ImportError:
        return None
    try:
        return get_active_graph_element_registry()
    except PySparkRuntimeError:
        return None


def dead_rows(frame: Any, expectations: Sequence[Expectation]) -> Any:
    """The dead letters of the frame, as rows of a sink."""
    written = written_condition(expectations)
    kept = frame if written is None else frame.where(written)
    return kept.where(f"NOT ({dead_condition(expectations)})").selectExpr(*dead_columns(expectations))


# --- SQL -------------------------------------------------------------------------------------------------


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def holds(expectation: Expectation) -> str:
    return f"coalesce(({expectation.condition}), false)"


def kept_condition(expectations: Sequence[Expectation]) -> str | None:
    """The condition for rows of the target; those of expect_or_fail are checked first."""
    parts = [_or_error(one) for one in expectations if one.action == FAIL]
    parts += [holds(one) for one in expectations if one.action in (DROP, DEAD)]
    return " AND ".join(parts) or None


def _or_error(expectation: Expectation) -> str:
    text = literal(f"expectation {expectation.name} is not met: {expectation.condition}")
    return f"CASE WHEN {holds(expectation)} THEN true ELSE CAST(raise_error({text}) AS BOOLEAN) END"


def written_condition(expectations: Sequence[Expectation]) -> str | None:
    """The condition for rows of the target and dead letters together; None if those are all rows."""
    parts = [_or_error(one) for one in expectations if one.action == FAIL]
    if any(one.action == DROP for one in expectations):
        deciding = [one for one in expectations if one.action in (DROP, DEAD)]
        fates = " ".join(
            f"WHEN NOT {holds(one)} THEN {'true' if one.action == DEAD else 'false'}" for one in deciding
        )
        parts.append(f"CASE {fates} ELSE true END")
    return " AND ".join(parts) or None


def dead_condition(expectations: Sequence[Expectation]) -> str:
    """True for rows that are not dead letters."""
    return " AND ".join(holds(one) for one in expectations if one.action == DEAD) or "true"


def count_columns(expectations: Sequence[Expectation]) -> list[str]:
    """How many rows do not meet each expectation, and how many there are."""
    counted = [f"count_if(NOT {holds(one)}) AS `{one.name.replace('`', '')}`" for one in expectations]
    return [*counted, "count(*) AS `_rows`"]


def reason(expectations: Sequence[Expectation]) -> str:
    said = " ".join(
        f"WHEN NOT {holds(one)} THEN {literal(f'{one.name}: {one.condition}'[:REASON_CHARACTERS_MAX])}"
        for one in expectations
        if one.action == DEAD
    )
    return f"CASE {said} END"


def dead_headers(expectations: Sequence[Expectation]) -> str:
    """The headers of a dead letter: those of the record, its origin, and the number of attempts."""
    held = f"coalesce({RECORD}.headers, CAST(array() AS {HEADERS_TYPE}))"
    earlier = f"CAST(get(filter({held}, h -> h.key = {literal(ATTEMPT)}), 0).value AS STRING)"
    facts = {
        REASON: reason(expectations),
        TOPIC: f"{RECORD}.topic",
        PARTITION: f"CAST({RECORD}.partition AS STRING)",
        OFFSET: f"CAST({RECORD}.offset AS STRING)",
        TIMESTAMP: f"CAST(coalesce(unix_millis({RECORD}.timestamp), -1) AS STRING)",
        ATTEMPT: f"CAST(coalesce(try_cast({earlier} AS INT), 0) + 1 AS STRING)",
    }
    ours = ", ".join(
        f"named_struct('key', {literal(name)}, 'value', CAST({text} AS BINARY))"
        for name, text in facts.items()
    )
    foreign = f"filter({held}, h -> NOT startswith(h.key, {literal(PREFIX)}))"
    return f"concat({foreign}, array({ours}))"


def dead_topics(expectations: Sequence[Expectation]) -> str:
    return " ".join(
        f"WHEN NOT {holds(one)} THEN {literal(one.topic or '')}" for one in expectations if one.action == DEAD
    )


def dead_columns(expectations: Sequence[Expectation]) -> list[str]:
    return [
        f"CASE {dead_topics(expectations)} END AS topic",
        f"{RECORD}.key AS key",
        f"{RECORD}.value AS value",
        f"{dead_headers(expectations)} AS headers",
    ]


def shared_columns(
    expectations: Sequence[Expectation], columns: Sequence[str], target_topic: str | None
) -> list[str]:
    """The rows of a topic and its dead letters in one frame, which one commit of the sink writes.

    `columns` are those of the flow. A row's topic is the dead-letter topic of the first expectation that it
    does not meet.
    """
    good, held = dead_condition(expectations), {name.lower() for name in columns}
    own = literal(target_topic) if target_topic is not None else "topic"
    key = "CAST(key AS BINARY)" if "key" in held else "NULL"
    headers = "headers" if "headers" in held else f"CAST(NULL AS {HEADERS_TYPE})"
    found = [
        f"CASE {dead_topics(expectations)} ELSE {own} END AS topic",
        f"CASE WHEN {good} THEN {key} ELSE {RECORD}.key END AS key",
        f"CASE WHEN {good} THEN CAST(value AS BINARY) ELSE {RECORD}.value END AS value",
        f"CASE WHEN {good} THEN {headers} ELSE {dead_headers(expectations)} END AS headers",
    ]
    found += [
        f"CASE WHEN {good} THEN {name} END AS {name}" for name in ("partition", "timestamp") if name in held
    ]
    return found
