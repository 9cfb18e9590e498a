"""Errors of schemas and schema registries."""

from headrace.base.extras import missing_text
from headrace.client.errors import ClientError
from headrace.client.serializers import SerializerUnusable


class SchemaError(ClientError):
    """Base class of all errors about schemas."""


class NotFramed(SchemaError, ValueError):
    """The bytes do not begin with a schema id."""

    advice = "They were not written by a serializer with a registry; read them without a registry."


class SchemaUnknown(SchemaError):
    """The registry has no schema of that id, subject or version."""

    advice = "Check that it is the registry that the producer used."


class RegistryTrouble(SchemaError, SerializerUnusable):
    """An error of the registry or of the connection to it; no record is the cause."""


class RegistryUnreachable(RegistryTrouble):
    """No registry answered."""

    is_retriable = True
    advice = "Check the address, and that a registry is running there."


class NoRegistry(RegistryTrouble):
    """The server that answers is not a registry."""

    advice = "Check the address, and whether a proxy answers instead of the registry."


class RegistryRefused(RegistryTrouble):
    """The registry refused the request; `code` is its error code, such as 42201 for an invalid schema."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code
        if code in (401, 40101):
            self.advice = "Give a user and a password in its address, as https://user:password@host:port."


class Incompatible(RegistryRefused):
    """The schema is not compatible with the versions of the subject; the message says why."""

    advice = "Change the schema, or the subject's compatibility level."


class MissingLibrary(SchemaError, SerializerUnusable):
    """A library that reads this format is not installed; the message says how to install it."""

    def __init__(self, library: str, what: str) -> None:
        super().__init__(missing_text(library, what))


class UnsupportedSchema(SchemaError):
    """The schema is valid, but cannot be converted to columns."""


class DoesNotFit(SchemaError):
    """The columns cannot be encoded with the schema."""
