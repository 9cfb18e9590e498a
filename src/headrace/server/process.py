"""The process of one node: from settings to `ready`, and from a signal to a clean stop.

Start: lock the log directories, bind, open the node, listen to other controllers, wait until the node is
ready, listen to clients, print `ready`.

Stop: accept no more requests, finish the accepted ones, let the node flush and write the marker of a clean
stop, exit. A second signal ends the process at once, like kill -9: the next start has to do more.
"""

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.machines.configs.values import InvalidConfig
from headrace.node.http_settings import HttpListener
from headrace.node.security_advice import advice
from headrace.node.settings import Settings
from headrace.records import compiled
from headrace.server.clock import Clock, SystemClock
from headrace.server.connection import Channel
from headrace.server.connection_limits import ConnectionLimits, Connections
from headrace.server.core_listener import CoreListener, make_core
from headrace.server.disk import RealDisk, UnusableDisk
from headrace.server.driver import DrivenNode, Driver
from headrace.server.garbage_collection import freeze_start, return_big_buffers
from headrace.server.listeners import CannotListen, bind, bind_address, endpoint, told
from headrace.server.lock import DirectoryLock
from headrace.server.logs import Log
from headrace.storage.disk import Disk

if TYPE_CHECKING:
    from headrace.server.core_listener import Core
    from headrace.server.http_endpoint import HttpEndpoint
    from headrace.server.peer_security import PeerSecurity
    from headrace.server.tls import TlsTransport
    from headrace.server.tls_listener import TlsListener
    from headrace.server.tls_reload import CertificateFiles

BOOT_ID = "/proc/sys/kernel/random/boot_id"

# How long answers that were already given may take to leave when the process stops.
FAREWELL_S_MAX = 2.0

# The first clients come at once and must not wait for what only matters later.
SETTLED_AFTER_S = 1.0

# Kafka's default is 50, which a burst of reconnecting clients overflows; the kernel caps it at somaxconn.
BACKLOG_MIN = 1024

# After how long a thread must let another one interpret. Jobs in threads mostly wait, but not only: by
# Python's own 5 ms each stretch between two of their system calls could hold up the loop, and several of
# them several times.
SWITCH_S = 0.0005

# What "unlimited" is taken for: the usual fs.nr_open.
UNLIMITED_DESCRIPTORS = 1 << 20


