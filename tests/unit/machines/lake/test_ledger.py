"""A range is added once: only while the ledger stands at its edge."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.machines.lake.ledger import Held, Span, Verdict, advance, join, judge, judge_all


def test_the_first_range_of_a_partition_fits_anywhere() -> None:
    assert judge(Span(0, 7, 9), {}) is Verdict.FITS
    assert advance({}, [Span(0, 7, 9)]) == {0: Held(7, 9)}


def test_a_range_fits_behind_and_before_what_is_held() -> None:
    ledger = {0: Held(10, 20)}
    assert judge(Span(0, 20, 25), ledger) is Verdict.FITS
    assert advance(ledger, [Span(0, 20, 25)]) == {0: Held(10, 25)}
    assert judge(Span(0, 5, 10), ledger) is Verdict.FITS
    assert advance(ledger, [Span(0, 5, 10)]) == {0: Held(5, 20)}


def test_a_range_that_is_held_is_not_added_again() -> None:
    ledger = {0: Held(10, 20)}
    for span in (Span(0, 10, 20), Span(0, 12, 13), Span(0, 20, 20)):
        assert judge(span, ledger) is Verdict.HELD


def test_a_range_with_a_gap_or_an_overlap_is_stale() -> None:
    ledger = {0: Held(10, 20)}
    for span in (Span(0, 21, 25), Span(0, 19, 25), Span(0, 5, 9), Span(0, 5, 11), Span(0, 5, 25)):
        assert judge(span, ledger) is Verdict.STALE


def test_a_commit_fits_as_a_whole_or_not_at_all() -> None:
    ledger = {0: Held(0, 10), 1: Held(0, 10)}
    assert judge_all([Span(0, 10, 12), Span(1, 10, 11)], ledger) is Verdict.FITS
    assert judge_all([Span(0, 5, 10), Span(1, 0, 10)], ledger) is Verdict.HELD
    assert judge_all([Span(0, 10, 12), Span(1, 5, 10)], ledger) is Verdict.STALE
    # several files of one partition
    assert judge_all([Span(0, 12, 15), Span(0, 10, 12)], ledger) is Verdict.FITS
    assert judge_all([Span(0, 10, 12), Span(0, 13, 15)], ledger) is Verdict.STALE


def test_ranges_that_touch_are_joined() -> None:
    assert join([Span(0, 5, 7), Span(0, 1, 5), Span(1, 7, 9), Span(0, 8, 9)]) == [
        Span(0, 1, 7),
        Span(0, 8, 9),
        Span(1, 7, 9),
    ]


_spans = st.builds(
    lambda partition, start, size: Span(partition, start, start + size),
    st.integers(0, 1),
    st.integers(0, 12),
    st.integers(0, 6),
)


@given(st.lists(_spans, max_size=40))
def test_whatever_is_offered_each_offset_is_added_once_and_none_is_skipped(offered: list[Span]) -> None:
    """Against a plain list of the offsets that were added."""
    ledger: dict[int, Held] = {}
    added: dict[int, list[int]] = {0: [], 1: []}
    for span in offered:
        if judge(span, ledger) is Verdict.FITS:
            ledger |= advance(ledger, [span])
            added[span.partition] += range(span.start, span.end)
    for partition, held in ledger.items():
        assert sorted(added[partition]) == list(range(held.start, held.next))
