"""Duplicated frames: a frame that a producer sent long ago arrives once more, on another connection.

It sends the frames of copiers again, byte for byte: batches of transactions, offsets, and ends. With the
second transaction protocol (KIP-890) none of them may have an effect, whenever they arrive.
"""

from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.host import Host

REMEMBERED = 60  # of the last requests of all copiers


class Ghost(Script):
    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host, name)
        self._overheard: list[Ask] = []
        self.is_laid = False  # haunts nobody any more

    def overhear(self, asked: Ask) -> None:
        self._overheard = [*self._overheard[-REMEMBERED:], Ask(asked.api_key, asked.version, asked.body)]

    def story(self) -> Story:
        while not self.is_laid:
            yield Pause(self.world.between(0.05, 0.6))
            if self._overheard:
                yield self.world.rng.choice(self._overheard)
