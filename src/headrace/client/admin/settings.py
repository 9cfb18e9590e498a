"""Timeouts and pauses of an admin client."""

from typing import NamedTuple

from headrace.client.configuration import Configuration


class AdminSettings(NamedTuple):
    api_timeout_s: float = 60.0  # of a whole operation
    request_timeout_s: float = 30.0  # of one request in it
    retry_first_s: float = 0.1
    retry_last_s: float = 1.0
    metadata_age_s: float = 300.0  # after which leaders and coordinators are looked up again
    unreachable_s: float | None = None  # of an outage, before calls that wait raise; None: never


def admin_settings(configuration: Configuration) -> AdminSettings:
    return AdminSettings(
        api_timeout_s=configuration.seconds("default.api.timeout.ms"),
        request_timeout_s=configuration.seconds("request.timeout.ms"),
        retry_first_s=configuration.seconds("retry.backoff.ms"),
        retry_last_s=configuration.seconds("retry.backoff.max.ms"),
        metadata_age_s=configuration.seconds("metadata.max.age.ms"),
        unreachable_s=configuration.optional_seconds("headrace.unreachable.timeout.ms"),
    )
