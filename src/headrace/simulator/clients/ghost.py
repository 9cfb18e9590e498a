"""What a network may do to a producer: a frame that was sent long ago arrives once more, on another
connection.

It sends again what copiers sent, word for word: batches of transactions, offsets, and ends. With the second
transaction protocol (KIP-890) none of it may have any effect, whenever it comes.
"""

from headrace.simulator.clients.session import Ask, Pause, Script, Story
from headrace.simulator.machine import Machine

REMEMBERED = 60  # of the last requests of all copiers


class Ghost(Script):
    def __init__(self, machine: Machine, name: str) -> None:
        super().__init__(machine, name)
        self._overheard: list[Ask] = []
        self.is_laid = False  # haunts nobody any more

    def overhear(self, asked: Ask) -> None:
        self._overheard = [*self._overheard[-REMEMBERED:], Ask(asked.api_key, asked.version, asked.body)]

    def story(self) -> Story:
        while not self.is_laid:
            yield Pause(self.world.between(0.05, 0.6))
            if self._overheard:
                yield self.world.dice.choice(self._overheard)
