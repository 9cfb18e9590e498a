"""A library that is not installed: the error names what needs it and the command that brings it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.base.extras import MissingExtra, require

AVRO = "import headrace.schemas.avro"
PROTOBUF = "import headrace.schemas.protobuf"
COLUMNS = "from headrace.schemas import decoder_for; decoder_for('json', sample=[])"
TABLES = "import headrace; headrace.Consumer('127.0.0.1:1').poll_arrow(0)"
MODELS = "import headrace; headrace.msgspec_json(int)"
SPARK = "import headrace.spark; headrace.spark.session()"


@pytest.mark.parametrize(
    ("program", "missing", "says"),
    [
        (AVRO, "fastavro", 'Avro needs fastavro, which is not installed: run `pip install ".[schemas]"`'),
        (
            PROTOBUF,
            "google",
            'Protobuf needs protobuf, which is not installed: run `pip install ".[schemas]"`',
        ),
        (COLUMNS, "pyarrow", 'columns needs pyarrow, which is not installed: run `pip install ".[arrow]"`'),
        (
            TABLES,
            "pyarrow",
            'poll_arrow() needs pyarrow, which is not installed: run `pip install ".[arrow]"`',
        ),
        (
            MODELS,
            "msgspec",
            "msgspec_json() needs msgspec, which is not installed: run `pip install msgspec`",
        ),
        (SPARK, "pyspark", 'Spark needs pyspark, which is not installed: run `pip install ".[spark]"`'),
        (SPARK, "pandas", 'Spark needs pandas, which is not installed: run `pip install ".[spark]"`'),
    ],
)
def test_what_is_missing_is_told_with_the_command_that_brings_it(
    program: str, missing: str, says: str
) -> None:
    if program is SPARK and missing != "pyspark":
        pytest.importorskip("pyspark")
    hidden = (
        "import sys, importlib.machinery\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "import importlib.util; real = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *_: None if name == {missing!r} else real(name, *_)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden + program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert says in done.stderr.splitlines()[-1]


def test_what_is_there_is_taken() -> None:
    require("json", "a test")
    with pytest.raises(MissingExtra, match="a test needs no_such_library"):
        require("no_such_library", "a test")
