"""The admin client that a command works with."""

from headrace.cli.client_settings import settings_of
from headrace.client.threads.admin import Admin

# For the first contact: long enough for a broker that is just starting, short enough for a wrong address.
FIRST_CONTACT_S = 3.0


def administer(bootstrap: str, timeout: float) -> Admin:
    """An admin client that has reached a broker; raises the error if no broker can be reached."""
    admin = Admin(settings_of("admin", bootstrap, default_api_timeout_ms=round(timeout * 1000)))
    try:
        admin.within(min(timeout, FIRST_CONTACT_S)).list_brokers()
    except BaseException:
        admin.close()
        raise
    return admin
