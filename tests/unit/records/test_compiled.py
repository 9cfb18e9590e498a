"""Which of its two forms the codec runs in is known, and no import says anything about it."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from headrace.records import compiled

SOURCE = Path(compiled.__file__).parents[1]

WITHOUT_CYTHON = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.lower().split(".")[0] == "cython":
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
from headrace.client.producer import _appender
from headrace.records import compiled, reader
from headrace.records._columns import Columns
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.fetched import Fetched
raw = build_batch([(1, b"k", b"v", (("h", None),))], codec=4)
assert reader.read_rows(raw, 0, read_header(raw)) == [(0, 1, b"k", b"v", (("h", None),))]
assert Fetched("t", 0, raw, 0).take_messages(5)[0].headers == (("h", None),)
columns = Columns()
assert Fetched("t", 0, raw, 0).take_columns(columns)
assert columns.row_count == 1
print(compiled.COMPILED)
"""


def test_the_flag_tells_the_truth() -> None:
    """Of all compiled modules: they are built together or not at all."""
    for path in (
        path
        for package in ("records", "protocol", "client/producer")
        for path in SOURCE.glob(f"{package}/_[a-z]*.py")
    ):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        assert str(import_module(name).__file__).endswith(".py") is not compiled.COMPILED


def test_an_installation_without_compiler_and_without_cython_works_and_is_silent(tmp_path: Path) -> None:
    """The source files alone, as pip leaves them when nothing could be compiled."""
    for path in SOURCE.rglob("*.py"):
        copy = tmp_path / "headrace" / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_CYTHON],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("False\n", "", 0)