class SystemRandomness:
    """The kernel's randomness. (`secrets` gives the same, and loads half of the standard library for it.)"""

    __slots__ = ()

    def randbytes(self, n: int, /) -> bytes:
        return os.urandom(n)

    def randrange(self, stop: int, /) -> int:
        # 64 bits more than needed: the remainder's bias is far below anything observable
        return int.from_bytes(os.urandom((stop.bit_length() + 71) // 8)) % stop


@dataclass(slots=True)
class Surroundings:
    """Everything outside the node that it is built from."""

    settings: Settings  # with the addresses as they really are
    disks: dict[str, Disk]
    rng: Randomness
    boot_id: str
    now: Now


def real_node(around: Surroundings) -> DrivenNode:
    from headrace.node.node import Node

    return Node(around.settings, around.disks, around.rng, around.boot_id, around.now)


MakeNode = Callable[[Surroundings], DrivenNode]


def boot_id() -> str:
    """Changes with each boot of the host. An unknown one equals no other, so that nothing is trusted."""
    try:
        with open(BOOT_ID) as file:
            return file.read().strip()
    except OSError:
        return os.urandom(16).hex()


def connection_limits(settings: Settings) -> ConnectionLimits:
    return ConnectionLimits(
        frame_bytes_max=settings.socket_request_max_bytes,
        request_bytes_max=settings.queued_max_request_bytes,
        connections_max=settings.max_connections,
        connections_per_address_max=settings.max_connections_per_ip,
        connections_per_address=settings.max_connections_per_ip_overrides,
        connections_per_listener=settings.listener_max_connections,
        spared_listeners=settings.spared_listeners,
        idle_ms_max=settings.connections_max_idle_ms,
        descriptors_max=descriptors_max(),
    )


class Process:
    """One node with its sockets, disks and threads, inside a running loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        log: Log,
        make_node: MakeNode = real_node,
        clock: Clock | None = None,
        halt: Callable[[int], object] = os._exit,
    ) -> None:
        self.settings = settings
        self.log = log
        self.clock = clock or SystemClock()
        self._make_node = make_node
        self._halt = halt
        self._servers: list[asyncio.Server | CoreListener] = []
        self._core: Core | None = None
        self._tls: dict[str, TlsListener] = {}  # by the listener's name
        self.certificates: CertificateFiles | None = None
        self._held = ExitStack()  # locks and sockets, given back in any case
        self.http: HttpEndpoint | None = None
        self.connections: Connections
        self.driver: Driver
        self.node: DrivenNode

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return ",".join(endpoint(listener) for listener in self.settings.told_listeners)

    async def start(self) -> None:
        try:
            await self._start()
        except BaseException:
            self._held.close()
            raise

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._report_loop_error)
        if not compiled.COMPILED:
            self.log.warning("record_codec_interpreted", advice=compiled.ADVICE)
        directories = tuple(dict.fromkeys((*self.settings.log_dirs, self.settings.metadata_log_dir)))
        disks: dict[str, Disk] = {}
        for directory in directories:
            try:
                self._held.callback(DirectoryLock(directory).release)
                disks[directory] = RealDisk(directory)
            except OSError as error:
                # the node serves what the others hold, unless this one has its metadata
                disks[directory] = UnusableDisk(error)
        sockets: dict[str, socket.socket] = {}
        for listener in self.settings.served_listeners:
            sockets[listener.name] = bind(listener)
            self._held.callback(sockets[listener.name].close)
        ports = {name: int(bound.getsockname()[1]) for name, bound in sockets.items()}
        http_sockets = self._bind_http()
        settings = self.settings = told(self.settings, ports)

        roots = {directory: disk.root for directory, disk in disks.items() if isinstance(disk, RealDisk)}
        self.connections = Connections(loop, self.clock, self.log, connection_limits(settings))
        self.node = self._make_node(
            Surroundings(settings, disks, SystemRandomness(), boot_id(), self.clock.now())
        )
        self.driver = Driver(loop, self.node, self.connections, disks, roots, halt=self._halt)
        self._open_audit_log(loop)
        self._warn()
        if settings.headrace_network_core:
            self._core = make_core(loop, self.connections, self.driver)
        self._tls = self._tls_listeners(loop, sockets)
        self.driver.peers.security = self._peer_security()
        self.connections.certificates_expire = self._certificates_expire
        self._watch_certificates(loop)
        self.node.try_certificates_by(self.check_certificates)
        controllers = settings.controller_listener_names
        for name in sockets.keys() & controllers:  # voters elect a leader before any of them is ready
            await self._listen(loop, name, sockets.pop(name))
        self.driver.settle()
        await self.driver.until(lambda: self.node.is_ready)
        self._look_at_settings()  # the dynamic ones are known now

        if http_sockets:
            from headrace.server.http_endpoint import HttpEndpoint

            self.http = HttpEndpoint(self)
            for http_listener, bound in http_sockets:
                await self.http.listen(http_listener, bound, self._tls.get(http_listener.name))
        for name, bound in sockets.items():
            await self._listen(loop, name, bound)
        self.connections.start_sweeping(self._look_at_settings)
        self.log.info("serving", addresses=self.bootstrap, log_dirs=",".join(directories), pid=os.getpid())

    async def _listen(self, loop: asyncio.AbstractEventLoop, name: str, bound: socket.socket) -> None:
        backlog = max(BACKLOG_MIN, self.settings.socket_listen_backlog_size)
        self._prepare(bound)
        make = self._channel_maker(name)
        tls = self._tls.get(name)

        def protocol() -> "Channel | TlsTransport":
            return make() if tls is None else tls.transport(make())

        if self._core is not None:
            self._servers.append(CoreListener(loop, self._core, bound, protocol, backlog))
        else:
            self._servers.append(await loop.create_server(protocol, sock=bound, backlog=backlog))

    def _tls_listeners(
        self, loop: asyncio.AbstractEventLoop, names: Collection[str]
    ) -> "dict[str, TlsListener]":
        wanted = [one.name for one in self.settings.listeners if one.name in names and one.uses_tls]
        wanted += [one.name for one in self.settings.http.listeners if one.uses_tls]
        if not wanted:
            return {}  # OpenSSL costs every start some milliseconds
        from headrace.node.listener_security import tls_settings
        from headrace.server.tls_listener import TlsListener

        texts = self.settings.texts
        return {name: TlsListener(loop, tls_settings(texts, name), self.connections) for name in wanted}

    def _certificates_expire(self) -> dict[str, int]:
        """When the first certificate of each TLS listener expires, in seconds since 1970."""
        return {
            name: min(facts.expires_at for facts in listener.certificates)
            for name, listener in self._tls.items()
        }

    def _peer_security(self) -> "PeerSecurity | None":
        """None: other nodes are reached by plaintext, if there are any."""
        settings = self.settings
        protocols = (settings.inter_broker_protocol, settings.controller_protocol)
        is_plain = all(protocol == "PLAINTEXT" for protocol in protocols)
        if not settings.quorum_voters or (is_plain and "broker" in settings.process_roles):
            return None
        from headrace.server.peer_security import PeerSecurity, ways_of

        ways = ways_of(settings)
        return PeerSecurity(settings.node_id, ways, SystemRandomness(), self.connections)

    def _watch_certificates(self, loop: asyncio.AbstractEventLoop) -> None:
        security = self.driver.peers.security
        ways = {} if security is None else security.ways
        loaded = {f"to {name}": way for name, way in ways.items() if way.settings is not None}
        if self._tls or loaded:
            from headrace.server.tls_reload import CertificateFiles

            self.certificates = CertificateFiles(
                loop, {**self._tls, **loaded}, self.connections, self.log, self._look_at_settings
            )

    def _use_certificates(self, certificates: "CertificateFiles") -> None:
        """Those that the current settings name."""
        from headrace.node.listener_security import tls_settings
        from headrace.server.peer_security import tls_of

        settings = self.settings
        for name in self._tls:
            certificates.use(name, partial(tls_settings, settings.tls_texts, name))
        security = self.driver.peers.security
        for name, way in ({} if security is None else security.ways).items():
            if way.settings is not None:
                certificates.use(f"to {name}", partial(tls_of, settings, name))

    def check_certificates(self, wanted: Settings) -> None:
        """InvalidConfig: a listener, or a way to other nodes, could not use what these settings name."""
        from headrace.node.listener_security import tls_settings
        from headrace.server.peer_security import tls_of

        try:
            for name, listener in self._tls.items():
                asked = tls_settings(wanted.tls_texts, name)
                if asked != listener.settings:
                    listener.check(asked)
            security = self.driver.peers.security
            for name, way in ({} if security is None else security.ways).items():
                if way.settings is not None and (of_way := tls_of(wanted, name)) != way.settings:
                    way.check(of_way)
        except (CannotListen, OSError) as error:
            raise InvalidConfig(str(error)) from error

    def _bind_http(self) -> list[tuple[HttpListener, socket.socket]]:
        found = []
        for listener in self.settings.http.listeners:
            bound = bind_address(listener.host, listener.port, listener.address, self.settings.http.key)
            self._held.callback(bound.close)
            found.append((listener, bound))
        return found

    def _warn(self) -> None:
        """Of what the settings leave open."""
        found = advice(self.settings)
        for one in found:
            facts = {"subject": one.subject, "found": one.found, "advice": one.advice}
            match one.event:
                case "listener_without_tls":
                    self.log.warning("listener_without_tls", **facts)
                case "authorizer_without_logins":
                    self.log.warning("authorizer_without_logins", **facts)
                case "anonymous_super_user":
                    self.log.warning("anonymous_super_user", **facts)
                case _:
                    assert_never(one.event)
        self.connections.open_listeners = sum(one.event == "listener_without_tls" for one in found)

    def _open_audit_log(self, loop: asyncio.AbstractEventLoop) -> None:
        settings = self.settings
        if not settings.has_audit_log:
            return
        from headrace.server.audit_log import AuditFile, AuditLog

        path = settings.headrace_audit_log_path or os.path.join(settings.metadata_log_dir, "audit.log")
        file = AuditFile(
            path, bytes_max=settings.headrace_audit_log_max_bytes, files=settings.headrace_audit_log_files
        )
        audit_log = AuditLog(loop, file, self.log, self.connections)
        try:
            audit_log.open()
        except OSError as error:
            raise CannotListen(f"headrace.audit.log.path: {path}: {error.strerror}") from error
        self._held.callback(audit_log.close)
        self.driver.audit_log = audit_log

    def _look_at_settings(self) -> None:
        """Applies dynamic settings: after a change the node's settings are another object."""
        if self.node.settings is not self.settings:
            self.settings = self.node.settings
            self.connections.limits = connection_limits(self.settings)
            if self.certificates is not None:
                self._use_certificates(self.certificates)

    def _report_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What no callback caught: running out of descriptors at accept, or a bug of ours."""
        self.log.sometimes(
            self.clock.now().mono,
            "error",
            "loop_error",
            what=context.get("message", ""),
            error=repr(context.get("exception")),
        )

    def _channel_maker(self, listener: str) -> Callable[[], Channel]:
        return lambda: Channel(self.connections, self.driver, listener)

    def _prepare(self, bound: socket.socket) -> None:
        """Kernel buffers only where asked for: a fixed size turns off its tuning. Connections inherit it."""
        settings = self.settings
        if "socket.send.buffer.bytes" in settings.texts and settings.socket_send_buffer_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_send_buffer_bytes)
        if "socket.receive.buffer.bytes" in settings.texts and settings.socket_receive_buffer_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.socket_receive_buffer_bytes)

    async def stop(self) -> None:
        """Finish what was accepted, and leave the logs clean."""
        self.log.info("stopping", connections=len(self.connections.channels))
        self.driver.shutdown()
        await self.driver.until(lambda: self.node.is_stopping)  # others have taken over what it led
        for server in self._servers:
            server.close()
        self.connections.stop_sweeping()
        if self.certificates is not None:
            self.certificates.stop()
        channels = list(self.connections.channels.values())
        for channel in channels:
            channel.stop_taking()
        await self.driver.until(lambda: self.node.is_stopped)
        for channel in channels:
            channel.close_when_sent()
        try:
            await asyncio.wait_for(self.driver.until(lambda: not self.connections.channels), FAREWELL_S_MAX)
        except TimeoutError:
            for channel in list(self.connections.channels.values()):
                channel.close("the process stops")
                channel.transport.abort()  # also one that would wait until its client takes what it has
        if self.http is not None:
            await self.http.stop()
        await self.driver.until(lambda: not self.connections.channels)
        if self._core is not None:
            self._core.stop()
        await self._finish_audit_log()
        self.driver.stop()
        self._held.close()
        self.log.info("stopped")

    async def _finish_audit_log(self) -> None:
        """Its thread writes what is left, if the disk lets it."""
        audit_log = self.driver.audit_log
        ends_at = self.clock.now().mono + FAREWELL_S_MAX
        while audit_log is not None and not audit_log.is_idle and self.clock.now().mono < ends_at:
            await asyncio.sleep(0.005)


async def serve(
    settings: Settings,
    *,
    log: Log,
    on_ready: Callable[[Process], None] | None = None,
    make_node: MakeNode = real_node,
) -> None:
    """Serve until SIGTERM or SIGINT. SIGHUP loads certificates again; without TLS it is the end, too."""
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()

    is_serving = False

    def stop() -> None:
        if asked_to_stop.is_set() or not is_serving:
            os._exit(1)  # asked twice, or nothing was accepted yet: at once
        asked_to_stop.set()

    process = Process(settings, log=log, make_node=make_node)
    has_tls = any(
        any(one.uses_tls for one in listeners)
        for listeners in (settings.served_listeners, settings.http.listeners)
    )

    def hang_up() -> None:
        if process.certificates is not None:
            process.certificates.reload()
        elif not has_tls:  # else they are about to be loaded
            stop()

    for number, act in ((signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGHUP, hang_up)):
        loop.add_signal_handler(number, act)
    await process.start()
    is_serving = True
    if on_ready is not None:
        on_ready(process)
    freeze_start()
    loop.call_later(SETTLED_AFTER_S, return_big_buffers)
    await asked_to_stop.wait()
    await process.stop()


def run(
    settings: Settings,
    *,
    log: Log | None = None,
    pid_file: str | None = None,
    make_node: MakeNode = real_node,
) -> None:
    """A node's process from its settings to its clean end; prints `ready host:port[,…]` once it serves."""

    def on_ready(process: Process) -> None:
        if pid_file is not None:
            with open(pid_file, "w") as file:
                file.write(f"{os.getpid()}\n")
        print(f"ready {process.bootstrap}", flush=True)

    raise_open_files_limit()
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(settings, log=log or Log(), on_ready=on_ready, make_node=make_node))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def raise_open_files_limit() -> None:
    """Connections and segments are descriptors; the soft limit is 1,024 only for the sake of select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, UNLIMITED_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass  # the kernel has another limit above: what there is must do, and `Connections` keeps to it


def descriptors_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
