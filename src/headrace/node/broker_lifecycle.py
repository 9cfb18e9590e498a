"""The life of this broker in its cluster, from registration to controlled shutdown.

    register ──> fenced, follows the metadata ── has its registration ──> unfenced ──> heartbeats
        ^                    ^                                              │   │
        │                    └────────── the controller fenced it ─────────┘   │ stop
        └── its epoch is stale                                                  v
                                                         leaders move away ──> it may stop

A broker in the active controller's own process is registered by it, and its session never ends. If it is the
only broker, it sends no heartbeats at all.
"""

from typing import Any

from headrace.base.time import NEVER, Now
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.image import ClusterImage
from headrace.node.controller_channel import HEARTBEATS, ControllerChannel
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.peers import Completion, Unanswered
from headrace.node.ports import Once, Ports
from headrace.node.settings import LiveSettings
from headrace.node.waiting import Waiter
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import BrokerRegistrationChangeRecord
from headrace.protocol.notation import Data, Request

RETRY_MS = 50  # after an answer that may soon be another one
STOP_MS_MAX = 10_000  # a broker whose leaders cannot move stops anyway
SILENCE_MS_MAX = 3_000  # and so does one that finds no controller

# The controller will not change its mind about these.
FATAL = (
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)


class BrokerLifecycle:
    def __init__(
        self,
        registration: Registration,
        settings: LiveSettings,
        directories: LogDirectories,
        metadata: MetadataLog,
        channel: ControllerChannel,
        ports: Ports,
    ) -> None:
        self._registration = registration
        self._settings = settings
        self._directories = directories
        self._metadata = metadata
        self._channel = channel
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._controller_watch = ControllerWatch(self)
        self._controller_id = metadata.leader_id
        self.epoch = -1  # of this run, once it is registered
        self.is_unfenced = False  # according to the committed metadata
        self._is_known = False  # the metadata has its registration
        self._has_been_registered = False  # at some time since the start
        self._has_news = False  # since the heartbeat that is under way
        self._is_asking = False  # a registration or heartbeat is under way
        self._timer: Once | None = None
        self._started: Now | None = None
        self._is_leaving = False
        self._has_left = False
        self._leaves_by = NEVER  # when it stops, whatever the controller says
        self._stop_at = NEVER  # when it stops, if the controller says nothing
        directories.failed = self.poke  # others lead what was there as soon as the controller knows

    def start(self, now: Now) -> None:
        self._started = now
        self._controller_watch.wait_for(self._metadata)
        self.committed(now, self._metadata.image, [])
        if self.epoch < 0 and not self._channel.is_local:
            self._ask(now)

    def committed(self, now: Now, image: ClusterImage, records: list[Data]) -> None:
        """Follows what the metadata says about this broker."""
        state = image.brokers.get(self._registration.broker)
        if state is None or state.incarnation_id != self._registration.incarnation_id:
            if self._is_known:  # an operator has unregistered it, or another run has its id
                self._is_known = self.is_unfenced = False
                self.epoch = -1
                self.poke(now)
            if state is not None and not self._has_been_registered:
                # its own metadata log may have ended before the last run was registered
                self._registration.previous_epoch = self._directories.previous_epoch.told(state)
            return
        is_new = not self._is_known or self.epoch != state.epoch
        if is_new:
            self._directories.previous_epoch.registered(state.incarnation_id)
        self._is_known = self._has_been_registered = True
        was_unfenced, self.is_unfenced = self.is_unfenced, not state.is_fenced
        self.epoch = state.epoch
        is_silent = self._timer is None and not self._is_asking and not self._is_alone
        if is_silent or self._is_awaited(records) or (not self.is_unfenced and (was_unfenced or is_new)):
            self.poke(now)

    def _is_awaited(self, records: list[Data]) -> bool:
        """Another broker stops as soon as the controller knows that all have seen its leaders move."""
        return any(
            isinstance(record, BrokerRegistrationChangeRecord)
            and record.in_controlled_shutdown > 0
            and record.broker_id != self._registration.broker
            for record in records
        )

    @property
    def is_ready(self) -> bool:
        """The committed metadata says that this broker may serve clients."""
        return self.is_unfenced and self._metadata.committed_offset > self.epoch

    @property
    def _is_alone(self) -> bool:
        """No other broker is registered, and the controller is in this process: nobody has to be told."""
        return self._channel.is_local and len(self._metadata.image.brokers) == 1

    def poke(self, now: Now) -> None:
        """Something has changed: tell the controller now instead of at the next heartbeat."""
        if self._started is None or self._has_left:
            return
        if self._is_asking:
            self._has_news = True
        else:
            self._ask(now)

    def look_at_controller(self, now: Now) -> None:
        """Whoever becomes the active controller hears of this broker at once, and is connected to it."""
        leader_id = self._metadata.leader_id
        if leader_id != self._controller_id:
            self._controller_id = leader_id
            if leader_id >= 0:
                self.poke(now)

    def has_left(self, now: Now) -> bool:
        """Whether this broker may stop. The first call makes it leave the cluster: others take over what it
        leads, if there are any.
        """
        if not self._is_leaving:
            self._is_leaving = True
            self._leaves_by = now.after_ms(STOP_MS_MAX)
            self._has_left = not self._settings.current.controlled_shutdown_enable
            if self._has_others():
                self._hear(now)
                self.poke(now)
        if not self._has_left and not self._has_others():
            self._has_left = True
        if not self._has_left and (now.mono >= self._stop_at or self._metadata.is_majority_gone(now)):
            self._has_left = True
            self._reports.report(
                "warning",
                "stopped_without_handover",
                broker=self._registration.broker,
                reason="the active controller did not confirm in time that others lead its partitions"
                if now.mono >= self._stop_at
                else "most controllers have ended, so no other broker can take over",
            )
        return self._has_left

    def _hear(self, now: Now) -> None:
        """The controller has answered while this broker leaves: it waits a while for the next answer."""
        self._stop_at = min(self._leaves_by, now.after_ms(SILENCE_MS_MAX))
        Once(self._deadlines, self._stop_at, lambda now: None)  # the node then asks again

    def _has_others(self) -> bool:
        others = (
            state.is_active
            for id, state in self._metadata.image.brokers.items()
            if id != self._registration.broker
        )
        return self.is_unfenced and any(others)

    # --- questions to the controller -----------------------------------------------------------------------

    def _ask(self, now: Now) -> None:
        if self._timer is not None:
            self._timer.is_done = True
            self._timer = None
            self._deadlines.cancelled()
        if self.is_unfenced and self._is_alone:
            return
        self._is_asking = True
        self._has_news = False
        if self.epoch < 0:
            self._register(now)
        else:
            self._beat(now)

    def _ask_after(self, now: Now, delay_ms: int) -> None:
        self._timer = Once(self._deadlines, now.after_ms(delay_ms), self._woke)

    def _woke(self, now: Now) -> None:
        self._timer = None
        self.poke(now)

    def _register(self, now: Now) -> None:
        from headrace.protocol.messages.broker_registration import (
            BrokerRegistrationRequest,
            Feature,
            Listener,
        )

        own = self._registration
        request = BrokerRegistrationRequest(
            broker_id=own.broker,
            cluster_id=self._directories.cluster_id,
            incarnation_id=own.incarnation_id,
            listeners=[
                Listener(name=name, host=end.host, port=end.port, security_protocol=end.security_protocol)
                for name, end in own.endpoints.items()
            ],
            features=[
                Feature(name=name, min_supported_version=least, max_supported_version=most)
                for name, (least, most) in own.features.items()
            ],
            rack=own.rack,
            log_dirs=list(own.directories),
            previous_broker_epoch=own.previous_epoch,
        )
        self._send(now, request, self._registered)

    def _send(self, now: Now, request: Request, then: Completion) -> None:
        timeout_ms = self._settings.current.broker_heartbeat_interval_ms
        self._channel.send(now, request, then, lane=HEARTBEATS, timeout_ms=timeout_ms, retries=False)

    def _registered(self, now: Now, answer: Any) -> None:
        self._is_asking = False
        code = ErrorCode.NOT_CONTROLLER if isinstance(answer, Unanswered) else answer.error_code
        if code == ErrorCode.NONE:
            self.epoch = answer.broker_epoch
            self._has_been_registered = True
            self._ask_after(now, RETRY_MS)  # unless the metadata with the registration comes before
            return
        if code in FATAL:
            self._reports.halt(f"the controller refuses this broker: {ErrorCode(code).text}")
            return
        assert self._started is not None
        if self._has_been_registered:  # it has lost that since, and goes on trying
            self._ask_after(now, RETRY_MS)
            return
        limit_ms = self._settings.current.initial_broker_registration_timeout_ms
        if now.mono > self._started.after_ms(limit_ms):
            reason = "there is no answer" if isinstance(answer, Unanswered) else ErrorCode(code).text
            self._reports.halt(
                f"this broker could not register with the controller for {limit_ms / 1000:g} s "
                f"(initial.broker.registration.timeout.ms): {reason}"
            )
            return
        self._ask_after(now, RETRY_MS)

    def _beat(self, now: Now) -> None:
        from headrace.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

        online = {directory.directory_id for _, directory in self._directories.online()}
        request = BrokerHeartbeatRequest(
            broker_id=self._registration.broker,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata.committed_offset - 1,
            want_shut_down=self._is_leaving,
            offline_log_dirs=[id for id in self._registration.directories if id not in online],
        )
        self._send(now, request, self._heartbeat_answered)

    def _heartbeat_answered(self, now: Now, answer: Any) -> None:
        self._is_asking = False
        code = ErrorCode.NOT_CONTROLLER if isinstance(answer, Unanswered) else answer.error_code
        if code == ErrorCode.STALE_BROKER_EPOCH:
            # another run has this broker's id, or an operator has unregistered it
            self._reports.report("warning", "registers_again", broker=self._registration.broker)
            self.epoch = -1
            self.is_unfenced = False
        if code != ErrorCode.NONE:
            self._ask_after(now, RETRY_MS)
        elif self._is_leaving:
            self._hear(now)
            self._has_left = answer.should_shut_down
            if not self._has_left:
                self._ask_after(now, RETRY_MS)
        else:
            interval_ms = self._settings.current.broker_heartbeat_interval_ms
            if self._has_news:
                interval_ms = 0
            elif answer.is_fenced:
                interval_ms = RETRY_MS
            self._ask_after(now, interval_ms)


class ControllerWatch(Waiter):
    """Looks at who leads the metadata log when that may have changed."""

    __slots__ = ("_lifecycle",)

    def __init__(self, lifecycle: BrokerLifecycle) -> None:
        super().__init__()
        self._lifecycle = lifecycle

    def woken(self, now: Now) -> None:
        self._lifecycle.look_at_controller(now)
