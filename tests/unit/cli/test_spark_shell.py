"""`headrace spark` without Spark: what is left out of its start, and what is made of its errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.cli.spark_errors import line_of, sentence_of

UNKNOWN_TOPIC = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback:
  File "/lib/headrace/spark/survey.py", line 78, in required_topics
    raise InvalidOption(f"there is no topic {', '.join(map(repr, missing))}")
headrace.spark.errors.InvalidOption: there is no topic 'clocks'
 SQLSTATE: 38000"""

REFUSED = """Job aborted: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
headrace.client.errors.ConnectionLost: the broker went away

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
headrace.client.errors.Unreachable: cannot connect to localhost:9092: connection refused

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:574)
Caused by: org.apache.spark.SparkException"""

OF_A_USER = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/lib/headrace/spark/source.py", line 3, in read
ValueError: headrace.spark.errors.InvalidOption is in the text, but it is not an error of ours"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (UNKNOWN_TOPIC, "there is no topic 'clocks'."),
        (
            REFUSED,
            "cannot connect to localhost:9092: connection refused."
            " Is a broker running there? `headrace up --sample clicks` starts one.",
        ),
        (OF_A_USER, None),
        ("division by zero", None),
    ],
)
def test_the_last_word_of_the_data_source_is_found(text, sentence):
    assert sentence_of(RuntimeError(text)) == sentence


def test_the_line_is_that_of_the_program():
    program = "def divide():\n    return 1 / 0\n\n\ndivide()\n"
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile(program, "job.py", "exec"), {})
    assert line_of(raised.value, "job.py") == 2
    assert line_of(raised.value, "other.py") is None


PROGRAM = """
import os, subprocess, sys
from headrace.cli.spark_start import quiet_start

SAYS = '''
import sys
def say(text): sys.stderr.write(text); sys.stderr.flush()
say("WARNING: Using incubator modules: jdk.incubator.vector\\\\n")
say("26/11/16 08:36:36 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform\\\\n")
say("WARN something else\\\\n")
print(flush=True)
sys.stdin.readline()
say("Using Spark's default log4j profile, said later\\\\n[Stage 1:>")
'''
try:
    with quiet_start():
        child = subprocess.Popen([sys.executable, "-c", SAYS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
        {failure}
finally:
    os.write(2, b"(started)")
    child.stdin.close()
    child.wait()
    import threading
    [thread.join() for thread in threading.enumerate() if thread.name == "spark-stderr"]
"""


def said(failure: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{failure}", failure)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_start_is_quiet_and_everything_later_is_passed_on():
    code, text = said("")
    assert code == 0
    assert sorted(text.replace("(started)", "").splitlines()) == sorted(
        ["WARN something else", "Using Spark's default log4j profile, said later", "[Stage 1:>"]
    )
    assert "(started)" in text


def test_who_cannot_start_is_heard():
    """The last words are there before the error is."""
    code, text = said("child.stdin.close(); child.wait(); raise SystemExit(3)")
    assert code == 3
    assert "WARN something else\n[Stage 1:>(started)" in text
