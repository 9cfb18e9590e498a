"""Routes of the schema registry's REST API, with the right that each needs: one row per method and path.

A subject stands for its topic: `orders-value` and `orders-key` need a right to the topic `orders`. A subject
with another name, as of a record, stands for a topic of its own name. Rights come before existence: a client
gets the same refusal for a subject that is there and for one that is not.
"""

import json
from enum import Enum, auto
from typing import Final, NamedTuple
from urllib.parse import unquote

from headrace.machines.security.acl_rules import Operation

ANY: Final = "*"  # in a path: an argument
_SUFFIXES: Final = ("-value", "-key")


class To(Enum):
    NOTHING = auto()  # everybody who is logged in
    SUBJECT = auto()  # the topic of the subject, which is the path's first argument
    CLUSTER = auto()
    SHOWN = auto()  # nothing is refused: what the client may not describe is left out, or not found


class RouteRight(NamedTuple):
    to: To
    operation: Operation = Operation.DESCRIBE


_NOTHING, _SHOWN = RouteRight(To.NOTHING), RouteRight(To.SHOWN)
_READ = RouteRight(To.SUBJECT)
_WRITE = RouteRight(To.SUBJECT, Operation.WRITE)
_ALTER = RouteRight(To.SUBJECT, Operation.ALTER)
_READ_ALL = RouteRight(To.CLUSTER)
_ALTER_ALL = RouteRight(To.CLUSTER, Operation.ALTER)

RIGHTS: Final[dict[str, dict[str, RouteRight]]] = {
    "/": {"GET": _NOTHING},
    "/contexts": {"GET": _NOTHING},
    "/v1/metadata/id": {"GET": _NOTHING},
    "/schemas/types": {"GET": _NOTHING},
    "/schemas": {"GET": _SHOWN},
    "/schemas/ids/*": {"GET": _SHOWN},
    "/schemas/ids/*/schema": {"GET": _SHOWN},
    "/schemas/ids/*/subjects": {"GET": _SHOWN},
    "/schemas/ids/*/versions": {"GET": _SHOWN},
    "/schemas/guids/*": {"GET": _SHOWN},
    "/schemas/guids/*/ids": {"GET": _SHOWN},
    "/subjects": {"GET": _SHOWN},
    "/subjects/*": {"POST": _READ, "DELETE": _ALTER},
    "/subjects/*/versions": {"GET": _READ, "POST": _WRITE},
    "/subjects/*/versions/*": {"GET": _READ, "DELETE": _ALTER},
    "/subjects/*/versions/*/schema": {"GET": _READ},
    "/subjects/*/versions/*/referencedby": {"GET": _READ},
    "/compatibility/subjects/*/versions": {"POST": _READ},
    "/compatibility/subjects/*/versions/*": {"POST": _READ},
    "/config": {"GET": _READ_ALL, "PUT": _ALTER_ALL, "DELETE": _ALTER_ALL},
    "/config/*": {"GET": _READ, "PUT": _ALTER, "DELETE": _ALTER},
    "/mode": {"GET": _READ_ALL, "PUT": _ALTER_ALL, "DELETE": _ALTER_ALL},
    "/mode/*": {"GET": _READ, "PUT": _ALTER, "DELETE": _ALTER},
}

_PATTERNS: Final = {path: tuple(path.strip("/").split("/")) for path in RIGHTS}


class Route(NamedTuple):
    """What a request means. Rights and handlers go by the same one."""

    path: str  # of the table
    method: str  # GET for HEAD, too
    arguments: tuple[str, ...]

    @property
    def right(self) -> RouteRight | None:
        """None: the path does not have this method."""
        return RIGHTS[self.path].get(self.method)


def find_route(method: str, target: str) -> Route | None:
    """None: there is no such path."""
    parts = [unquote(part) for part in target.partition("?")[0].strip("/").split("/")]
    for path, pattern in _PATTERNS.items():
        if len(pattern) == len(parts) and all(
            expected in (ANY, part) for expected, part in zip(pattern, parts, strict=True)
        ):
            arguments = (part for expected, part in zip(pattern, parts, strict=True) if expected == ANY)
            return Route(path, "GET" if method == "HEAD" else method, tuple(arguments))
    return None


def topic_of(subject: str) -> str:
    """The topic whose rights count for a subject."""
    for suffix in _SUFFIXES:
        if subject.endswith(suffix):
            return subject.removesuffix(suffix)
    return subject


def begins_import(route: Route, body: bytes) -> bool:
    """Whether the request puts a subject into import mode, in which clients choose the ids of schemas. All
    subjects share the ids: whoever takes the last one leaves none to the others.
    """
    if (route.method, route.path) != ("PUT", "/mode/*"):
        return False
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return False  # it is refused for that
    return isinstance(asked, dict) and asked.get("mode") == "IMPORT"
