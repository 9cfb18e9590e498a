"""Keys and values decoded by a schema registry, for `consume`: Avro, Protobuf and JSON become JSON.

A record that cannot be decoded is shown as it is, with a note that says why, and the command continues. If
the registry does not answer, the command ends, because the records are not the cause.
"""

import base64
import json
import math
import time
from collections.abc import Callable
from datetime import date, datetime
from datetime import time as time_of_day
from typing import Any

from headrace.cli.terminal import count_text, say
from headrace.client.cluster import TopicPartition
from headrace.records._messages import Message
from headrace.records.json_lines import write_json_line
from headrace.schemas.errors import MissingLibrary, RegistryTrouble, SchemaUnknown
from headrace.schemas.reading import Reading
from headrace.schemas.registry import Registry
from headrace.schemas.wire import GUID_MAGIC, GUID_PREFIX_BYTES, KEY_HEADER, PREFIX_BYTES, VALUE_HEADER

NOTES_MAX = 10  # a topic without any schema would fill the screen
UNKNOWN_S = 10.0  # an id that the registry does not know is asked about again after this long
BROKEN = (RegistryTrouble, MissingLibrary)  # no record is to blame: the command ends


class Decoder:
    """Renders records with their decoded parts; counts those that could not be decoded."""

    def __init__(self, url: str, parts: tuple[str, ...], timeout_s: float) -> None:
        self._reading = Reading(Registry(url, timeout_s=timeout_s), as_dict=True)
        self._parts = parts
        self._unknown: dict[bytes, tuple[float, str]] = {}
        self.undecodable = 0

    def renderer(self, render: Callable[[Message], bytes]) -> Callable[[Message], bytes]:
        """Hands `render` a record whose decoded parts are JSON text; notes go to stderr."""

        def rendered(record: Message) -> bytes:
            values, faults = self._decoded(record)
            self._note(record, faults)
            texts = {part: json_text(value).encode() for part, value in values.items() if value is not None}
            return render(
                Message(
                    record.topic,
                    record.partition,
                    record.offset,
                    record.timestamp_ms,
                    record.timestamp_type,
                    texts.get("key", record.key),
                    texts.get("value", record.value),
                    record.headers,
                )
            )

        return rendered

    def json_line(self, record: Message) -> bytes:
        """One JSON line: decoded parts as the values that they are, and why others are not decoded."""
        values, faults = self._decoded(record)
        self.undecodable += bool(faults)
        shown = json.loads(write_json_line(record)) | values
        if faults:
            shown["undecodable"] = faults
        return json_text(shown).encode() + b"\n"

    def finish(self) -> None:
        """Prints how many records beyond the first ten could not be decoded."""
        if self.undecodable > NOTES_MAX:
            more = count_text(self.undecodable - NOTES_MAX, "more record")
            say(f"{more} could not be decoded", err=True)

    def _note(self, record: Message, faults: dict[str, str]) -> None:
        if not faults:
            return
        self.undecodable += 1
        if self.undecodable <= NOTES_MAX:
            at = TopicPartition(record.topic, record.partition)
            said = "; ".join(f"the {part} is printed without decoding: {why}" for part, why in faults.items())
            say(f"{at} offset {record.offset}: {said}", err=True)

    def _decoded(self, record: Message) -> tuple[dict[str, Any], dict[str, str]]:
        """Values by part, and reasons by part."""
        values: dict[str, Any] = {}
        faults: dict[str, str] = {}
        for part in self._parts:
            id_bytes = _id_bytes(record, part)
            if (reason := self._reason(id_bytes)) is not None:
                faults[part] = reason
                continue
            try:
                values[part] = self._reading.read_message(record, part)
            except BROKEN:
                raise
            except SchemaUnknown as error:
                self._unknown[id_bytes] = time.monotonic(), str(error)
                faults[part] = str(error)
            except Exception as error:  # libraries raise anything for garbage
                faults[part] = str(error).strip() or type(error).__name__
        return values, faults

    def _reason(self, id_bytes: bytes) -> str | None:
        """Why this id cannot be read, if that was asked a moment ago."""
        asked_at, reason = self._unknown.get(id_bytes, (0.0, ""))
        return reason if reason and time.monotonic() - asked_at < UNKNOWN_S else None


def _id_bytes(record: Message, part: str) -> bytes:
    """Where the schema's id stands: in a header, or in front of the data."""
    name = KEY_HEADER if part == "key" else VALUE_HEADER
    for header, value in record.headers:
        if header == name and value is not None:
            return bytes(value[:GUID_PREFIX_BYTES])
    data = record.key if part == "key" else record.value
    if not data:
        return b""
    return bytes(data[: GUID_PREFIX_BYTES if data[0] == GUID_MAGIC else PREFIX_BYTES])


# --- values as JSON ---------------------------------------------------------------------------------------


def json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:  # JSON has no numbers for these
        return json.dumps(_finite(value), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """What JSON has no type for: bytes as in JSON lines of records, times in ISO 8601, decimals as text."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    return str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
