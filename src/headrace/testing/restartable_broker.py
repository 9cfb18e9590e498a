"""A broker under test in an event loop, whose node can be replaced while its port stays.

A `BrokerRun` is one node with its driver and its connections. The `RestartableBroker` has the port, the
disks, the clock and the faults, and outlives each run. Everything runs in the event loop's thread. Methods
take and return plain values, because the test may be in another process.
"""

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from headrace.machines.http.messages import HttpRequest
from headrace.node.listener_settings import Listener
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.server.connection import Channel
from headrace.server.connection_limits import Buffers, Connections
from headrace.server.driver import Driver
from headrace.server.listeners import bind, endpoint, told
from headrace.server.logs import Log
from headrace.server.process import BACKLOG_MIN, SystemRandomness, connection_limits
from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.testing.clocks import FINE_S, STEP_S_MIN, ShiftedClock, leaps
from headrace.testing.jobs import InlineJobs
from headrace.testing.registry_port import RegistryPort
from headrace.testing.script import RequestFault, Script
from headrace.testing.scripted_node import ScriptedNode
from headrace.testing.storage import Storage, directories_of

if TYPE_CHECKING:
    from headrace.server.registry import RegistryService
    from headrace.server.registry_rest import Answer

LOG_LINES_MAX = 2000  # the newest; a test that fails is explained by its last lines


class BrokerDown(Exception):
    """The broker is not running: the test killed it, or it stopped after an error; the message says which."""


