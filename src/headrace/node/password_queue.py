"""Passwords that wait for their check, which takes milliseconds of a thread.

They are checked one after the other. Those that wait do so here, and not among the jobs, so that the check of
a client that hangs up can be taken back. Addresses take turns: one that sends many passwords delays its own
logins. If there is no room, those of the address with most of them have to go.
"""

from collections import deque
from collections.abc import Callable

from headrace.base.time import Now
from headrace.machines.security.errors import LoginRefused
from headrace.node.password_check import PasswordCheck
from headrace.node.ports import Jobs

# With the most iterations that is some ten seconds of work for a thread; clients wait for thirty.
WAITING_MAX = 1000

Checked = Callable[[Now, str | None], None]  # takes why the password is refused; None: it is right


class WaitingCheck:
    __slots__ = ("address", "check", "then")

    def __init__(self, address: str, check: PasswordCheck, then: Checked) -> None:
        self.address = address
        self.check = check
        self.then = then


class PasswordQueue:
    __slots__ = ("_directory", "_is_checking", "_jobs", "_queue", "_waiting", "count")

    def __init__(self, jobs: Jobs, directory: str, queue: str) -> None:
        self._jobs = jobs
        self._directory = directory
        self._queue = queue  # of the jobs
        self._is_checking = False
        self._waiting: dict[str, deque[WaitingCheck]] = {}  # by address; the first one has the next turn
        self.count = 0  # of those that wait

    def add(self, now: Now, address: str, check: PasswordCheck, then: Checked) -> WaitingCheck:
        """LoginRefused: too many wait. `then` is called later, once, unless the check is dropped before."""
        if self.count >= WAITING_MAX:
            self._make_room(now, address)
        waiting = WaitingCheck(address, check, then)
        self._waiting.setdefault(address, deque()).append(waiting)
        self.count += 1
        self._check_next()
        return waiting

    def drop(self, waiting: WaitingCheck) -> None:
        """Its client has gone. A check that runs already goes on, and `then` is called."""
        own = self._waiting.get(waiting.address)
        if own is not None and waiting in own:
            own.remove(waiting)
            self._left(waiting.address, own)

    def _make_room(self, now: Now, address: str) -> None:
        most, own = max(self._waiting.items(), key=lambda item: len(item[1]))
        if len(self._waiting.get(address, ())) >= len(own):
            raise LoginRefused(f"{WAITING_MAX} other passwords have to be checked first")
        last = own.pop()  # it has waited for the shortest time
        self._left(most, own)
        last.then(now, f"{WAITING_MAX} other passwords have to be checked first")

    def _check_next(self) -> None:
        if self._is_checking or not self._waiting:
            return
        address, own = next(iter(self._waiting.items()))
        waiting = own.popleft()
        del self._waiting[address]  # behind the others
        if own:
            self._waiting[address] = own
        self.count -= 1
        self._is_checking = True

        def checked(now: Now, result: object) -> None:
            """`result`: None, or why it is refused, or why the job has failed."""
            self._is_checking = False
            self._check_next()
            waiting.then(now, None if result is None else str(result))

        self._jobs.run(self._directory, self._queue, waiting.check, checked)

    def _left(self, address: str, own: "deque[WaitingCheck]") -> None:
        self.count -= 1
        if not own:
            del self._waiting[address]
