"""A member whose client freezes its process while it closes: no Python thread runs any more."""

from __future__ import annotations

import ctypes

from confluent_kafka import Consumer

from chaos.hand import main


class Freezing(Consumer):
    def close(self) -> None:
        super().close()
        ctypes.PyDLL(None).sleep(3600)  # a call of PyDLL keeps the GIL


if __name__ == "__main__":
    main(Freezing)
