"""`python -m headrace.testing.beside`: a broker under test in a process of its own; `hosts.py` starts it.

The first line on stdin says what to start; each further one is a call. Every line is answered with one.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any

from headrace.testing.hosts import ThreadHost


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the test decides
    told = json.loads(sys.stdin.readline())
    directory = told["directory"] and Path(told["directory"])
    host = ThreadHost(told["settings"], directory, told["log_level"])
    if not _answer(host.start):
        return
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            _answer(host.call, asked["method"], **asked["arguments"])
    finally:
        host.stop()


def _answer(act: Any, *positional: Any, **named: Any) -> bool:
    """Whether it went well."""
    try:
        answer = {"result": act(*positional, **named)}
    except Exception as error:
        answer = {"error": str(error) or repr(error), "kind": type(error).__name__}
    print(json.dumps(answer), flush=True)
    return "result" in answer


if __name__ == "__main__":
    main()
