"""None of our clients uses more memory than its settings allow, or loops without progress."""

from headrace.simulator.history import Event, MemoryHeld, SpunIdle, Violation


class MemoryBounded:
    name = "memory_bounded"

    def see(self, event: Event, /) -> None:
        match event:
            case MemoryHeld(client, what, held_bytes, bytes_max) if held_bytes > bytes_max:
                raise Violation(f"{client} holds {held_bytes} bytes of {what}, {bytes_max} are allowed")
            case SpunIdle(client, wakes):
                raise Violation(f"{client} was woken {wakes} times within a second")
            case _:
                pass
