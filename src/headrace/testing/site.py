"""A broker inside a running loop that can be replaced under its clients: the node changes, the port stays.

A `Life` is one node with its driver and the connections it serves; the `Site` outlives it, with the port, the
disks, the clock and the faults. All of it happens in the loop's thread. The methods take and give plain
values, since a test may sit in another process.
"""

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from headrace.node.node import Node
from headrace.node.settings import Listener, Settings
from headrace.server.connection import Channel
from headrace.server.driver import Driver
from headrace.server.gate import Gate
from headrace.server.http import HttpPort, HttpRequest, response
from headrace.server.listeners import bind, bind_address, endpoint, told
from headrace.server.logs import Log
from headrace.server.process import BACKLOG_MIN, SystemDice, gate_limits
from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.testing.clocks import FINE_S, STEP_S_MIN, ShiftedClock, leaps
from headrace.testing.jobs import InlineJobs
from headrace.testing.script import RequestFault, Script
from headrace.testing.scripted_node import ScriptedNode
from headrace.testing.storage import Storage, directories_of

if TYPE_CHECKING:
    from headrace.server.registry import RegistryService

LOOPBACK = "127.0.0.1"
LOG_LINES_MAX = 2000  # the newest; a test that fails is explained by its last lines


class BrokerDown(Exception):
    """The broker does not run: it was killed, or it gave up; the message says which."""


