"""Members that are killed together, each in its own process, and the threads that read what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from chaos.storm_journal import Journal

TESTS = Path(__file__).resolve().parents[1]
WAIT_S = 120.0  # without anything happening: a machine that has other work to do is slow, and no fault
FROZEN_AFTER_S = 10.0
STACKS = "Timeout ("  # with it faulthandler begins to write the stacks


class HandProcess:
    """One member, as the storm sees it."""

    def __init__(
        self,
        crew: str,
        number: int,
        settings: dict[str, object],
        topic: str,
        journal: Journal,
        logs: Path,
        *,
        module: str = "chaos.hand",
        frozen_after_s: float = FROZEN_AFTER_S,
    ) -> None:
        self.crew, self.name, self.client_id = crew, f"{crew}/{number}", f"{crew}-{number}"
        self.journal = journal
        self.log, self.stacks = logs / f"{self.client_id}.log", logs / f"{self.client_id}.stacks"
        self.is_leaving = False
        self._was_killed = False
        arguments = [str(number), json.dumps(settings | {"client.id": self.client_id}), topic]
        arguments += [str(self.stacks), str(frozen_after_s)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": str(TESTS)},
                text=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def leave(self) -> None:
        self.is_leaving = True
        self._order("leave")

    def ask_state(self) -> None:
        self._order("state")

    def is_running(self) -> bool:
        return self.process.poll() is None

    def is_closing(self) -> bool:
        """A member that freezes before can be put out of the group too, after its session's end."""
        return self.name in self.journal.closing

    def is_frozen(self) -> bool:
        """No Python thread of the process could run for twice `frozen_after_s`: its stacks were written a
        second time, so the first time is complete.
        """
        return len(self._stacks()) > 1

    def stacks_told(self) -> str:
        stacks = self._stacks()
        return stacks[0].partition("\n")[2].strip() if stacks else "it has not written any stacks"

    def _stacks(self) -> list[str]:
        """As often as they were written."""
        return self.stacks.read_text().split(STACKS)[1:] if self.stacks.exists() else []

    def kill(self) -> None:
        """The end comes later: `close` waits for it."""
        self._was_killed = True
        self.process.kill()

    def close(self) -> None:
        """Waits until the process has ended and everything that it printed is in the journal."""
        self.process.wait()
        self._listener.join(WAIT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # an order that the process did not read
                pipe.close()

    def _order(self, line: str) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the process has ended: the listener judges how
            print(line, file=self.process.stdin, flush=True)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                if line.endswith("\n"):  # the last line of a killed process may be cut
                    self.journal.add(self.crew, json.loads(line))
        except Exception:
            self.journal.fail(self.name, traceback.format_exc())
        code = self.process.wait()
        if not self._was_killed and (code != 0 or not self.is_leaving):
            self.journal.fail(self.name, f"ended with {code}: {self.log.read_text(errors='replace')[-4000:]}")


class Crew:
    """Members that are killed together."""

    def __init__(
        self, name: str, settings: dict[str, object], topic: str, journal: Journal, logs: Path
    ) -> None:
        self.name, self.settings, self.topic, self.journal, self.logs = name, settings, topic, journal, logs
        self.aboard: set[int] = set()
        self.hands: dict[int, HandProcess] = {}  # also those that were ordered to leave

    def join(self) -> None:
        number = len(self.hands)
        self.hands[number] = HandProcess(
            self.name, number, self.settings, self.topic, self.journal, self.logs
        )
        self.aboard.add(number)

    def leave(self, number: int) -> None:
        self.aboard.remove(number)
        self.hands[number].leave()

    def dismiss(self) -> None:
        for number in list(self.aboard):
            self.leave(number)

    def kill(self) -> None:
        for hand in self.hands.values():
            hand.kill()
        for hand in self.hands.values():
            hand.process.wait()
        died_at = time.monotonic()
        for hand in self.hands.values():
            hand.close()
        self.journal.died(self.name, died_at)


def wait_until_ended(
    hands: Iterable[HandProcess], client_ids: Callable[[], set[str]], wait_s: float = WAIT_S
) -> tuple[list[HandProcess], list[HandProcess]]:
    """Members that were ordered to leave: those whose client froze after it had left the group, which are
    killed, and those that have not ended in time. `client_ids` asks the broker who is in the group.
    """
    frozen: list[HandProcess] = []
    end = time.monotonic() + wait_s
    running = list(hands)
    while running and time.monotonic() < end:
        suspects = [hand for hand in running if hand.is_running() and hand.is_closing() and hand.is_frozen()]
        members = client_ids() if suspects else set()
        for hand in suspects:
            if hand.client_id not in members:
                hand.kill()
                frozen.append(hand)
        ended = [hand for hand in running if hand in frozen or not hand.is_running()]
        for hand in ended:
            hand.close()
        running = [hand for hand in running if hand not in ended]
        time.sleep(0.05)
    return frozen, running
