"""Whole batches of values as Arrow columns, and which rows could not be read and why.

    decoder = decoder_for("avro", registry=registry, subject="clicks-value")
    decoded = decoder.columns(table["value"])
    decoded.struct, decoded.failures

A null stays a null row. A row that cannot be read is a null row too, and has a failure with its reason; what
is wrong with the registry itself is raised, since no row is to blame for it.
"""

from headrace.schemas.columns.decoder import Decoded, Decoder, Failure, decoder_for

__all__ = ["Decoded", "Decoder", "Failure", "decoder_for"]
