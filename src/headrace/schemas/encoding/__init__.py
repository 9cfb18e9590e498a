"""Encoding of whole Arrow columns, the reverse of `columns`.

    encoder = encoder_for("avro", table["value"].type, registry=registry, subject="clicks-value")
    encoder.values(table["value"])

The schema is passed, derived from the columns' types (JSON and Avro), or the newest of a subject. The encoder
checks whether the columns fit the schema before it writes the first row.
"""

from headrace.schemas.encoding.encoder import Encoder, encoder_for

__all__ = ["Encoder", "encoder_for"]
