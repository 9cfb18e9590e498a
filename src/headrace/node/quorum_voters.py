"""The setting controller.quorum.voters: which controllers vote, and where they are."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.machines.configs.values import InvalidConfig

_VOTER = re.compile(r"([0-9]{1,9})@([^@\s]+):([0-9]{1,5})")


class QuorumVoter(NamedTuple):
    """A controller that votes, and where its controller listener is."""

    id: int
    host: str
    port: int


def quorum_voters(values: Mapping[str, Any], texts: list[str]) -> tuple[QuorumVoter, ...]:
    """The voters, if this node is not the only one."""
    voters = []
    for text in texts:
        match = _VOTER.fullmatch(text)
        if match is None or not 0 < int(match[3]) <= 65_535:
            raise InvalidConfig(
                f"Invalid value {text} for configuration controller.quorum.voters: expected id@host:port"
            )
        voters.append(QuorumVoter(int(match[1]), match[2].strip("[]"), int(match[3])))
    ids = [voter.id for voter in voters]
    if len(set(ids)) < len(ids):
        raise InvalidConfig(f"controller.quorum.voters={','.join(texts)} names a node twice")
    node_id, is_controller = values["node_id"], "controller" in values["process_roles"]
    if is_controller and (not ids or ids == [node_id]):
        return ()
    if is_controller and node_id not in ids:
        raise InvalidConfig(
            f"controller.quorum.voters={','.join(texts)} does not name this node, {node_id}, which has the "
            "controller role: add it on all nodes, or use process.roles=broker"
        )
    if is_controller and not values["advertised_controllers"]:
        raise InvalidConfig(
            "controller.quorum.voters names several nodes, and this one has no listener for the others: add "
            "a listener to `listeners`, and its name to controller.listener.names"
        )
    if not is_controller and not ids:
        raise InvalidConfig(
            "process.roles=broker needs controller.quorum.voters=id@host:port: the controllers with which "
            "this broker registers. For a single node, set process.roles=broker,controller."
        )
    if not is_controller and node_id in ids:
        raise InvalidConfig(
            f"controller.quorum.voters={','.join(texts)} names this node, {node_id}, whose process.roles has "
            "no controller: add the controller role, or choose a node.id that no controller has"
        )
    return tuple(sorted(voters))
