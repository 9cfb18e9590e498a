"""Avro, JSON Schema and Protobuf schemas: parsing them, and whether one version may follow another.

Pure, and without any library: the broker's registry compares schemas by their text alone. The client's
serializers (`headrace.schemas`) parse schemas with the same code.
"""
