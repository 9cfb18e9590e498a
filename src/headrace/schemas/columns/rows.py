"""Decoding row by row, for formats that Arrow does not read itself."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.schemas.columns.decoder import Decoded, Failure
from headrace.schemas.errors import RegistryTrouble, SchemaUnknown
from headrace.schemas.wire import PREFIX_BYTES

Decode = Callable[[bytes, bytes | None], Any]

# What Arrow raises for a value that is none of its type.
_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def decoded_rows(
    values: pa.Array | pa.ChunkedArray, id_headers: pa.Array | None, decode: Decode, kind: pa.StructType
) -> Decoded:
    """Decodes row by row. `decode` gets a row's bytes and its header, and may raise anything."""
    data = values.to_pylist()
    headers: Sequence[bytes | None] = [None] * len(data) if id_headers is None else id_headers.to_pylist()
    rows: list[Any] = [None] * len(data)
    failures = []
    unknown: dict[bytes, str] = {}  # a batch may be full of one unknown id, which is asked for once
    for row, (value, header) in enumerate(zip(data, headers, strict=True)):
        if value is None:
            continue
        if unknown and (reason := unknown.get(value[:PREFIX_BYTES] if header is None else header)):
            failures.append(Failure(row, reason))
            continue
        try:
            rows[row] = decode(value, header)
        except RegistryTrouble:
            raise
        except SchemaUnknown as error:
            reason = unknown[value[:PREFIX_BYTES] if header is None else header] = reason_of(error)
            failures.append(Failure(row, reason))
        except Exception as error:
            failures.append(Failure(row, reason_of(error)))
    return assembled(rows, kind, failures)


def assembled(rows: list[Any], kind: pa.StructType, failures: list[Failure]) -> Decoded:
    """Rows of Python values as columns; a row that does not fit the type is one more failure."""
    try:
        return Decoded(pa.array(rows, type=kind), failures)
    except _MISFITS:
        misfits = list(_misfits(rows, kind))
    for row, _ in misfits:
        rows[row] = None
    return Decoded(pa.array(rows, type=kind), sorted([*failures, *misfits]))


def _misfits(rows: list[Any], kind: pa.StructType) -> Iterator[Failure]:
    """The rows that do not fit, found one by one."""
    for row, value in enumerate(rows):
        try:
            pa.array([value], type=kind)
        except _MISFITS as error:
            yield Failure(row, reason_of(error))


def reason_of(error: BaseException) -> str:
    text = str(error).strip()
    name = type(error).__name__
    return f"{name}: {text}" if text else name
