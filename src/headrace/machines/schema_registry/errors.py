"""The errors of a schema registry: Confluent's error codes and messages."""

from collections.abc import Sequence


class RegistryError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(which: object = "") -> RegistryError:
    return RegistryError(40403, f"Schema {which} not found" if which != "" else "Schema not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407,
        f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted",
    )


def no_level(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, found: Sequence[str]) -> RegistryError:
    details = "; ".join(found)
    return RegistryError(
        409,
        f"Schema being registered is incompatible with an earlier schema for subject '{subject}', "
        f"details: [{details}]",
    )


def invalid_schema(why: object) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {why}")


def no_reference(subject: str, version: int) -> RegistryError:
    return invalid_schema(f"no schema reference found for subject {subject!r} and version {version}")


def invalid_version(version: object) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between "
        '[1, 2^31-1] and the string "latest"',
    )


def invalid_level(level: object) -> RegistryError:
    return RegistryError(
        42203,
        f"Invalid compatibility level {level!r}. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode(mode: object) -> RegistryError:
    return RegistryError(42204, f"Invalid mode {mode!r}. Valid values are READWRITE, READONLY and IMPORT")


def not_permitted(why: str) -> RegistryError:
    return RegistryError(42205, why)


def referenced(subject: str, version: int) -> RegistryError:
    return RegistryError(
        42206, f"One or more references exist to the schema {{subject={subject},version={version}}}."
    )


def no_more_ids() -> RegistryError:
    return RegistryError(50005, "All ids up to 2^31-1 are given: no further schema can be registered")
