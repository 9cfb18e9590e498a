"""Formats whose library is not installed: whatever needs one names it, and the extra that brings it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
for name in ("google", "google.protobuf", "fastavro"):
    sys.modules[name] = None
import pyarrow as pa
from headrace.schemas import MissingLibrary, Schema, SchemaType, decoder_for, encoder_for
from headrace.schemas.reading import Reading

AVRO = '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]}'
PROTOBUF = 'syntax = "proto3"; message A { int32 a = 1; }'
COLUMNS = pa.struct([("a", pa.int32())])

class Registered:
    def schema(self, id):
        return Schema(PROTOBUF, SchemaType.PROTOBUF) if id == 1 else Schema(AVRO)

    def imports(self, schema):
        return []

STEPS = {
    "read protobuf": lambda: Reading(Registered(), as_dict=True).read(bytes([0, 0, 0, 0, 1, 0])),
    "read avro": lambda: Reading(Registered(), as_dict=True).read(bytes([0, 0, 0, 0, 2, 0])),
    "columns of protobuf": lambda: decoder_for("protobuf", schema=PROTOBUF),
    "columns of avro": lambda: decoder_for("avro", schema=AVRO),
    "columns to protobuf": lambda: encoder_for("protobuf", COLUMNS, schema=PROTOBUF),
    "columns to avro": lambda: encoder_for("avro", COLUMNS, schema=AVRO),
}
for name, step in STEPS.items():
    try:
        step()
    except MissingLibrary as error:
        print(f"{name}: {error} {error.advice}")
    except BaseException as error:
        print(f"{name}: {error!r}")
"""


def test_what_is_missing_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True
    )
    said = done.stdout.splitlines()
    assert len(said) == 6
    for line in said:
        assert ("protobuf" if "protobuf" in line.partition(":")[0] else "fastavro") in line.partition(":")[
            2
        ], line
        assert "[schemas]" in line, line
