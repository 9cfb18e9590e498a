"""Values from elsewhere in the operator's own settings file, by Kafka's config providers:

    config.providers=file,env
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    ssl.key.password=${file:/etc/headrace/secrets.properties:key.password}
    listener.name.sasl_ssl.plain.sasl.jaas.config=${env:USERS}

Only the settings file of a node has them. What clients send (AlterConfigs) is not looked at, so no client can
read a file or a variable of the broker; and DescribeConfigs tells such a setting as it was written.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

PROVIDERS: Final = "config.providers"

# As in Kafka: ${provider:[path:]key}. The path has no closing brace, and neither has the key.
VARIABLE: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")

# More is not a file of secrets.
FILE_BYTES_MAX: Final = 1 << 20

_PACKAGE = "org.apache.kafka.common.config.provider."
_CLASSES: Final = {
    "FileConfigProvider": "file",
    "EnvVarConfigProvider": "env",
    "DirectoryConfigProvider": "directory",
}

ReadProperties = Callable[[str, str], Mapping[str, str]]  # of a path and its text


class CannotResolve(Exception):
    """The message names the setting, and not the value."""


class Resolved(NamedTuple):
    values: dict[str, str]
    literals: dict[str, str]  # settings that had a variable, as they were written
    files: tuple[str, ...]  # that were read


class _Provider(NamedTuple):
    kind: str
    allowed: tuple[str, ...]  # paths
    pattern: re.Pattern[str] | None  # of variables


def resolve(
    values: Mapping[str, str], read_properties: ReadProperties, environment: Mapping[str, str] = os.environ
) -> Resolved:
    providers = _providers(values)
    files: dict[str, None] = {}
    literals: dict[str, str] = {}
    found = dict(values)
    if not providers:
        return Resolved(found, literals, ())
    for name, text in values.items():
        if name == PROVIDERS or name.startswith(f"{PROVIDERS}.") or "${" not in text:
            continue

        def value_of(variable: re.Match[str], name: str = name) -> str:
            provider = providers.get(variable[1])
            if provider is None:
                return variable[0]  # as in Kafka: whoever wrote it may mean it
            path, key = variable[3] or "", variable[4]
            if provider.kind == "env":
                return _variable(name, provider, environment, key)
            files[path if provider.kind == "file" else os.path.join(path, key)] = None
            return _from_file(name, provider, path, key, read_properties)

        resolved = VARIABLE.sub(value_of, text)
        if resolved != text:
            literals[name] = text
            found[name] = resolved
    return Resolved(found, literals, tuple(files))


def _providers(values: Mapping[str, str]) -> dict[str, _Provider]:
    providers = {}
    for name in filter(None, (part.strip() for part in values.get(PROVIDERS, "").split(","))):
        key = f"{PROVIDERS}.{name}.class"
        given = values.get(key, "").strip()
        kind = _CLASSES.get(given.removeprefix(_PACKAGE))
        if kind is None:
            choice = ", ".join(_PACKAGE + known for known in _CLASSES)
            problem = f"{given} is not known" if given else f"the provider {name} of {PROVIDERS} has no class"
            raise CannotResolve(f"{key}: {problem}; set it to one of {choice}")
        parameters = f"{PROVIDERS}.{name}.param."
        allowed = values.get(f"{parameters}allowed.paths", "")
        pattern = values.get(f"{parameters}allowlist.pattern")
        try:
            compiled = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise CannotResolve(f"{parameters}allowlist.pattern: {error}") from error
        paths = tuple(os.path.realpath(path.strip()) for path in allowed.split(",") if path.strip())
        providers[name] = _Provider(kind, paths, compiled)
    return providers


def _variable(name: str, provider: _Provider, environment: Mapping[str, str], key: str) -> str:
    if provider.pattern is not None and not provider.pattern.fullmatch(key):
        raise CannotResolve(f"{name}: the environment variable {key} does not match allowlist.pattern")
    if key not in environment:
        raise CannotResolve(f"{name}: the environment variable {key} is not set")
    return environment[key]


def _from_file(name: str, provider: _Provider, path: str, key: str, read_properties: ReadProperties) -> str:
    wanted = path
    if provider.kind == "directory":
        if not key or key in (".", "..") or "/" in key:
            raise CannotResolve(f"{name}: {key!r} is not the name of a file in {path}")
        wanted = os.path.join(path, key)
    real = os.path.realpath(wanted)
    if provider.allowed and not any(
        real == one or real.startswith(one.rstrip("/") + "/") for one in provider.allowed
    ):
        raise CannotResolve(f"{name}: {wanted} is not in allowed.paths of its provider")
    try:
        with open(real, encoding="utf-8") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CannotResolve(f"{name}: {wanted}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CannotResolve(f"{name}: {wanted} is not UTF-8") from None
    if len(text) > FILE_BYTES_MAX:
        raise CannotResolve(f"{name}: {wanted} has more than {FILE_BYTES_MAX} bytes")
    if provider.kind == "directory":
        return text
    properties = read_properties(wanted, text)
    if key not in properties:
        raise CannotResolve(f"{name}: {wanted} has no key {key}")
    return properties[key]
