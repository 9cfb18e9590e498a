"""Settings of an admin client."""

from dataclasses import dataclass

from headrace.client.settings.configuration import Configuration, optional_seconds, seconds, typed_values


@dataclass(slots=True, frozen=True)
class AdminSettings:
    api_timeout_s: float = seconds("default.api.timeout.ms")  # of a whole operation
    request_timeout_s: float = seconds("request.timeout.ms")  # of one request in it
    retry_first_s: float = seconds("retry.backoff.ms")
    retry_last_s: float = seconds("retry.backoff.max.ms")
    metadata_age_s: float = seconds("metadata.max.age.ms")  # of leaders and coordinators
    unreachable_s: float | None = optional_seconds("headrace.unreachable.timeout.ms")


def admin_settings(configuration: Configuration) -> AdminSettings:
    return typed_values(AdminSettings, configuration)
