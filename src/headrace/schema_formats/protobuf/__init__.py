"""Protobuf schemas without protobuf's compiler: .proto text and file descriptors, read and written."""
