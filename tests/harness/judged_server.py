"""`python judged_server.py CONFIG …`: `python -m headrace.server` under the judge of answers' order.

The process ends at the first answer that leaves before its turn: a client might not have noticed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

MARK = "answers_out_of_order"
EXIT_CODE = 99


def _end(what: str) -> None:
    os.write(2, f"{MARK}: {what}\n".encode())
    os._exit(EXIT_CODE)


def main() -> int:
    sys.path[0] = str(Path(__file__).parent.parent)  # not this directory, which has a module `headrace`
    from harness.answer_order import watch
    from headrace.server.__main__ import main as serve

    watch(_end)
    return serve(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
