"""Which broker looks after a group or a transactional id, and calls to it.

A coordinator is remembered until a call to it fails; every retry looks it up anew, since coordinators move.
"""

from collections.abc import Iterable
from typing import Any

from headrace.client.client import Check, Client
from headrace.client.connection import ByVersion, Question
from headrace.client.coordinator import MANY_KEYS_SINCE, CoordinatorKind
from headrace.client.errors import BadResponse, KafkaError
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse


class Coordinators:
    def __init__(self, client: Client, kind: CoordinatorKind) -> None:
        self._client = client
        self._kind = kind
        self._known: dict[str, int] = {}

    def find(self, keys: Iterable[str]) -> dict[str, int]:
        """The broker of each key, asked for together where the broker can."""
        wanted = list(dict.fromkeys(keys))
        while missing := [key for key in wanted if key not in self._known]:
            found = self._ask(missing)
            if not found.keys() & set(missing):
                raise BadResponse("the broker answered without naming a coordinator")
            self._known |= found
        return {key: self._known[key] for key in wanted}

    def _ask(self, keys: list[str]) -> dict[str, int]:
        """The brokers of all the keys, or of the first from a broker that takes one at a time."""

        def make(version: int) -> FindCoordinatorRequest:
            if version >= MANY_KEYS_SINCE:
                return FindCoordinatorRequest(key_type=self._kind, coordinator_keys=keys)
            return FindCoordinatorRequest(key=keys[0], key_type=self._kind)

        found: dict[str, int] = {}

        def read(answer: FindCoordinatorResponse) -> None:
            if not answer.coordinators:
                self._check(keys[0], answer.error_code, answer.error_message)
                found[keys[0]] = answer.node_id
            for told in answer.coordinators:
                self._check(told.key, told.error_code, told.error_message)
                found[told.key] = told.node_id

        self._client.call(
            ByVersion(FindCoordinatorRequest, make),
            what=f"looking for the coordinator of {self._subject(keys[0])}",
            check=read,
        )
        return found

    def _check(self, key: str, code: int, message: str | None) -> None:
        if code:
            raise KafkaError(code, message, subject=self._subject(key))

    def _subject(self, key: str) -> str:
        return f"{self._kind.noun} {key!r}"

    def call(
        self, key: str, request: Question, *, what: str, check: Check, version_max: int | None = None
    ) -> Any:
        """Like `Client.call`, to the coordinator of the key."""
        is_retry = False

        def broker() -> int:
            nonlocal is_retry
            if is_retry:
                self._known.pop(key, None)
            is_retry = True
            return self.find([key])[key]

        return self._client.call(request, what=what, broker=broker, check=check, version_max=version_max)
