"""The ad-click sample: its events, and the rules that `truth` applies, each on a few events by hand."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from headrace.sample.clicks import (
    CLICK_WINDOW_MS,
    CLICKS,
    CLOSING_AD,
    EXPIRED,
    FRAUD,
    FRAUD_LIMIT,
    IMPRESSIONS,
    LATE,
    LATENESS_MS,
    MINUTE_MS,
    UNKNOWN,
    Event,
    SampleClicks,
    Truth,
    truth,
)

NINE = 1_767_258_000_000  # 2026-01-01T09:00:00Z, the beginning of a minute
CALM = {
    "duplicate_rate": 0,
    "disorder_rate": 0,
    "late_rate": 0,
    "expired_rate": 0,
    "unknown_rate": 0,
    "robot_rate": 0,
    "malformed_rate": 0,
}


def at(ms: int) -> str:
    minutes, rest = divmod(ms, MINUTE_MS)
    return f"2026-01-01T{9 + minutes // 60:02d}:{minutes % 60:02d}:{rest / 1000:06.3f}Z"


def shown(impression: str, ms: int, ad: str = "ad-01") -> Event:
    fields = {
        "impression": impression,
        "ad": ad,
        "user": "u-1",
        "shown_at": at(ms),
        "site": "news",
        "price": 0.01,
    }
    return Event(IMPRESSIONS, impression.encode(), json.dumps(fields).encode(), NINE + ms)


def clicked(
    click: str, impression: str, ms: int, *, delay_ms: int = 0, ad: str = "ad-01", user: str = "u-1"
) -> Event:
    fields = {"click": click, "impression": impression, "ad": ad, "user": user, "clicked_at": at(ms)}
    return Event(CLICKS, impression.encode(), json.dumps(fields).encode(), NINE + ms + delay_ms)


def test_clicks_are_counted_by_ad_and_minute():
    events = [
        shown("i-1", 0),
        shown("i-2", 0, "ad-02"),
        clicked("c-1", "i-1", 59_999),
        clicked("c-2", "i-1", 60_000),
        clicked("c-3", "i-2", 60_000, ad="ad-02"),
        clicked("c-4", "i-1", 61_000),
    ]
    assert truth(events) == Truth(
        {("ad-01", NINE): 1, ("ad-01", NINE + 60_000): 2, ("ad-02", NINE + 60_000): 1}
    )


def test_a_click_may_be_published_before_its_impression():
    assert truth([clicked("c-1", "i-1", 500), shown("i-1", 100)]).counts == {("ad-01", NINE): 1}


@pytest.mark.parametrize(("delay_ms", "late"), [(LATENESS_MS, 0), (LATENESS_MS + 1, 1)])
def test_who_is_published_too_late_is_not_counted(delay_ms, late):
    found = truth([shown("i-1", 0), clicked("c-1", "i-1", 1_000, delay_ms=delay_ms)])
    assert (sum(found.counts.values()), found.rejected[LATE]) == (1 - late, late)


def test_a_click_counts_once():
    events = [shown("i-1", 0), clicked("c-1", "i-1", 1_000), clicked("c-1", "i-1", 1_000, delay_ms=20_000)]
    assert truth(events) == Truth({("ad-01", NINE): 1}, duplicates=1)


def test_a_late_copy_is_late_and_no_duplicate():
    late = clicked("c-1", "i-1", 1_000, delay_ms=LATENESS_MS + 1)
    on_time = clicked("c-1", "i-1", 1_000)
    expected = Truth({("ad-01", NINE): 1}, Counter({LATE: 1}))
    assert truth([shown("i-1", 0), on_time, late]) == expected
    assert truth([late, on_time, shown("i-1", 0)]) == expected  # in any order


@pytest.mark.parametrize(
    ("after_ms", "counts"), [(-1, 0), (0, 1), (CLICK_WINDOW_MS, 1), (CLICK_WINDOW_MS + 1, 0)]
)
def test_a_click_belongs_to_the_minutes_after_its_impression(after_ms, counts):
    found = truth([shown("i-1", 5_000), clicked("c-1", "i-1", 5_000 + after_ms)])
    assert (sum(found.counts.values()), found.rejected[EXPIRED]) == (counts, 1 - counts)


def test_a_click_of_no_impression_is_not_counted():
    assert truth([shown("i-1", 0), clicked("c-1", "i-2", 1)]) == Truth({}, Counter({UNKNOWN: 1}))


def burst(
    number: int, *, begin_ms: int = 0, step_ms: int = 1, user: str = "u-1", ad: str = "ad-01"
) -> list[Event]:
    return [
        clicked(f"c-{user}-{ad}-{begin_ms}-{n}", "i-1", begin_ms + n * step_ms, user=user, ad=ad)
        for n in range(number)
    ]


def test_a_robot_s_clicks_count_neither_before_nor_after_the_limit():
    allowed, too_many = burst(FRAUD_LIMIT), burst(FRAUD_LIMIT + 1)
    assert truth([shown("i-1", 0), *allowed]) == Truth({("ad-01", NINE): FRAUD_LIMIT})
    assert truth([shown("i-1", 0), *too_many]) == Truth({}, Counter({FRAUD: FRAUD_LIMIT + 1}))


def test_robots_are_told_by_user_ad_and_minute():
    events = [
        shown("i-1", 0),
        *burst(FRAUD_LIMIT + 1),
        *burst(FRAUD_LIMIT, user="u-2"),
        *burst(FRAUD_LIMIT, ad="ad-02"),
        *burst(FRAUD_LIMIT, begin_ms=60_000),
    ]
    assert truth(events) == Truth(
        {("ad-01", NINE): FRAUD_LIMIT, ("ad-02", NINE): FRAUD_LIMIT, ("ad-01", NINE + 60_000): FRAUD_LIMIT},
        Counter({FRAUD: FRAUD_LIMIT + 1}),
    )


def test_what_does_not_count_makes_nobody_a_robot():
    copies = [*burst(FRAUD_LIMIT), *burst(FRAUD_LIMIT)]
    late = [clicked("c-late", "i-1", 10, delay_ms=LATENESS_MS + 1), clicked("c-lost", "i-9", 10)]
    assert truth([shown("i-1", 0), *copies, *late]).counts == {("ad-01", NINE): FRAUD_LIMIT}


GOOD = {
    "click": "c-1",
    "impression": "i-1",
    "ad": "ad-01",
    "user": "u-1",
    "clicked_at": "2026-01-01T09:00:00.000Z",
}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\xfe",
        b'{"click": "c-1"',
        b"[]",
        b"null",
        *(json.dumps({**GOOD, name: None}).encode() for name in GOOD),
        *(json.dumps({other: GOOD[other] for other in GOOD if other != name}).encode() for name in GOOD),
        json.dumps({**GOOD, "clicked_at": "yesterday"}).encode(),
        json.dumps({**GOOD, "clicked_at": 1_767_258_000_000}).encode(),
        json.dumps({**GOOD, "click": ["c-1"]}).encode(),
    ],
)
def test_what_cannot_be_read_is_malformed(value):
    assert truth([Event(CLICKS, b"i-1", value, NINE)]) == Truth(malformed=1)
    assert truth([Event(IMPRESSIONS, b"i-1", value, NINE)]).malformed == 1


def test_the_limits_can_be_given():
    events = [shown("i-1", 0), *burst(2), clicked("c-9", "i-1", 61_000, delay_ms=5, user="u-3")]
    assert truth(events, fraud_limit=1).rejected == {FRAUD: 2}
    assert truth(events, lateness_ms=4).rejected == {LATE: 1}
    assert truth(events, click_window_ms=60_999).rejected == {EXPIRED: 1}


def test_one_seed_is_one_sequence_and_a_shorter_one_its_beginning():
    whole = list(SampleClicks(seed=7).events(120))
    assert whole == list(SampleClicks(seed=7).events(120))
    assert whole != list(SampleClicks(seed=8).events(120))
    half = list(SampleClicks(seed=7).events(60))
    assert half == whole[: len(half)]
    endless = SampleClicks(seed=7).events(None)
    assert [next(endless) for _ in whole] == whole
    assert all(event.timestamp_ms < SampleClicks().start_ms + 120_000 for event in whole)


def test_events_come_in_the_order_of_their_timestamps():
    timestamps = [event.timestamp_ms for event in SampleClicks(seed=3, impressions_per_s=10).events(900)]
    assert timestamps == sorted(timestamps)


def test_rates_are_what_they_say():
    """Of about 8,000 clicks; a calm sample has nothing that is not counted."""
    events = list(SampleClicks(seed=1, impressions_per_s=1, start_ms=NINE, click_rate=0.9).events(9_000))
    of_impressions = [event for event in events if event.topic == IMPRESSIONS]
    found = truth(events)
    clicks = len(events) - len(of_impressions)
    assert len(of_impressions) == pytest.approx(9_000, rel=0.05)
    assert clicks == pytest.approx(0.95 * len(of_impressions), rel=0.05)
    shares = {LATE: 0.02, UNKNOWN: 0.02, EXPIRED: 0.01, FRAUD: 0.04}
    assert {why: found.rejected[why] / clicks for why in shares} == pytest.approx(shares, rel=0.4)
    assert found.malformed / clicks == pytest.approx(0.01, rel=0.4)
    assert found.duplicates / clicks == pytest.approx(0.03, rel=0.4)
    assert sum(found.counts.values()) + found.rejected.total() + found.malformed + found.duplicates == clicks
    arrivals = [json.loads(event.value)["clicked_at"] for event in events if _is_readable_click(event)]
    assert arrivals != sorted(arrivals)

    calm = list(SampleClicks(seed=1, impressions_per_s=10, start_ms=NINE, **CALM).events(600))
    assert truth(calm).rejected == {}
    assert sum(truth(calm).counts.values()) == sum(event.topic == CLICKS for event in calm)


def _is_readable_click(event: Event) -> bool:
    return event.topic == CLICKS and truth([event]).malformed == 0


@pytest.mark.parametrize(
    ("trouble", "seen"),
    [
        ("late_rate", lambda found: found.rejected[LATE]),
        ("expired_rate", lambda found: found.rejected[EXPIRED]),
        ("unknown_rate", lambda found: found.rejected[UNKNOWN]),
        ("malformed_rate", lambda found: found.malformed),
        ("duplicate_rate", lambda found: found.duplicates),
    ],
)
def test_a_trouble_of_all_clicks_leaves_no_other(trouble, seen):
    """With one rate at 1 the truth finds each click (of duplicates: each second one) to be of its kind."""
    events = list(SampleClicks(seed=2, impressions_per_s=6, **{**CALM, trouble: 1}).events(1_500))
    found, clicks = truth(events), sum(event.topic == CLICKS for event in events)
    pairs = trouble == "duplicate_rate"
    assert clicks > 300
    assert seen(found) == pytest.approx(clicks / 2 if pairs else clicks, abs=20 if pairs else 0)
    assert sum(found.counts.values()) == (clicks - found.duplicates if pairs else 0)


def test_robots_are_caught_but_for_those_whom_the_end_of_a_minute_divides():
    events = list(SampleClicks(seed=2, impressions_per_s=2, ads=5, **{**CALM, "robot_rate": 1}).events(1_800))
    found, clicks = truth(events), sum(event.topic == CLICKS for event in events)
    assert found.rejected[FRAUD] + sum(found.counts.values()) == clicks
    assert 0.6 < found.rejected[FRAUD] / clicks < 1


def test_ids_go_on_where_another_sample_ended():
    first = list(SampleClicks(seed=1).events(60))
    number = sum(event.topic == IMPRESSIONS for event in first)
    second = list(
        SampleClicks(seed=2, first_impression=number + 1, start_ms=SampleClicks().start_ms + 60_000).events(
            60
        )
    )
    keys = Counter(event.key for event in (*first, *second) if event.topic == IMPRESSIONS)
    assert max(keys.values()) == 1
    assert f"i-{number + 1:06d}".encode() in keys


def test_closing_events_pass_every_watermark_and_change_nothing():
    events = list(SampleClicks(seed=5).events(120))
    after_ms = events[-1].timestamp_ms
    closing = list(SampleClicks.closing_events(after_ms))
    assert truth([*events, *closing]) == truth(events)
    assert {json.loads(event.value)["ad"] for event in closing} == {CLOSING_AD}
    for topic, moment in ((IMPRESSIONS, "shown_at"), (CLICKS, "clicked_at")):
        of_topic = [event for event in closing if event.topic == topic]
        assert len({event.key for event in of_topic}) == len(of_topic) > 8
        for event in of_topic:
            # read as any other, were it not for the ad: on time, and ahead of all that waits for a watermark
            renamed = event._replace(value=event.value.replace(b'"closing"', b'"ad-01"'))
            assert truth([renamed]).malformed == truth([renamed]).rejected[LATE] == 0
            assert moment in json.loads(event.value)
            assert (
                after_ms + LATENESS_MS + CLICK_WINDOW_MS + MINUTE_MS
                < event.timestamp_ms
                < after_ms + 60 * MINUTE_MS
            )


@pytest.mark.parametrize(
    "wrong", [{"ads": 0}, {"users": 0}, {"impressions_per_s": 0}, {"late_rate": -0.1}, {"robot_rate": 1.1}]
)
def test_a_sample_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError):
        SampleClicks(**wrong)
