"""Jobs under any sequence of inputs, and cron beside a search of every minute."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from headrace.machines.jobs.backoff import FIRST_MS, LAST_MS, backoff_ms
from headrace.machines.jobs.cron import MINUTE_MS, parse_cron
from headrace.machines.jobs.job import (
    Adopted,
    Closing,
    Failed,
    Input,
    Interrupted,
    Job,
    JobError,
    Kill,
    Lost,
    Order,
    Ordered,
    Persist,
    Progressed,
    Start,
    Stop,
    Succeeded,
    Woke,
)
from headrace.machines.jobs.records import Described, encode_state, read_state
from headrace.machines.jobs.schedule import parse_schedule

SCHEDULES = ("continuous", "every 5m", "cron */7 * * * *", "once", "on demand")
KINDS = ("woke", "run", "again", "stop", "progressed", "succeeded", "interrupted", "failed", "refused")
STEPS = st.lists(
    st.tuples(st.sampled_from((*KINDS, "lost", "closing", "killed")), st.integers(0, 400_000)), max_size=60
)


@given(st.sampled_from(SCHEDULES), STEPS, st.integers(0, 2**32))
def test_one_run_at_a_time_and_none_that_is_not_written_down(
    schedule: str, steps: list[tuple[str, int]], seed: int
) -> None:
    """Runners follow each other; whatever happens, a run is started only behind the state that names it, by
    the owner, and when no other run of that owner is alive.
    """
    rng = random.Random(seed)
    now, offset, runs = 1_700_000_000_000, 0, set()
    log = None  # what is durable
    job, alive, is_owner = Job(parse_schedule(schedule), "d", rng), None, False
    events: list[Input] = [Adopted(None)]
    for kind, pause in [("woke", 0), *steps]:
        if not is_owner and not events:
            job, alive = Job(parse_schedule(schedule), "d", rng), None
            events = [Adopted(log)]
        now += pause
        run = job.state.run
        match kind:
            case "run" | "again" | "stop":
                offset += 1
                events.append(Ordered(offset, Order(kind)))
            case "progressed":
                events.append(Progressed(run))
            case "succeeded" | "interrupted" | "failed" | "refused" if alive is not None:
                ends: dict[str, Input] = {
                    "succeeded": Succeeded(alive),
                    "interrupted": Interrupted(alive),
                    "failed": Failed(alive, JobError("no"), True),
                    "refused": Failed(alive, JobError("no"), False),
                }
                events.append(ends[kind])
            case "closing":
                events.append(Closing())
            case "lost":
                events.append(Lost())
            case "killed":  # the runner, with its runs
                is_owner, events = False, []
                continue
            case _:
                events.append(Woke())
        while events:
            event = events.pop(0)
            if isinstance(event, Adopted):
                is_owner = True
            elif isinstance(event, Succeeded | Interrupted | Failed) and event.run == alive:
                alive = None
            is_durable = False
            for effect in job.step(now, event):
                match effect:
                    case Persist(state):
                        assert is_owner
                        log, is_durable = state, True
                        described = Described(state, "replay", schedule, "r")
                        assert read_state(encode_state(described)) == described
                    case Start(number, _):
                        assert is_durable
                        assert alive is None
                        assert number not in runs
                        assert log is not None
                        assert log.run == number
                        runs.add(number)
                        alive = number
                    case Stop(number) | Kill(number):
                        assert number == alive
                        if isinstance(effect, Kill):
                            events.append(Failed(number, JobError("killed"), True))
            job.check()
            if isinstance(event, Lost):
                is_owner = False
        due = job.deadline()
        assert due is None or due <= now + LAST_MS + 420_000  # nobody waits for ever


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_backoff_stays_within_its_bounds(failures: int, seed: int) -> None:
    wait = backoff_ms(failures, random.Random(seed))
    full = min(LAST_MS, FIRST_MS * 2 ** (failures - 1))
    assert max(FIRST_MS, full // 2) <= wait <= full


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    stepped = st.tuples(st.one_of(st.just("*"), span), st.integers(1, 40)).map(lambda of: f"{of[0]}/{of[1]}")
    part = st.one_of(number.map(str), span, stepped)
    return st.one_of(st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))


@given(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7), st.integers(0, 4 * 10**9))
def test_cron_finds_the_first_minute_that_matches(
    minute: str, hour: str, day: str, month: str, weekday: str, after_s: int
) -> None:
    expression = f"{minute} {hour} {day} {month} {weekday}"
    found = parse_cron(expression).next_ms(after_s * 1000)
    assert found > after_s * 1000
    assert found % MINUTE_MS == 0
    assert matches(expression, found)
    # some of the minutes in between: the first ones, and those of every day before the one that was found
    minutes = range((after_s // 60 + 1) * 60, found // 1000, 60)
    for at in {*minutes[:200], *minutes[-200:], *minutes[:: 1440 - 1]}:
        assert not matches(expression, at * 1000), datetime.fromtimestamp(at, UTC)


def values(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found |= {
            one
            for one in range(int(first), int(last or first) + 1)
            if not (one - int(first)) % int(step or 1)
        }
    return found


def day_matches(expression: str, moment: datetime) -> bool:
    _, _, day, month, weekday = expression.split()
    if moment.month not in values(month, 1, 12):
        return False
    by_day = moment.day in values(day, 1, 31)
    by_weekday = moment.isoweekday() % 7 in {one % 7 for one in values(weekday, 0, 7)}
    return by_day and by_weekday if "*" in (day, weekday) else by_day or by_weekday


def matches(expression: str, ms: int) -> bool:
    minute, hour, *_ = expression.split()
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    is_time = moment.minute in values(minute, 0, 59) and moment.hour in values(hour, 0, 23)
    return is_time and day_matches(expression, moment)
