"""The client that a command works with. Apart from the options, so that `up` and `serve` need not import
it.
"""

from headrace.client.client import Client


def connect(bootstrap: str, timeout: float) -> Client:
    """A client that has found a living broker, or the error of why not."""
    client = Client(bootstrap, client_id="headrace-cli", timeout_s=timeout)
    try:
        client.contact()
    except BaseException:
        client.close()
        raise
    return client
