"""Child process that parses and compares schemas for the registry; it is killed when it takes too long.

Every client that reaches the port may send a schema. A thread cannot be ended during a comparison, and slows
down every request of the broker while it computes. A child process can be killed, and slows down nothing. It
has a copy of the registry: a new child gets all of it, an existing child gets the new records.
"""

import asyncio
import math
import pickle  # noqa: TID251  # between us and our own child, over a private pipe
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from headrace.machines.http.messages import HttpRequest
from headrace.machines.schema_registry.errors import RegistryError
from headrace.machines.schema_registry.records import Record, Unreadable
from headrace.machines.schema_registry.registry import Registry
from headrace.server.registry_rest import Answer, answer
from headrace.server.worker import Worker, WorkerLost
from headrace.storage.disk import Disk
from headrace.storage.jobs import JobKind

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

# How much of a processor's time reading and comparing schemas may take: schemas of a thousand fields need
# some tenths of a second. The kernel enforces the first limit. Where it cannot, and for a child that gets no
# processor time, the second one limits the wall clock. It is less than an answer may take (http.py), so that
# the client gets an error.
CPU_S_MAX = 4
WORK_S_MAX = 30.0

# An idle child is ended after this long: its memory matters more than the time to start another one.
IDLE_S = 30.0

# Records that an existing child gets one by one; if there are more, it gets the whole registry.
NEWS_MAX = 1_000


class SchemaJob(NamedTuple):
    """A request for the child to answer, and what it has to replay before."""

    registry: bytes | None  # all of it, pickled, for a child that has none or an old one
    news: tuple[Record, ...]
    request: HttpRequest
    hidden: frozenset[str] = frozenset()  # subjects that the client may not know of
    kind: JobKind = JobKind.PROMPT

    def run(self, disk: Disk) -> Answer:
        _limit_cpu()
        if self.registry is not None:
            _copies[:] = [pickle.loads(self.registry)]  # nosec B301  # from our own process
        (registry,) = _copies
        for record in self.news:
            learn(registry, record)
        request, hidden = self.request, self.hidden
        sees = (lambda subject: subject not in hidden) if hidden else None
        return answer(registry, request.method, request.target, request.body, sees)


_copies: list[Registry] = []  # in the child: the one that it keeps


def _limit_cpu() -> None:
    """In the child: it is ended by a signal when this job has used up its time."""
    if resource is None:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime) + CPU_S_MAX
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


class Superseded(Exception):
    """The registry became another one while the child was at work: ask again."""


def learn(registry: Registry, record: Record) -> Unreadable | None:
    """Replays a record; gives why it cannot be read, if so."""
    try:
        registry.replay(record)
    except Unreadable as error:
        return error
    return None


class SchemaWorker:
    """One request at a time: `prepare` it while nobody changes the registry, then wait for its `answer`."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "schema-worker")  # it only waits for the child
        self._worker: Worker | None = None
        self._news: list[Record] | None = None  # what the child has not heard of; None: it has no registry
        self._idle: asyncio.TimerHandle | None = None

    def heard(self, record: Record) -> None:
        """The registry has learned this."""
        if self._news is not None:
            self._news.append(record)
            if len(self._news) > NEWS_MAX:
                self._news = None

    def forget(self) -> None:
        """The registry is another one, or the child has to end: the next one begins with all there is."""
        self._cancel_timer()
        worker, self._worker = self._worker, None
        self._news = None
        if worker is not None:
            worker.kill()

    def prepare(
        self, registry: Registry, request: HttpRequest, hidden: frozenset[str] = frozenset()
    ) -> SchemaJob:
        whole, news = None, self._news
        if news is None:
            whole, news = pickle.dumps(registry, pickle.HIGHEST_PROTOCOL), []
        self._news = []
        return SchemaJob(whole, tuple(news), request, hidden)

    async def answer(self, job: SchemaJob) -> Answer:
        """RegistryError when it takes too long; a caller that is cancelled ends the child as well."""
        self._cancel_timer()
        if self._worker is None:
            if job.registry is None:
                raise Superseded
            self._worker = Worker(niceness=0)  # a client waits
        worker = self._worker
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[Any] = loop.run_in_executor(self._thread, worker.call, "/", job)
        try:
            async with asyncio.timeout(WORK_S_MAX):
                found: Answer = await asyncio.shield(asked)
        except BaseException as error:
            asked.add_done_callback(_look_at)  # the thread sees the end of the child
            if isinstance(error, WorkerLost) and self._worker is not worker:
                raise Superseded from None
            self.forget()
            if isinstance(error, TimeoutError):
                raise _too_long(f"{WORK_S_MAX:g} s") from None
            if isinstance(error, WorkerLost) and error.exit_code == -signal.SIGXCPU:
                raise _too_long(f"{CPU_S_MAX} s of processor time") from None
            raise
        self._idle = loop.call_later(IDLE_S, self.forget)
        return found

    def _cancel_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def stop(self) -> None:
        self.forget()
        self._thread.shutdown(wait=False)


def _too_long(limit: str) -> RegistryError:
    return RegistryError(50002, f"Reading and comparing the schemas took more than {limit} and was stopped")


def _look_at(asked: "asyncio.Future[Any]") -> None:
    if not asked.cancelled():
        asked.exception()
