"""What can go wrong between bytes and a schema."""

from headrace.base.extras import missing_text
from headrace.client.errors import ClientError


class SchemaError(ClientError):
    """Base of all that is raised about schemas."""


class NotFramed(SchemaError, ValueError):
    """The bytes do not say which schema they were written with."""

    advice = "They were not written by a serializer with a registry; read them without one."


class SchemaUnknown(SchemaError):
    """The registry has no schema of that id, subject or version."""

    advice = "Check that it is the registry that the producer used."


class RegistryTrouble(SchemaError):
    """Something is wrong with the registry, or with the way to it: no record is to blame."""


class RegistryUnreachable(RegistryTrouble):
    """No registry answered."""

    is_retriable = True
    advice = "Check the address; `headrace up` serves a registry at http://localhost:9644."


class NoRegistry(RegistryTrouble):
    """The server that answers is not a registry."""

    advice = "Check the address, and what stands between here and there."


class RegistryRefused(RegistryTrouble):
    """The registry does not do what it was asked; `code` is its own, as 42201 for a schema that is none."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code


class Incompatible(RegistryRefused):
    """The schema cannot follow the versions that the subject has; the message says what is in its way."""

    advice = "Change the schema so that it can, or the subject's compatibility level."


class MissingLibrary(SchemaError):
    """A library that reads this format is not installed; the message says how to install it."""

    def __init__(self, library: str, what: str) -> None:
        super().__init__(missing_text(library, what))


class UnsupportedSchema(SchemaError):
    """The schema is right, and cannot be shown as columns."""


class DoesNotFit(SchemaError):
    """Columns that cannot be written with the schema."""
