"""Bugs of rights, certificates' names, forwarded requests and quotas, planted one by one: the tests that look
for them find each of them. Those of logins are in test_planted_login_bugs.py, those of TLS in
server/test_planted_tls_bugs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.replica_brokers import ReplicaBrokers
from headrace.base.time import Now
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.security import distinguished_names
from headrace.machines.security.acls import Authorizer, _Resources
from headrace.machines.security.der import Element
from headrace.machines.security.principal_mapping import _Rule
from headrace.node import fetch_sessions
from headrace.node.authorization import Access
from headrace.node.connection import Connection
from headrace.node.fetch_fast_path import FetchFastPath
from headrace.node.handlers import envelope, fetch
from headrace.node.handlers.append_at import AppendAt
from headrace.node.handlers.fetch import Gathering
from headrace.node.quotas import Quotas, RememberedMeters
from headrace.node.replica_feeds import ReplicaFeeds
from headrace.node.standard_authorizer import StandardAuthorizer
from headrace.node.waiting import Waiting
from headrace.protocol.metadata_records import RemoveAccessControlEntryRecord
from headrace.protocol.notation import Data
from unit.machines.security import test_acls, test_distinguished_names, test_principal_mapping
from unit.node import (
    test_append_at,
    test_quotas,
    test_replication,
    test_rights_on_fast_paths,
    test_standard_authorizer,
)
from unit.node.cluster import test_forwarding

Patch = pytest.MonkeyPatch

_committed, _mute, _append = StandardAuthorizer.committed, Waiting.mute, AppendAt._append


# --- rules ------------------------------------------------------------------------------------------------


def fast_paths_ignore_rights(patch: Patch) -> None:
    """What was allowed once stays so: the rules have changed, and what stands for them has not."""
    same = object()
    patch.setattr(Access, "changed", lambda self: setattr(self, "rights", same))


def waiting_fetches_ignore_rights(patch: Patch) -> None:
    patch.setattr(FetchFastPath, "allows", lambda self, known: True)


def sessions_ignore_rights(patch: Patch) -> None:
    """Partitions of a session that are quiet stay so, whatever the rules."""

    def reader_of(body: Any, access: Access) -> Any:
        return body.isolation_level, fetch_sessions.replica_id_of(body), None

    patch.setattr(fetch, "reader_of", reader_of)


def removed_rules_stay(patch: Patch) -> None:
    def committed(self: StandardAuthorizer, now: Now, image: ClusterImage, records: list[Data]) -> None:
        kept = [one for one in records if not isinstance(one, RemoveAccessControlEntryRecord)]
        _committed(self, now, image, kept)

    patch.setattr(StandardAuthorizer, "committed", committed)


def rules_count_before_they_are_loaded(patch: Patch) -> None:
    """Rules that deny may be missing yet."""
    make = Authorizer.__init__

    def made(self: Authorizer, *given: Any, **more: Any) -> None:
        make(self, *given, **more)
        self._is_loaded = True

    patch.setattr(Authorizer, "__init__", made)


def names_that_begin_a_prefix_match(patch: Patch) -> None:
    """The right for `orders.` is one for `o`."""

    def covering(self: _Resources, name: str) -> Iterator[Any]:
        for pattern, entries in self.prefixed.items():
            if name.startswith(pattern) or pattern.startswith(name):
                yield entries
        for pattern in (name, "*"):
            if pattern in self.literal:
                yield self.literal[pattern]

    patch.setattr(_Resources, "covering", covering)


def literal_names_are_prefixes(patch: Patch) -> None:
    """The right for `orders` is one for `orders2`."""

    def covering(self: _Resources, name: str) -> Iterator[Any]:
        for patterns in (self.literal, self.prefixed):
            for pattern, entries in patterns.items():
                if name.startswith(pattern) or pattern == "*":
                    yield entries

    patch.setattr(_Resources, "covering", covering)


def allow_overrides_deny(patch: Patch) -> None:
    def allows(
        self: Authorizer, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        _, allowed, _ = self._masks(principal, host, resource_type, name)
        return bool(allowed >> operation & 1)

    patch.setattr(Authorizer, "allows", allows)


# --- names of certificates --------------------------------------------------------------------------------


def names_are_not_escaped(patch: Patch) -> None:
    """A common name can look like a unit."""

    def escape(value: Element) -> str:
        return value.value().decode()

    patch.setattr(distinguished_names, "_escape", escape)


def a_part_of_the_subject_is_enough(patch: Patch) -> None:
    def apply(self: _Rule, subject: str) -> str | None:
        found = self.pattern.search(subject)
        if found is None:
            return None
        return "".join(one if isinstance(one, str) else found[one] or "" for one in self.replacement)

    patch.setattr(_Rule, "apply", apply)


# --- other nodes ------------------------------------------------------------------------------------------


def followers_need_no_right(patch: Patch) -> None:
    """CVE-2018-1288."""

    def is_follower(self: ReplicaFeeds, request: Any) -> bool:
        state = request.body.replica_state
        return state is not None and state.replica_id in self._metadata.image.brokers

    patch.setattr(ReplicaFeeds, "is_follower", is_follower)


def replica_ids_need_no_right(patch: Patch) -> None:
    may_read = Gathering._may_read
    patch.setattr(
        Gathering, "_may_read", lambda self, *given: self._replica_id >= 0 or may_read(self, *given)
    )


def everybody_sends_envelopes(patch: Patch) -> None:
    class Trusting:
        def __init__(self, access: Access) -> None:
            self.allows = lambda *given: True

    make = envelope.Envelope.__init__

    def made(self: Any, routes: Any, metadata: Any, access: Any, *more: Any) -> None:
        make(self, routes, metadata, Trusting(access), *more)  # type: ignore[arg-type]

    patch.setattr(envelope.Envelope, "__init__", made)


def the_broker_is_taken_for_its_client(patch: Patch) -> None:
    patch.setattr(envelope, "decode_principal", lambda encoded: ("User:ANONYMOUS", False))


def conditional_appends_open_transactions(patch: Patch) -> None:
    """Of AppendAt, with a batch that says it belongs to one."""
    patch.setattr("headrace.node.handlers.append_at.TRANSACTIONAL", 0)


# --- quotas -----------------------------------------------------------------------------------------------


def nobody_is_muted(patch: Patch) -> None:
    patch.setattr(Waiting, "mute", lambda *given: None)


def mutes_count_from_the_arrival(patch: Patch) -> None:
    """That of a long poll is over before it begins."""

    def mute(self: Waiting, now: Now, connection: Connection, throttle_ms: int) -> None:
        _mute(self, now, connection, max(0, throttle_ms - 15_000))  # so long has it waited

    patch.setattr(Waiting, "mute", mute)


def changed_quotas_are_not_noticed(patch: Patch) -> None:
    """On a fast path: the first meters are remembered for ever."""

    def current(self: Any, now: Now, quotas: Quotas, connection: Connection) -> Any:
        if self._meters is None:
            self._meters = quotas.of(now, connection, self._client_id)
        return self._meters

    patch.setattr(RememberedMeters, "current", current)


def three_brokers() -> ReplicaBrokers:
    brokers = ReplicaBrokers()
    brokers.create_topic(min_insync_replicas="2")
    brokers.exchange()
    return brokers


def look_at_followers() -> None:
    test_replication.TestStrangers().test_whoever_knows_id_and_epoch_of_a_broker_needs_its_right(
        three_brokers()
    )


RIGHTS, RULES = test_rights_on_fast_paths, test_standard_authorizer.TestRulesOfTheCluster
ENVELOPES = test_forwarding.TestEnvelopes()

BUGS: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (
        fast_paths_ignore_rights,
        lambda: RIGHTS.test_a_lost_right_counts_for_the_next_request_and_so_does_one_that_comes_back(
            "produce"
        ),
    ),
    (waiting_fetches_ignore_rights, lambda: RIGHTS.test_a_fetch_that_waits_while_the_rules_change(True)),
    (
        sessions_ignore_rights,
        RIGHTS.test_partitions_of_a_session_that_are_quiet_are_checked_when_the_rules_change,
    ),
    (removed_rules_stay, RULES().test_they_count_as_soon_as_the_answer_is_there),
    (
        rules_count_before_they_are_loaded,
        test_acls.TestSuperUsers().test_until_the_rules_are_loaded_they_are_the_only_ones,
    ),
    (names_that_begin_a_prefix_match, test_acls.TestRules().test_names),
    (literal_names_are_prefixes, test_acls.TestRules().test_names),
    (allow_overrides_deny, test_acls.TestRules().test_deny_overrides_allow_wherever_it_comes_from),
    (
        names_are_not_escaped,
        test_distinguished_names.TestCertificates().test_a_comma_in_a_common_name_is_not_a_part_of_the_name,
    ),
    (
        a_part_of_the_subject_is_enough,
        test_principal_mapping.TestMapping().test_a_pattern_has_to_match_all,
    ),
    (followers_need_no_right, look_at_followers),
    (replica_ids_need_no_right, look_at_followers),
    (
        everybody_sends_envelopes,
        lambda: ENVELOPES.test_a_stranger_cannot_act_as_an_administrator(
            test_forwarding.Pair(), is_checked=True
        ),
    ),
    (
        the_broker_is_taken_for_its_client,
        lambda: test_forwarding.test_the_controller_authorizes_the_client(test_forwarding.Pair()),
    ),
    (
        conditional_appends_open_transactions,
        lambda: test_append_at.TestRecords().test_a_batch_of_a_transaction_is_refused(
            test_append_at.new_host()
        ),
    ),
    (
        nobody_is_muted,
        lambda: test_quotas.test_a_producer_above_its_rate_is_told_and_muted_from_its_answer_on(True),
    ),
    (
        mutes_count_from_the_arrival,
        lambda: test_quotas.test_a_fetch_that_waited_is_muted_from_its_answer_on(False),
    ),
    (
        changed_quotas_are_not_noticed,
        lambda: test_quotas.test_a_changed_quota_counts_for_the_next_request_of_an_open_connection("produce"),
    ),
]


@pytest.mark.parametrize(("plant", "look"), BUGS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], look: Callable[[], None], monkeypatch: Patch
) -> None:
    look()
    plant(monkeypatch)
    with pytest.raises((AssertionError, IndexError, ValueError, pytest.fail.Exception)):
        look()
