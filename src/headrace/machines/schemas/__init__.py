"""The schema registry's decisions: what a schema is, which change is allowed, which id a schema gets.

Pure, and without any library: the broker judges Avro, JSON Schema and Protobuf by their text alone.
"""
