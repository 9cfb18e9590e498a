"""Whole batches of values as Arrow columns, and which rows could not be read and why.

    decoder = decoder_for("avro", registry=registry, subject="clicks-value")
    decoded = decoder.columns(table["value"])
    decoded.struct, decoded.failures

A null value gives a null row. A row that cannot be decoded is null too, and has a failure with the reason.
Errors of the registry itself are raised, because no row is their cause.
"""

from headrace.schemas.columns.decoder import Decoded, Decoder, Failure, decoder_for

__all__ = ["Decoded", "Decoder", "Failure", "decoder_for"]
