"""Whole Arrow columns as values: what `columns` decodes, written.

    encoder = encoder_for("avro", table["value"].type, registry=registry, subject="clicks-value")
    encoder.values(table["value"])

The schema is given, made from the columns' types (JSON and Avro), or the newest of a subject. Whether the
columns fit it is known before the first row is written.
"""

from headrace.schemas.encoding.encoder import Encoder, encoder_for

__all__ = ["Encoder", "encoder_for"]
