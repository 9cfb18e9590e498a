"""Connections of a scripted client: it connects, reconnects, and closes a connection that does not answer.

`SimulatedClient` is for clients with several requests in flight. A `Script` sends one request after the
other, as a generator: `answer = yield Ask(...)`, where None means that there will be no answer.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from headrace.simulator.host import Host
from headrace.simulator.nodes import Nodes
from headrace.simulator.wire import Wire

ANSWER_TIMEOUT_S = 8.0  # beyond every wait that a request may ask for


class SimulatedClient:
    def __init__(self, host: Nodes, name: str) -> None:
        self.host = host
        self.world = host.world
        self.history = host.history
        self.name = name
        self.patience_s = ANSWER_TIMEOUT_S  # then it hangs up
        self.wire: Wire | None = None
        self._asked = 0
        self._answered = 0

    # --- what a kind of client says ---------------------------------------------------------------

    def connected(self) -> None:
        raise AssertionError("each client says how it begins")

    def got(self, asked: Any, answer: Any) -> None:
        raise AssertionError("each client says what an answer means to it")

    def disconnected(self) -> None:
        """Nothing that was asked will be answered any more."""

    def promised(self, asked: Any, answer: Any, /) -> None:
        """An answer left the node."""

    def chosen(self) -> Host:
        """Where it connects to."""
        return self.host.reach(None)

    # --- the rest ---------------------------------------------------------------------------------

    def begin(self) -> None:
        self._connect()

    def ask(
        self,
        api_key: int,
        version: int,
        body: Any,
        asked: Any,
        *,
        is_answered: bool = True,
        at_once: bool = False,
    ) -> None:
        assert self.wire is not None
        self.wire.send(api_key, version, body, asked, is_answered=is_answered, at_once=at_once)
        if is_answered and self.wire is not None:
            self._asked += 1
            wire, number = self.wire, self._asked
            self.world.after(self.patience_s, lambda: self._check(wire, number))

    def hang_up(self) -> None:
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.close()
            self._over()

    def answered(self, asked: Any, answer: Any, /) -> None:
        self._answered += 1
        self.got(asked, answer)

    def broken(self, wire: Wire, /) -> None:
        if wire is self.wire:
            self.wire = None
            self._over()

    def _check(self, wire: Wire, number: int) -> None:
        if self.wire is wire and self._answered < number:
            self.hang_up()

    def _over(self) -> None:
        self._asked = self._answered = 0
        self.disconnected()
        self.world.after(self.world.between(0.01, 0.2), self._connect)

    def _connect(self) -> None:
        if self.wire is not None:
            return
        wire = Wire(self.chosen(), self)
        if wire.is_open:
            self.wire = wire
            self.connected()
        else:
            self.world.after(self.world.between(0.02, 0.2), self._connect)


@dataclass(slots=True)
class Ask:
    api_key: int
    version: int
    body: Any
    promised: Callable[[Any], None] | None = None  # with the answer when it leaves the node


@dataclass(slots=True)
class Pause:
    seconds: float


Story = Generator[Ask | Pause, Any, None]


class Script(SimulatedClient):
    def __init__(self, host: Nodes, name: str) -> None:
        super().__init__(host, name)
        self._story: Story | None = None
        self._wants: Ask | None = None  # until it can be asked, and while it is
        self._is_asked = False
        self.is_over = False

    def story(self) -> Story:
        raise AssertionError("each script has a story")

    def begin(self) -> None:
        self._story = self.story()
        super().begin()
        self._go_on(None)

    def connected(self) -> None:
        if self._wants is not None and not self._is_asked:
            self._is_asked = True
            self.ask(self._wants.api_key, self._wants.version, self._wants.body, self._wants)

    def disconnected(self) -> None:
        if self._is_asked:
            self._go_on(None)

    def promised(self, asked: Any, answer: Any, /) -> None:
        if asked.promised is not None:
            asked.promised(answer)

    def got(self, asked: Any, answer: Any) -> None:
        self._go_on(answer)

    def _go_on(self, answer: Any) -> None:
        assert self._story is not None
        self._wants, self._is_asked = None, False
        try:
            wish = self._story.send(answer)
        except StopIteration:
            self.is_over = True
            return
        match wish:
            case Pause(seconds):
                self.world.after(seconds, lambda: self._go_on(None))
            case Ask():
                self._wants = wish
                if self.wire is not None:
                    self.connected()
