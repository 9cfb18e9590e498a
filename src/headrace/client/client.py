"""A blocking client of a cluster: finds brokers, keeps metadata, and retries calls until they succeed or
time is up.

Producer, Consumer and Admin share one Client: its connections, its view of the cluster, its one thread, the
caller's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from headrace.base.time import Instant
from headrace.client.attempts import Attempts
from headrace.client.cluster import Address, Cluster, Topic, parse_bootstrap
from headrace.client.connection import Question
from headrace.client.errors import ClientError, KafkaError
from headrace.client.network import Call, Network, clock
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.protocol.notation import Request

TIMEOUT_S = 30.0
# For the first contact: long enough for a broker that is just starting, short enough for a wrong address.
FIRST_CONTACT_S = 3.0
# How long a topic that is asked for may take to come into being; one that never will is told of soon.
CREATION_S = 5.0

Check = Callable[[Any], None]


class Client:
    """Connections and metadata of one user of a cluster."""

    def __init__(self, bootstrap: str, *, client_id: str = "headrace", timeout_s: float = TIMEOUT_S) -> None:
        self.addresses = parse_bootstrap(bootstrap)
        self.timeout_s = timeout_s
        self.cluster = Cluster()
        self.network = Network(client_id)
        self.dice = random.Random()
        self._turn = 0
        self._has_contact = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.network.close()

    def address(self, broker: int | None) -> Address:
        """Where to send: that broker, or, for None and for one that is not known, any of them in turns."""
        if broker is not None and broker in self.cluster.brokers:
            return self.cluster.brokers[broker]
        known = list(self.cluster.brokers.values())
        # after a setback the addresses that the user gave are tried too: all brokers may have moved
        candidates = known + [address for address in self.addresses if address not in known]
        return candidates[self._turn % len(candidates)]

    def call(
        self,
        request: Question,
        *,
        what: str,
        broker: Callable[[], int | None] | None = None,
        check: Check | None = None,
        timeout_s: float | None = None,
        version_max: int | None = None,
    ) -> Any:
        """The answer to a request, tried again while that helps and time is left.

        `what` completes "timed out while …". `broker` is asked at every try, since leaders move. `check`
        raises what the answer says went wrong; a retriable error of it is tried again too.
        """
        allowed_s = self.timeout_s if timeout_s is None else timeout_s
        if not self._has_contact:
            allowed_s = min(allowed_s, FIRST_CONTACT_S)
        attempts = Attempts(what, Instant(clock() + allowed_s), self.dice)
        while True:
            address = self.address(None if broker is None else broker())
            left = max(0.0, attempts.deadline - clock())
            try:
                answer = self.network.run(
                    self.network.submit(address, request, timeout_s=left, version_max=version_max)
                )
                self._has_contact = True
                if check is not None:
                    check(answer)
                return answer
            except ClientError as error:
                self._turn += 1
                wake_at = attempts.failed(clock(), error)
            while clock() < wake_at:
                self.network.poll(wake_at)

    def start(self, request: Request, then: Callable[[Call], None]) -> Call:
        """A call to any broker that is not waited for."""
        return self.network.submit(self.address(None), request, timeout_s=self.timeout_s, then=then)

    def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> dict[str, KafkaError]:
        """Asks for brokers and those topics (None: all topics); the topics that have an error instead."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=create)
        answer: MetadataResponse = self.call(request, what="asking for metadata")
        return self.cluster.update(answer, is_complete=named is None)

    def contact(self) -> None:
        """Finds a living broker; raises what is wrong when there is none."""
        self.refresh(())

    def topic(self, name: str, *, create: bool = False, is_expected: bool = False) -> Topic:
        """What the brokers know of a topic; the error if it is not there.

        With `create` the broker may make it, if it is set to. One that `is_expected` was made a moment ago,
        and the broker we ask may not have heard of it yet.
        """
        is_coming = create or is_expected

        def check(answer: MetadataResponse) -> None:
            error = self.cluster.update(answer).get(name)
            if error is not None and error.is_unknown_topic and not is_coming:
                error.is_retriable = False
            if error is not None:
                raise error

        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)
        timeout_s = min(self.timeout_s, CREATION_S) if is_coming else None
        self.call(request, what=f"asking for topic {name!r}", check=check, timeout_s=timeout_s)
        return self.cluster.topics[name]

    def controller(self) -> int | None:
        """Where changes of the cluster are sent; any broker passes them on."""
        return self.cluster.controller_id if self.cluster.controller_id >= 0 else None
