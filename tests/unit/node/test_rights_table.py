"""Every API that is served has a row in the table of rights, and the table names what rules can allow."""

from __future__ import annotations

import pytest

from headrace.machines.security.acl_rules import OPERATIONS, Operation, ResourceType
from headrace.node.rights import RIGHTS, RIGHTS_ON_CONTROLLERS, Question
from headrace.node.routes import SERVED, SERVED_TO_NODES
from headrace.protocol.api import APIS

# Kafka asks for it, and no tool offers it: a rule for all operations allows it.
ONLY_WITH_ALL = (Operation.DELETE, ResourceType.CLUSTER)

ALL = [*RIGHTS.items(), *RIGHTS_ON_CONTROLLERS.items()]


@pytest.mark.parametrize("key", sorted({*SERVED, *SERVED_TO_NODES}))
def test_every_served_api_has_a_row(key: int) -> None:
    assert key in RIGHTS


def test_every_row_is_of_an_api() -> None:
    assert {key for key, _ in ALL} <= set(APIS)


@pytest.mark.parametrize("question", sorted({question for _, row in ALL for question in row}, key=str))
def test_each_right_can_be_granted(question: Question) -> None:
    """A rule for an operation that its resource does not have is never written."""
    assert question.rights
    for right in question.rights:
        if right[:2] != ONLY_WITH_ALL:
            assert right.operation in OPERATIONS[right.resource]


def test_what_nodes_ask_each_other_needs_cluster_action() -> None:
    for key in SERVED_TO_NODES:
        (question,) = RIGHTS[key]
        assert [right.operation.name for right in question.rights] == ["CLUSTER_ACTION"]