class NobodyHome(asyncio.Protocol):
    """A connection that came between two lives: clients that were cut are back within a millisecond."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


class Life:
    """One node, from its start until it is thrown away."""

    def __init__(
        self, site: "Site", loop: asyncio.AbstractEventLoop, disks: dict[str, Disk], boot_id: str
    ) -> None:
        self.gate = Gate(loop, site.clock, site.log, gate_limits(site.settings))
        self.node = Node(site.settings, disks, SystemDice(), boot_id, site.clock.now())
        scripted = ScriptedNode(self.node, site.script, self.gate, loop)
        self.jobs: InlineJobs
        self.driver = Driver(
            loop, scripted, self.gate, disks, {}, halt=site.node_halted, make_jobs=self._make_jobs
        )
        scripted.driven_by(self.driver)
        self._listener = site.settings.client_listeners[0].name
        self._registry: RegistryService | None = None

    @property
    def registry(self) -> "RegistryService":
        """Made when somebody first asks: most tests have no schemas."""
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
            raise BrokerDown("the broker does not start on these disks; broker.log() says why")
        self.gate.start_sweeping(self._look_at_settings)

    def _look_at_settings(self) -> None:
        """Some limits of connections are dynamic settings."""
        self.gate.limits = gate_limits(self.node.settings)

    async def end(self) -> None:
        """Throw it away: nothing more is answered, written or done."""
        self.jobs.stop()
        self.gate.stop_sweeping()
        if self._registry is not None:
            self._registry.stop()
        for channel in list(self.gate.channels.values()):
            channel.close("the test has ended this broker")
        await self.driver.until(lambda: not self.gate.channels)
        self.driver.stop()

    async def end_cleanly(self) -> None:
        self.driver.shutdown()
        await self.driver.until(lambda: self.node.is_stopped or self.node.is_halted)
        await self.end()

    def look_after_logs(self) -> None:
        """Retention and compaction by the date as it is now."""
        for _ in range(2):  # what the first round has sealed and flushed, the second may compact
            self.node.broker.housekeeping.look_after_all(self.gate.clock.now())
            self.driver.settle()
            self.jobs.drain()

    def do_what_is_due(self) -> None:
        """All of it, by the clock as it is now, with nobody served meanwhile."""
        self.driver.wake()
        self.jobs.drain()


class Site:
    def __init__(self, texts: Mapping[str, str], storage: Storage, log_level: str) -> None:
        self.settings = Settings.parse(texts)
        self.clock = ShiftedClock()
        self.script = Script()
        self._log_level = log_level
        self._lines: deque[str] = deque(maxlen=LOG_LINES_MAX)
        self.log = self._new_log()
        self._storage = storage
        self._life: Life | None = None
        self._why_down = "it was not started"
        self._boot = 0
        self._reserved: list[socket.socket] = []  # bound and never listened on: the port stays ours
        self._servers: list[asyncio.Server] = []
        self._registry_port: HttpPort | None = None
        self._space_bytes: int | None = None
        self._broken = False
        self._data_disks: list[FaultyDisk] = []
        self._farewell: asyncio.Task[None] | None = None  # of a node that gave up

    # --- its life ---------------------------------------------------------------------------------------

    async def open(self) -> str:
        """Where clients find it."""
        asyncio.get_running_loop().set_exception_handler(self._report_loop_error)
        ports = {}
        for listener in self.settings.client_listeners:
            self._reserved.append(bind(listener))
            ports[listener.name] = int(self._reserved[-1].getsockname()[1])
        self.settings = told(self.settings, ports)
        await self._begin()
        await self.accept()
        return ",".join(endpoint(listener) for listener in self.settings.advertised_listeners)

    async def close(self) -> None:
        """For good; what is on a real disk is left clean."""
        self._stop_listening()
        if self._registry_port is not None:
            await self._registry_port.stop()
        self._mend()
        self._break_disks()
        if self._life is not None:
            life, self._life = self._life, None
            await life.end_cleanly()
        for reserved in self._reserved:
            reserved.close()
        self._storage.close()

    async def reset(self) -> None:
        """As it was when it was new, behind the same port: no topics, no clients, no faults, the right
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
            self._boot += 1  # a machine that starts again does not trust what was not flushed
            self._storage.lose_unsynced(SystemDice())

    async def restart(self) -> None:
        await self._end("it restarts")
        await self._begin()
        await self.accept()

    async def snapshot(self) -> int:
        self._living()
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
            disk = FaultyDisk(self._storage.disk(directory), keeps_calls=False)
            disks[directory] = disk
            if directory in settings.log_dirs:
                self._data_disks.append(disk)
        self._break_disks()
        life = Life(self, loop, disks, f"boot-{self._boot}")
        await life.begin()
        self._life = life

    async def _end(self, why: str) -> None:
        if self._life is not None:
            life, self._life = self._life, None
            self._why_down = why
            await life.end()

    def node_halted(self, code: int) -> None:
        """It could not keep its promises. Called from within the node's driver, so its end comes later."""
        self._stop_listening()
        self._why_down = "it gave up; broker.log() says why"
        life, self._life = self._life, None
        if life is not None:
            self._farewell = asyncio.get_running_loop().create_task(life.end())

    def _living(self) -> Life:
        if self._life is None:
            raise BrokerDown(f"the broker is down: {self._why_down}")
        return self._life

    # --- its port ---------------------------------------------------------------------------------------

    async def accept(self) -> None:
        """Take connections, from now on or again."""
        if self._servers or self._life is None:
            return
        loop = asyncio.get_running_loop()
        for listener in self.settings.client_listeners:
            server = await loop.create_server(
                self._channel_maker(listener), sock=bind(listener), backlog=BACKLOG_MIN
            )
            self._servers.append(server)

    async def refuse(self) -> None:
        """Cut all connections and take none."""
        self._stop_listening()
        if self._life is not None:
            await self.cut()

    async def cut(self) -> int:
        """End all connections; how many there were."""
        gate, driver = self._living().gate, self._living().driver
        channels = list(gate.channels.values())
        for channel in channels:
            channel.close("cut by the test")
        await driver.until(lambda: not any(one.connection.id in gate.channels for one in channels))
        return len(channels)

    def _channel_maker(self, listener: Listener) -> Callable[[], asyncio.BaseProtocol]:
        def make() -> asyncio.BaseProtocol:
            life = self._life
            return NobodyHome() if life is None else Channel(life.gate, life.driver, listener.name)

        return make

    def _stop_listening(self) -> None:
        for server in self._servers:
            server.close()
        self._servers = []

    # --- its registry -----------------------------------------------------------------------------------

    async def registry_url(self) -> str:
        """Where its schema registry is; the port is opened by who first asks, and stays."""
        if self._registry_port is None:
            self._registry_port = HttpPort(self._answer_registry)
            await self._registry_port.start(bind_address(LOOPBACK, 0, LOOPBACK, "registry_url"))
        return f"http://{LOOPBACK}:{self._registry_port.port}"

    async def _answer_registry(self, request: HttpRequest) -> bytes:
        if self._life is None:
            raise ConnectionError(self._why_down)
        answer = await self._life.registry.answer(request)
        return response(answer.status, answer.content_type, answer.body, with_body=request.method != "HEAD")

    # --- its log ----------------------------------------------------------------------------------------

    async def log_lines(self) -> list[str]:
        """Since the last reset."""
        return list(self._lines)

    def _report_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What no callback caught: a bug of ours, for the test that met it to show."""
        self.log.error("loop_error", what=context.get("message", ""), error=repr(context.get("exception")))

    def _new_log(self) -> Log:
        """One that has not held back anything yet: it counts by a clock that a reset puts back."""
        return Log(self._log_level, write=self._lines.append)

    # --- its clock --------------------------------------------------------------------------------------

    async def wall_ms(self) -> int:
        return self.clock.now().wall_ms

    async def advance(self, *, seconds: float, keep_sessions: bool) -> None:
        life = self._living()
        if keep_sessions:
            self.clock.shift_date(seconds)
            life.look_after_logs()
            return
        end_s = self.clock.mono_shift_s + seconds
        for leap in leaps(seconds):
            self.clock.shift(leap)
            life.do_what_is_due()
        while (left_s := end_s - self.clock.mono_shift_s) > 0:
            deadline = life.node.deadline()
            until_s = FINE_S if deadline is None else deadline - self.clock.now().mono
            self.clock.shift(min(left_s, max(until_s, STEP_S_MIN)))
            life.do_what_is_due()

    # --- its faults -------------------------------------------------------------------------------------

    async def add_fault(self, **facts: Any) -> int:
        return self.script.add(RequestFault(**facts))

    async def remove_faults(self, *, numbers: list[int]) -> None:
        for number in numbers:
            self.script.remove(number)

    async def times_left(self, *, number: int) -> int:
        return self.script.times_left(number)

    async def fill_disk(self, *, is_full: bool) -> None:
        """The directories of topics; metadata that lies elsewhere has room, and the broker lives on."""
        self._space_bytes = 0 if is_full else None
        self._break_disks()

    async def break_disk(self, *, is_broken: bool) -> None:
        self._broken = is_broken
        self._break_disks()

    async def clear_faults(self) -> None:
        self.script.clear()
        self._mend()
        self._break_disks()
        if self._life is None:
            await self._begin()
        await self.accept()

    def _mend(self) -> None:
        self._space_bytes = None
        self._broken = False

    def _break_disks(self) -> None:
        for disk in self._data_disks:
            disk.space_bytes = self._space_bytes
            disk.faults = [Fault(Fail(errno.EIO), "append", times=-1)] if self._broken else []