class NobodyHome(asyncio.Protocol):
    """A connection that arrived between two runs: disconnected clients reconnect within a millisecond."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


class BrokerRun:
    """One node, from its start until it is discarded."""

    def __init__(
        self,
        broker: "RestartableBroker",
        loop: asyncio.AbstractEventLoop,
        disks: dict[str, Disk],
        boot_id: str,
    ) -> None:
        limits = connection_limits(broker.settings)
        self.connections = Connections(loop, broker.clock, broker.log, limits, broker.buffers)
        self.node = Node(broker.settings, disks, SystemRandomness(), boot_id, broker.clock.now())
        scripted = ScriptedNode(self.node, broker.script, self.connections, loop)
        self.jobs: InlineJobs
        self.driver = Driver(
            loop, scripted, self.connections, disks, {}, halt=broker.node_halted, make_jobs=self._make_jobs
        )
        scripted.driven_by(self.driver)
        self._listener = broker.settings.client_listeners[0].name
        self._registry: RegistryService | None = None

    @property
    def registry(self) -> "RegistryService":
        """Made at its first use: most tests have no schemas."""
        if self._registry is None:
            from headrace.server.registry import RegistryService

            self._registry = RegistryService(self.driver, self._listener)
        return self._registry

    def _make_jobs(self, *around: Any) -> InlineJobs:
        self.jobs = InlineJobs(*around)
        return self.jobs

    async def begin(self) -> None:
        self.driver.settle()
        await self.driver.until(lambda: self.node.is_ready or self.node.is_halted)
        if self.node.is_halted:
            await self.end()
            raise BrokerDown("the broker does not start on these disks; broker.log() has the reason")
        self.connections.start_sweeping(self._look_at_settings)

    def _look_at_settings(self) -> None:
        """Some limits of connections are dynamic settings."""
        self.connections.limits = connection_limits(self.node.settings)

    async def end(self) -> None:
        """Discards the node: it answers, writes and does nothing more."""
        self.jobs.stop()
        self.connections.stop_sweeping()
        if self._registry is not None:
            self._registry.stop()
        for channel in list(self.connections.channels.values()):
            channel.close("the test has ended this broker")
        await self.driver.until(lambda: not self.connections.channels)
        self.driver.stop()

    async def end_cleanly(self) -> None:
        self.driver.shutdown()
        await self.driver.until(lambda: self.node.is_stopped or self.node.is_halted)
        await self.end()

    def look_after_logs(self) -> None:
        """Runs retention and compaction with the current date."""
        for _ in range(2):  # what the first round has sealed and flushed, the second may compact
            self.node.broker.housekeeping.look_after_all(self.connections.clock.now())
            self.driver.settle()
            self.jobs.drain()

    def do_what_is_due(self) -> None:
        """Does everything that is due by the current clock, without serving requests meanwhile."""
        self.driver.wake()
        self.jobs.drain()


class RestartableBroker:
    def __init__(self, texts: Mapping[str, str], storage: Storage, log_level: str) -> None:
        self.settings = Settings.parse(texts)
        self.clock = ShiftedClock()
        self.script = Script()
        self.buffers = Buffers()
        self._log_level = log_level
        self._lines: deque[str] = deque(maxlen=LOG_LINES_MAX)
        self.log = self._new_log()
        self._storage = storage
        self._run: BrokerRun | None = None
        self._why_down = "it was not started"
        self._boot = 0
        self._reserved: list[socket.socket] = []  # bound and never listened on: the port stays ours
        self._servers: list[asyncio.Server] = []
        self._registry_port: RegistryPort | None = None
        self._space_bytes: int | None = None
        self._broken = False
        self._data_disks: list[FaultyDisk] = []
        self._farewell: asyncio.Task[None] | None = None  # of a node that gave up

    # --- its life ---------------------------------------------------------------------------------------

    async def open(self) -> str:
        """Opens the port and starts the broker; returns the address."""
        asyncio.get_running_loop().set_exception_handler(self._report_loop_error)
        ports = {}
        try:
            for listener in self.settings.client_listeners:
                self._reserved.append(bind(listener))
                ports[listener.name] = int(self._reserved[-1].getsockname()[1])
            self.settings = told(self.settings, ports)
            await self._begin()
            await self.accept()
        except BaseException:
            self._stop_listening()
            self._give_ports_back()
            raise
        return ",".join(endpoint(listener) for listener in self.settings.advertised_listeners)

    async def close(self) -> None:
        """Stops the broker; data on a real disk gets a clean stop."""
        self._stop_listening()
        if self._registry_port is not None:
            await self._registry_port.stop()
        self._mend()
        self._break_disks()
        if self._run is not None:
            run, self._run = self._run, None
            await run.end_cleanly()
        self._give_ports_back()
        self._storage.close()

    def _give_ports_back(self) -> None:
        for reserved in self._reserved:
            reserved.close()

    async def reset(self) -> None:
        """Replaces the broker by an empty one at the same port: no topics, clients or faults, and the real
        time.
        """
        await self._end("it is being reset")
        self._lines.clear()
        self.log = self._new_log()
        self._storage.forget_snapshots()
        self._storage.clear()
        self.script.clear()
        self._mend()
        self.clock.put_right()
        await self._begin()
        await self.accept()

    async def kill(self, *, lose_unsynced: bool = False) -> None:
        self._stop_listening()
        await self._end("it was killed")
        if lose_unsynced:
            self._boot += 1  # a host that starts again does not trust what was not flushed
            self._storage.lose_unsynced(SystemRandomness())

    async def restart(self) -> None:
        await self._end("it restarts")
        await self._begin()
        await self.accept()

    async def snapshot(self) -> int:
        self._running()
        return self._storage.snapshot()

    async def restore(self, *, snapshot: int) -> None:
        await self._end("a snapshot is being restored")
        self._storage.restore(snapshot)
        await self._begin()
        await self.accept()

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        settings = self.settings
        self._data_disks = []
        disks: dict[str, Disk] = {}
        for directory in directories_of(settings.log_dirs, settings.metadata_log_dir):
            disk = disks[directory] = self._storage.disk(directory)
            if directory in settings.log_dirs:  # tests break no other disk
                disks[directory] = faulty = FaultyDisk(disk, keeps_calls=False)
                self._data_disks.append(faulty)
        self._break_disks()
        run = BrokerRun(self, loop, disks, f"boot-{self._boot}")
        await run.begin()
        self._run = run

    async def _end(self, why: str) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            self._why_down = why
            await run.end()

    def node_halted(self, code: int) -> None:
        """The node has halted after an error. Called by the node's driver, so the run ends later."""
        self._stop_listening()
        self._why_down = "it stopped after an error; broker.log() has the reason"
        run, self._run = self._run, None
        if run is not None:
            self._farewell = asyncio.get_running_loop().create_task(run.end())

    def _running(self) -> BrokerRun:
        if self._run is None:
            raise BrokerDown(f"the broker is down: {self._why_down}")
        return self._run

    # --- its port ---------------------------------------------------------------------------------------

    async def accept(self) -> None:
        """Accepts connections, also after `refuse`."""
        if self._servers or self._run is None:
            return
        loop = asyncio.get_running_loop()
        for listener in self.settings.client_listeners:
            server = await loop.create_server(
                self._channel_maker(listener), sock=bind(listener), backlog=BACKLOG_MIN
            )
            self._servers.append(server)

    async def refuse(self) -> None:
        """Closes all connections and refuses new ones."""
        self._stop_listening()
        if self._run is not None:
            await self.cut()

    async def cut(self) -> int:
        """Closes all connections; returns their number."""
        connections, driver = self._running().connections, self._running().driver
        channels = list(connections.channels.values())
        for channel in channels:
            channel.close("cut by the test")
        await driver.until(lambda: not any(one.connection.id in connections.channels for one in channels))
        return len(channels)

    def _channel_maker(self, listener: Listener) -> Callable[[], asyncio.BaseProtocol]:
        def make() -> asyncio.BaseProtocol:
            run = self._run
            return NobodyHome() if run is None else Channel(run.connections, run.driver, listener.name)

        return make

    def _stop_listening(self) -> None:
        for server in self._servers:
            server.close()
        self._servers = []

    # --- its registry -----------------------------------------------------------------------------------

    async def registry_url(self) -> str:
        """The URL of the schema registry. The first call opens its port, which stays."""
        if self._registry_port is None:
            self._registry_port = RegistryPort(self._answer_registry, lambda: self.log)
            await self._registry_port.start()
        return self._registry_port.url

    async def _answer_registry(self, request: HttpRequest) -> "Answer":
        if self._run is None:
            raise ConnectionError(self._why_down)
        return await self._run.registry.answer(request)

    # --- its log ----------------------------------------------------------------------------------------

    async def log_lines(self) -> list[str]:
        """Since the last reset."""
        return list(self._lines)

    def _report_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Logs an exception that no callback caught: a bug of Headrace, which the test's report shows."""
        self.log.error("loop_error", what=context.get("message", ""), error=repr(context.get("exception")))

    def _new_log(self) -> Log:
        """A log without suppressed lines: it counts by a clock that a reset sets back."""
        return Log(self._log_level, write=self._lines.append)

    # --- its clock --------------------------------------------------------------------------------------

    async def wall_ms(self) -> int:
        return self.clock.now().wall_ms

    async def advance(self, *, seconds: float, keep_sessions: bool) -> None:
        run = self._running()
        if keep_sessions:
            self.clock.shift_date(seconds)
            run.look_after_logs()
            return
        end_s = self.clock.mono_shift_s + seconds
        for leap in leaps(seconds):
            self.clock.shift(leap)
            run.do_what_is_due()
        while (left_s := end_s - self.clock.mono_shift_s) > 0:
            deadline = run.node.deadline()
            until_s = FINE_S if deadline is None else deadline - self.clock.now().mono
            self.clock.shift(min(left_s, max(until_s, STEP_S_MIN)))
            run.do_what_is_due()

    # --- its faults -------------------------------------------------------------------------------------

    async def add_fault(self, **facts: Any) -> int:
        return self.script.add(RequestFault(**facts))

    async def remove_faults(self, *, numbers: list[int]) -> None:
        for number in numbers:
            self.script.remove(number)

    async def times_left(self, *, number: int) -> int:
        return self.script.times_left(number)

    async def fill_disk(self, *, is_full: bool) -> None:
        """Fills the directories of topics. Metadata in another directory has space, so the broker
        continues.
        """
        self._space_bytes = 0 if is_full else None
        self._break_disks()

    async def break_disk(self, *, is_broken: bool) -> None:
        self._broken = is_broken
        self._break_disks()

    async def clear_faults(self) -> None:
        self.script.clear()
        self._mend()
        self._break_disks()
        if self._run is None:
            await self._begin()
        await self.accept()

    def _mend(self) -> None:
        self._space_bytes = None
        self._broken = False

    def _break_disks(self) -> None:
        for disk in self._data_disks:
            disk.space_bytes = self._space_bytes
            disk.faults = [Fault(Fail(errno.EIO), "append", times=-1)] if self._broken else []
