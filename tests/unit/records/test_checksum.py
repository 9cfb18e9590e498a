"""CRC-32C: the right polynomial, from any buffer, and without a slow import."""

import subprocess
import sys
from importlib.machinery import PathFinder

import pytest

from headrace.records import checksum


def test_the_check_value_of_crc_32c() -> None:
    assert checksum.crc32c(b"123456789") == 0xE3069283
    assert checksum.crc32c(memoryview(bytearray(b"_123456789_"))[1:10]) == 0xE3069283
    assert checksum.crc32c(b"") == 0


def test_a_package_built_otherwise_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathFinder, "find_spec", lambda *_: None)
    assert checksum._load()(b"123456789") == 0xE3069283


def test_checking_batches_loads_no_metadata_of_packages() -> None:
    """A broker's start is mostly imports; this one would cost a sixth of it."""
    script = "import sys, headrace.records.batch; print('importlib.metadata' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("False\n", "")
