"""What the stories send, in three languages; and generated Protobuf classes without a compiler."""

from __future__ import annotations

from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

from headrace.schema_formats.protobuf.schema import parse

AVRO = """{"type": "record", "name": "Click", "namespace": "shop", "fields": [
    {"name": "ad", "type": "string"}, {"name": "price", "type": "double"},
    {"name": "tags", "type": {"type": "map", "values": "long"}, "default": {}},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
     "default": null}]}"""
AVRO_GROWN = AVRO.replace(
    '{"name": "price"', '{"name": "country", "type": "string", "default": "??"}, {"name": "price"'
)
JSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Click", "type": "object",
    "properties": {"ad": {"type": "string"}, "price": {"type": "number"}}, "required": ["ad"],
    "additionalProperties": false}"""
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";

message Other { int32 unused = 1; }
message Click {
  string ad = 1;
  double price = 2;
  map<string, int64> tags = 3;
  optional google.protobuf.Timestamp at = 4;
  oneof kind { string web = 5; Phone phone = 6; }
  repeated Color colors = 7;
  message Phone { uint64 number = 1; }
}
enum Color { RED = 0; GREEN = 1; }
"""


def generated(text: str, name: str, path: str) -> Any:
    """The class that protoc would have generated."""
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, duration_pb2, wrappers_pb2):
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(known.DESCRIPTOR.serialized_pb))
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(parse(text, path=path).descriptor))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
