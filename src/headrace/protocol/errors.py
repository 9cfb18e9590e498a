"""Whose fault it is: the peer's (malformed, unsupported) or our own (unencodable)."""

from __future__ import annotations


class ProtocolError(Exception):
    """Base of everything that goes wrong between bytes and messages."""


class MalformedMessage(ProtocolError):
    """The peer sent bytes that are not the message they claim to be."""


class UnsupportedVersion(ProtocolError):
    """The peer speaks an API key or version that we do not."""

    def __init__(self, api_key: int, version: int) -> None:
        super().__init__(f"api key {api_key} version {version} is not supported")
        self.api_key = api_key
        self.version = version


class UnencodableMessage(ProtocolError):
    """Our own mistake: a value that does not fit its type, or a field that this version cannot carry."""
