"""Two other implementations read our bytes, see the same values, and write the same bytes again.

kafka-python interprets definitions at 4.3 level for the pairs it has; kio has a class per version. Neither
has everything; how much they have is asserted, so that the comparison cannot fade away.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import random
import uuid
from types import ModuleType
from typing import Any, Literal

import pytest
from kafka.protocol.api_message import ApiMessage
from kio.index import UnknownAPIKey, UnknownEntity, load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from harness.messages import carried, name_of, request_and_response_types, sample
from headrace.protocol.compiler import codec
from headrace.protocol.messages.api_versions import ApiVersionsResponse
from headrace.protocol.notation import Message, Struct

SEEDS = range(3)


def kafka_python_types() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for package in ("admin", "consumer", "metadata", "producer"):
        parent = importlib.import_module(f"kafka.protocol.{package}")
        modules = [parent, *(_modules(parent))]
        for module in modules:
            found |= {
                name: kind
                for name, kind in vars(module).items()
                if isinstance(kind, type) and issubclass(kind, ApiMessage) and kind is not ApiMessage
            }
    return found | {
        name: kind
        for name, kind in vars(importlib.import_module("kafka.protocol.sasl")).items()
        if isinstance(kind, type) and issubclass(kind, ApiMessage) and kind is not ApiMessage
    }


def _modules(package: ModuleType) -> list[ModuleType]:
    return [
        importlib.import_module(f"{package.__name__}.{found.name}")
        for found in pkgutil.iter_modules(package.__path__)
    ]


KAFKA_PYTHON = kafka_python_types()


def kio_type(kind: type[Message], version: int) -> Any:
    entity: Literal[EntityType.request, EntityType.response] = (
        EntityType.request if kind.__name__.endswith("Request") else EntityType.response
    )
    try:
        return getattr(load_payload_module(kind.KEY, version, entity), kind.__name__)
    except (UnknownAPIKey, UnknownEntity):
        return None


def cases(has: Any) -> list[tuple[type[Message], int]]:
    return [
        (kind, version)
        for kind in request_and_response_types()
        for version in range(kind.VERSIONS.first, kind.VERSIONS.last + 1)
        if has(kind, version)
    ]


def in_kafka_python(kind: type[Message], version: int) -> bool:
    theirs = KAFKA_PYTHON.get(kind.__name__)
    return theirs is not None and version <= theirs.max_version


KAFKA_PYTHON_CASES = cases(in_kafka_python)
KIO_CASES = cases(kio_type)


def assert_same(ours: Any, theirs: Any, version: int, where: str) -> None:
    """Compares what the version carries, field by field, by name."""
    if isinstance(ours, Struct):
        for field in carried(type(ours), version):
            # kafka-python calls topic_authorized_operations just authorized_operations
            name = field.name if hasattr(theirs, field.name) else field.name.partition("_")[2]
            assert_same(getattr(ours, field.name), getattr(theirs, name), version, f"{where}.{field.name}")
    elif isinstance(theirs, set):
        assert {bit for bit in range(32) if ours >> bit & 1} == theirs, where
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for number, (mine, other) in enumerate(zip(ours, theirs)):
            assert_same(mine, other, version, f"{where}[{number}]")
    else:
        assert ours == (theirs.bytes if isinstance(theirs, uuid.UUID) else theirs), where


@pytest.mark.parametrize(("kind", "version"), KAFKA_PYTHON_CASES, ids=name_of)
def test_kafka_python_agrees(kind: type[Message], version: int) -> None:
    for seed in SEEDS:
        message = sample(kind, version, random.Random(seed))
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0  # with an error kafka-python reads every version as version 0
        encoded = codec(kind, version).encode(message)
        theirs = KAFKA_PYTHON[kind.__name__].decode(encoded, version=version)
        assert_same(codec(kind, version).decode(encoded), theirs, version, kind.__name__)
        theirs._header = None  # a decoded one lacks it, and encoding asks for it
        assert theirs.encode(version=version) == encoded


@pytest.mark.parametrize(("kind", "version"), KIO_CASES, ids=name_of)
def test_kio_agrees(kind: type[Message], version: int) -> None:
    theirs = kio_type(kind, version)
    read, write = entity_reader(theirs), entity_writer(theirs)
    for seed in SEEDS:
        encoded = codec(kind, version).encode(sample(kind, version, random.Random(seed)))
        entity, size = read(encoded, 0)
        assert size == len(encoded)
        written = io.BytesIO()
        write(written, entity)
        assert written.getvalue() == encoded


def test_the_oracles_know_most_of_it() -> None:
    assert len({kind for kind, _ in KAFKA_PYTHON_CASES}) >= 100
    assert len(KAFKA_PYTHON_CASES) >= 400
    assert len(KIO_CASES) >= 400
