"""`python -m headrace.testing.broker_process`: a broker under test in a process of its own (see `hosts.py`).

The first line on stdin has the arguments; each further line is a call. Each line gets one line as its answer.
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
    try:
        host = ThreadHost(told["settings"], directory, told["log_level"])
        _say(result=host.start())
    except Exception as error:
        _say_failure(error)
        return
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            _say(result=host.call(asked["method"], **asked["arguments"]))
        except Exception as error:
            _say_failure(error)
    host.stop()


def _say_failure(error: Exception) -> None:
    _say(error=str(error) or repr(error), kind=type(error).__name__)


def _say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
