"""A stand-in for the process of a run, which starts in milliseconds: it does what its job's options say.

succeed   reports a batch, and ends
fail      fails, and a retry may help
refuse    fails, and a retry cannot help
crash     ends without a word
go on     reports a batch, and goes on until it is asked to stop
hang      goes on, and does not stop when asked
"""

import json
import os
import signal
import sys

task = json.loads(sys.stdin.buffer.readline())
act = task["options"]["act"]
if act == "fail twice":
    act = "fail" if task["run"] <= 2 else "succeed"


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def stop(*_: object) -> None:
    if act != "hang":
        say(fault=None, is_done=False)
        os._exit(0)


signal.signal(signal.SIGTERM, stop)
if act == "crash":
    print("out of memory", file=sys.stderr)
    sys.exit(7)
if act in ("fail", "refuse"):
    say(fault=[f"cannot {act}", "try harder", act == "fail"], is_done=False)
else:
    batch = {"source": {"clicks-0": [0, 5]}, "target": "copy", "records": 5, "took_ms": 10, "at_ms": 1}
    say(progress={"records_in": 5, "batch_count": 1, "generation": task["generation"], "recent": [batch]})
    if act == "succeed":
        say(fault=None, is_done=True)
    else:
        sys.stdin.buffer.read()  # until the runner is gone
