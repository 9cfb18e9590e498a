"""When the cluster counts as out of reach, and what is said about it."""

from __future__ import annotations

import pytest

from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address
from headrace.client.errors import ConnectionLost, Unreachable
from headrace.client.network.reachability import Reachability

A, B, BOOTSTRAP = Address("a", 1), Address("b", 2), Address("boot", 3)
REFUSED = Unreachable("cannot connect to a:1: connection refused")
LOST = ConnectionLost("the broker closed the connection")


def at(second: float) -> Instant:
    return Instant(second)


def fail(reachability: Reachability, second: float, address: Address = A) -> str | None:
    return reachability.failed(at(second), address, REFUSED, since=at(second))


def test_a_second_is_worth_a_warning_and_half_a_minute_another() -> None:
    reachability = Reachability()
    warnings = [fail(reachability, 100 + tenth / 10) for tenth in range(320)]
    assert [warning for warning in warnings if warning is not None] == [
        f"cannot connect to a:1: connection refused (for 1 s). {REFUSED.advice}",
        f"cannot connect to a:1: connection refused (for 31 s). {REFUSED.advice}",
    ]
    assert reachability.reached(at(140), A) == "a:1 can be reached again, after 40 s"


def test_a_moment_is_not() -> None:
    """As when a broker is restarted."""
    reachability = Reachability()
    for second in (100, 100.5, 100.9):
        assert fail(reachability, second) is None
    assert reachability.reached(at(101), A) is None
    assert fail(reachability, 102) is None


def test_the_address_is_named_in_any_case() -> None:
    reachability = Reachability()
    warning = reachability.failed(at(102), A, LOST, since=at(100))
    assert warning == f"a:1: the broker closed the connection (for 2 s). {LOST.advice}"


def test_an_outage_ends_with_the_first_connection() -> None:
    reachability = Reachability(limit_s=5.0)
    assert reachability.give_up_at() == NEVER
    fail(reachability, 100)
    fail(reachability, 103)
    assert reachability.give_up_at() == at(105)
    reachability.check(at(104.9))
    with pytest.raises(Unreachable, match="reached for 5 s: cannot connect to a:1") as raised:
        reachability.check(at(105))
    assert raised.value.__cause__ is REFUSED
    assert raised.value.advice == REFUSED.advice
    reachability.reached(at(106), B)
    reachability.check(at(200))


def test_the_time_that_it_lasts_is_told() -> None:
    reachability = Reachability(limit_s=0.5)
    fail(reachability, 100)
    assert "reached for 0.5 s" in str(reachability.as_error(at(100.52)))
    assert "reached for 61 s" in str(reachability.as_error(at(161.0)))


def test_one_broker_of_two_is_no_outage() -> None:
    reachability = Reachability(limit_s=5.0)
    reachability.named((A, B))
    reachability.reached(at(90), B)
    fail(reachability, 100)
    fail(reachability, 110)
    assert reachability.outage is None
    reachability.left(at(120), B)
    fail(reachability, 121)
    assert reachability.outage is not None
    assert reachability.outage.since == 120


def test_a_way_in_that_leads_nowhere_is_an_outage() -> None:
    """The bootstrap address answers, and names a broker that cannot be reached: advertised.listeners."""
    reachability = Reachability(limit_s=5.0)
    reachability.reached(at(99), BOOTSTRAP)
    reachability.named((A,))
    fail(reachability, 100)
    assert reachability.outage is not None
    assert reachability.outage.address == A
    reachability.reached(at(101), BOOTSTRAP)
    assert reachability.outage is not None
    reachability.named((B,))  # it is another cluster now
    assert reachability.outage is None


def test_without_a_limit_nobody_gives_up() -> None:
    reachability = Reachability()
    fail(reachability, 100)
    reachability.check(at(1e9))
    assert reachability.give_up_at() == NEVER


def test_no_more_troubles_are_remembered_than_fit() -> None:
    reachability = Reachability()
    for port in range(1010):
        fail(reachability, 100, Address("x", port))
    assert len(reachability._troubles) <= 1000
