"""Settings of a file that nobody reads: misspelled ones, and those of a listener that is not there.

A node starts with them, and says so: whoever wrote `ssl.client.auth=required` for one listener and made a
mistake in its name would think that it asks for certificates.
"""

from collections.abc import Collection, Mapping
from typing import Final

from headrace.machines.configs.definition import ConfigKey
from headrace.machines.configs.reloaded_keys import PREFIX
from headrace.machines.configs.values import closest
from headrace.machines.security.scram import MECHANISMS as SCRAM_MECHANISMS

# The first words of key families that plug-ins bring along: they are not misspellings.
OPEN_FAMILIES: Final = ("rsm.config.", "rlmm.config.", "config.providers.")

_MECHANISMS: Final = tuple(
    f"{name.lower()}." for name in ("PLAIN", "OAUTHBEARER", "GSSAPI", *SCRAM_MECHANISMS)
)


def unknown_settings(
    names: Collection[str], known: dict[str, ConfigKey], listeners: Collection[str]
) -> dict[str, str | None]:
    """Each with the name that was perhaps meant. `listeners`: those of this node, and of others that it
    connects to.
    """
    unknown: dict[str, str | None] = {}
    lowered = {name.lower() for name in listeners}
    for name in sorted(names):
        if name in known or name.startswith(OPEN_FAMILIES):
            continue
        if not name.startswith(PREFIX):
            unknown[name] = closest(name, known)
        elif (meant := _of_listener(name.removeprefix(PREFIX), known, lowered)) != name:
            unknown[name] = meant
    return unknown


def _of_listener(rest: str, known: Mapping[str, ConfigKey], listeners: set[str]) -> str | None:
    """What was perhaps meant: the name itself if it can be read."""
    # names of listeners may have dots
    found = [one for one in listeners if rest.lower().startswith(f"{one}.")]
    listener = max(found, key=len, default="")
    setting = rest[len(listener) + 1 :] if listener else rest.partition(".")[2]
    if not listener:
        listener = _closest_name(rest.partition(".")[0], listeners)
    mechanism = next((one for one in _MECHANISMS if setting.startswith(one)), "")
    key = setting.removeprefix(mechanism)
    meant = key if key in known else closest(key, dict(known))
    return f"{PREFIX}{listener}.{mechanism}{meant}" if listener and meant is not None else None


def _closest_name(name: str, names: Collection[str]) -> str:
    import difflib  # only a misspelling pays for loading it

    return next(iter(difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)), "")
