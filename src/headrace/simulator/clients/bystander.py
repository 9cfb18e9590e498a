"""A producer that initializes its transactional ids again and again, and never writes anything.

So a coordinator writes while no other client uses it. What goes wrong with such a write also affects the
transactions that the coordinator is about to end.
"""

from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.simulator.clients.member import TRANSACTION, found
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.host import Host

INIT_PRODUCER_ID = 22
IDS = 8  # enough that every partition of the coordinator's topic has one
TIMEOUT_MS = 3_000


class Bystander(Script):
    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host, name)
        self.is_stopping = False

    def story(self) -> Story:
        while not self.is_stopping:
            name = f"{self.name}{self.world.rng.randrange(IDS)}"
            yield from found(TRANSACTION, name)
            yield Ask(
                INIT_PRODUCER_ID,
                5,
                InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS),
            )
            yield Pause(self.world.between(0.1, 0.8))
