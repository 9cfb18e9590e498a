"""Files with passwords or private keys that other users of this machine can read."""

import os
import stat
from collections.abc import Iterable, Mapping

from headrace.machines.configs.definition import broker_config_keys


def readable_by_others(paths: Iterable[str]) -> list[str]:
    """Those of them that exist and that every user may read."""
    return [path for path in dict.fromkeys(paths) if _is_open(path)]


def _is_open(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def is_secret(name: str) -> bool:
    """Whether the value of a setting is a password or a private key; `listener.name.…` prefixes count."""
    keys = broker_config_keys()
    key = keys.get(name)
    if key is None and name.startswith("listener.name."):
        words = name.split(".")
        tails = (".".join(words[start:]) for start in range(3, len(words)))  # a listener's name may have dots
        key = next((keys[tail] for tail in tails if tail in keys), None)
    return key is not None and key.is_sensitive and key.name not in PUBLIC


# Certificates, which Kafka hides like passwords, and which everybody may know.
PUBLIC = frozenset(("ssl.keystore.certificate.chain", "ssl.truststore.certificates"))


def secret_files(path: str, values: Mapping[str, str], others: Iterable[str]) -> list[str]:
    """The files of a node that hold secrets: its settings file if it does, those of config providers, and
    keystores, and tokens. `values` are those of the file as it was written.
    """
    found = [path] if any(is_secret(name) and "${" not in value for name, value in values.items()) else []
    keystores = [value for name, value in values.items() if name.endswith("ssl.keystore.location")]
    tokens = [
        _path_of(value)
        for name, value in values.items()
        if name.endswith("sasl.oauthbearer.token.endpoint.url") and value.strip().startswith("file:")
    ]
    return [*found, *others, *keystores, *tokens]


def _path_of(url: str) -> str:
    from urllib.request import url2pathname  # takes 100 ms: nothing that a start without tokens waits for

    return url2pathname(url.strip().removeprefix("file:"))
