"""What the files of a table say about themselves, together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.machines.lake.ledger import Held, Span
from headrace.machines.lake.proof import Fault, FileProof, Proof, WrongFooter, add_up, check_ranges


def file(*spans: Span, topic_id: str = "id") -> FileProof:
    return FileProof(topic_id, tuple(Proof(span, span.size, 1) for span in spans))


def faults(files: dict[str, FileProof], ledger: dict[int, Held]) -> list[tuple[Fault, Span | None]]:
    return [(found.fault, found.span) for found in check_ranges(files, ledger, "id")]


def test_ranges_that_are_the_ledgers_are_clean() -> None:
    files = {"a": file(Span(0, 5, 10)), "b": file(Span(0, 10, 12), Span(1, 0, 3)), "c": file(Span(0, 3, 5))}
    assert faults(files, {0: Held(3, 12), 1: Held(0, 3), 2: Held(7, 7)}) == []


def test_a_gap_is_found_at_the_start_in_the_middle_and_at_the_end() -> None:
    files = {"a": file(Span(0, 2, 4)), "b": file(Span(0, 6, 8))}
    assert faults(files, {0: Held(0, 9)}) == [
        (Fault.GAP, Span(0, 0, 2)),
        (Fault.GAP, Span(0, 4, 6)),
        (Fault.GAP, Span(0, 8, 9)),
    ]
    assert faults({}, {0: Held(0, 9)}) == [(Fault.GAP, Span(0, 0, 9))]


def test_offsets_that_are_there_twice_are_found() -> None:
    files = {"a": file(Span(0, 0, 4)), "b": file(Span(0, 0, 4)), "c": file(Span(0, 3, 6))}
    assert faults(files, {0: Held(0, 6)}) == [(Fault.TWICE, Span(0, 0, 4)), (Fault.TWICE, Span(0, 3, 4))]
    inside = {"a": file(Span(0, 0, 9)), "b": file(Span(0, 2, 4))}
    assert faults(inside, {0: Held(0, 9)}) == [(Fault.TWICE, Span(0, 2, 4))]


def test_what_the_ledger_does_not_know_is_found() -> None:
    files = {"a": file(Span(0, 0, 4)), "b": file(Span(1, 0, 4))}
    assert faults(files, {0: Held(0, 3)}) == [
        (Fault.NOT_IN_LEDGER, Span(0, 0, 4)),
        (Fault.NOT_IN_LEDGER, Span(1, 0, 4)),
    ]


def test_a_file_of_another_topic_is_found() -> None:
    assert faults({"a": file(Span(0, 0, 4), topic_id="other")}, {0: Held(0, 4)}) == [
        (Fault.OTHER_TOPIC, None)
    ]


def test_proofs_add_up_and_lost_ranges_stay_apart() -> None:
    big = (1 << 64) - 1
    proofs = [
        Proof(Span(0, 4, 6), 2, big),
        Proof(Span(0, 0, 4), 3, 2),
        Proof(Span(0, 6, 9), 0, 0, is_lost=True),
        Proof(Span(1, 0, 1), 1, 5),
    ]
    assert add_up(proofs) == (
        Proof(Span(0, 0, 6), 5, 1),
        Proof(Span(0, 6, 9), 0, 0, is_lost=True),
        Proof(Span(1, 0, 1), 1, 5),
    )


_proofs = st.builds(
    Proof,
    st.builds(Span, st.integers(0, 9), st.integers(0, 99), st.integers(0, 99)),
    st.integers(0, 99),
    st.integers(0, (1 << 64) - 1),
    st.booleans(),
)


@given(st.text(), st.lists(_proofs, max_size=5))
def test_a_proof_survives_its_footer(topic_id: str, proofs: list[Proof]) -> None:
    whole = FileProof(topic_id, tuple(proofs))
    assert FileProof.from_json(whole.to_json()) == whole


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "topic_id": "x", "ranges": []}',
        '{"version": 1, "topic_id": "x", "ranges": [[1, 2, 3]]}',
        '{"version": 1, "topic_id": "x", "ranges": [["a", 2, 3, 4, "5"]]}',
        '{"version": 1, "topic_id": "x", "ranges": [[0, 2, 3, 4, 5]]}',
    ],
)
def test_a_wrong_footer_is_refused(text: str) -> None:
    with pytest.raises(WrongFooter):
        FileProof.from_json(text)
