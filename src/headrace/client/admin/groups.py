"""Groups: listed, described, deleted, and rid of members."""

from collections.abc import Iterable
from typing import Any

from headrace.client.admin.asking import (
    Ask,
    CoordinatorOf,
    OfBroker,
    Operation,
    Outcome,
    Sent,
    as_list,
    ask,
    ask_all,
    ask_one,
    check,
    failed,
    settled,
)
from headrace.client.admin.cluster import broker_ids
from headrace.client.admin.group_values import Group, ListedGroup, classic_group, modern_group
from headrace.client.coordinator import CoordinatorKind
from headrace.client.errors import ClientError, KafkaError, UnsupportedByBroker
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import consumer_group_describe as modern
from headrace.protocol.messages import describe_groups as classic
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.list_groups import ListGroupsRequest

REMOVED_BY_ADMIN = "removed by an administrator"


def coordinator_of(group: str) -> CoordinatorOf:
    return CoordinatorOf(CoordinatorKind.GROUP, group)


# --- questions -------------------------------------------------------------------------------------------


def list_groups(*, states: Iterable[str] = (), types: Iterable[str] = ()) -> Operation[list[ListedGroup]]:
    """All groups of all brokers by name; only those in some states or of some types, if these are given.

    >>> [listed.state for listed in admin.list_groups(states=["Empty"]) if listed.group == "readers"]
    ['Empty']
    """
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def read(answer: Any, sent: Sent[int]) -> dict[int, list[ListedGroup]]:
        check(answer.error_code, subject=f"broker {sent.broker_id}")
        listed = [
            ListedGroup(told.group_id, told.group_type.lower(), told.group_state, told.protocol_type)
            for told in answer.groups
        ]
        return dict.fromkeys(sent.subjects, listed)

    brokers = yield from broker_ids()
    places = {broker: OfBroker(broker) for broker in brokers}
    found = yield from ask_all(Ask("listing groups", places, lambda *_: request, read))
    # a group that moves to another coordinator may be told of twice
    return sorted({listed.group: listed for one in found.values() for listed in one}.values())


def describe_group(name: str) -> Operation[Group]:
    """One group; GROUP_ID_NOT_FOUND if there is none of this name.

    >>> admin.describe_group("readers").type
    'classic'
    """
    return (yield from describe_groups([name]))[name]


def describe_groups(names: str | Iterable[str]) -> Operation[dict[str, Group]]:
    """Groups by name, of the classic and of the new protocol.

    >>> {name: group.state for name, group in admin.describe_groups(["readers"]).items()}
    {'readers': 'Empty'}
    """
    wanted = as_list(names)
    outcome = yield from _described(
        wanted, lambda asked: modern.ConsumerGroupDescribeRequest(group_ids=asked), modern_group
    )
    others = [name for name in wanted if _is_of_another_kind(outcome[name])]
    outcome |= yield from _described(
        others, lambda asked: classic.DescribeGroupsRequest(groups=asked), classic_group
    )
    return settled(
        {
            name: KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, subject=f"group {name!r}")
            if isinstance(told, Group) and told.state == "Dead"
            else told
            for name, told in outcome.items()
        }
    )


def _described(names: list[str], request: Any, value: Any) -> Operation[Outcome[str, Group]]:
    def read(answer: Any, sent: Sent[str]) -> Outcome[str, Group]:
        return {
            told.group_id: failed(told.error_code, told.error_message, subject=f"group {told.group_id!r}")
            or value(told, sent.broker_id)
            for told in answer.groups
        }

    places = {name: coordinator_of(name) for name in names}
    return (yield from ask(Ask("describing groups", places, lambda asked, _: request(asked), read)))


def _is_of_another_kind(told: Group | ClientError) -> bool:
    """A broker without the new protocol has classic groups only; one that has it does not tell of them."""
    if isinstance(told, KafkaError):
        return told.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return isinstance(told, UnsupportedByBroker)


# --- orders ----------------------------------------------------------------------------------------------


def delete_group(name: str) -> Operation[None]:
    """Deletes a group without members, and its offsets.

    >>> admin.alter_group_offsets("leaving", {("orders", 0): 1})
    >>> admin.delete_group("leaving")
    """
    yield from delete_groups([name])


def delete_groups(names: str | Iterable[str]) -> Operation[None]:
    """Deletes groups without members, and their offsets.

    >>> admin.alter_group_offsets("going", {("orders", 0): 1})
    >>> admin.delete_groups(["going"])
    """

    def make(asked: list[str], _: int) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=asked)

    def read(answer: Any, _: Sent[str]) -> Outcome[str, bool]:
        return {
            told.group_id: failed(told.error_code, subject=f"group {told.group_id!r}") or True
            for told in answer.results
        }

    places = {name: coordinator_of(name) for name in as_list(names)}
    yield from ask_all(Ask("deleting groups", places, make, read))


def remove_members(
    group: str,
    members: Iterable[str] | None = None,
    *,
    instances: Iterable[str] = (),
    reason: str = REMOVED_BY_ADMIN,
) -> Operation[list[str]]:
    """Takes members out of a group: by member id, by the instance id of a static one, or, without either,
    all of them; whom it took out. Living consumers join again.

    >>> admin.remove_members("readers")
    []
    """
    chosen = [MemberIdentity(member_id=one, reason=reason) for one in members or ()]
    chosen += [MemberIdentity(group_instance_id=one, reason=reason) for one in as_list(instances)]
    if members is None and not chosen:
        described = yield from describe_group(group)
        chosen = [
            MemberIdentity(group_instance_id=one.instance_id, reason=reason)
            if one.instance_id
            else MemberIdentity(member_id=one.member_id, reason=reason)
            for one in described.members
        ]
    if not chosen:
        return []
    subject = f"group {group!r}"

    def read(answer: Any) -> Outcome[str, bool]:
        check(answer.error_code, subject=subject)
        outcome: Outcome[str, bool] = {}
        for told in answer.members:
            member = told.group_instance_id or told.member_id
            outcome[member] = failed(told.error_code, subject=f"{subject}, member {member!r}") or True
        return outcome

    request = LeaveGroupRequest(group_id=group, members=chosen)
    what = f"removing members of group {group!r}"
    told = yield from ask_one(what, coordinator_of(group), lambda _: request, read)
    return list(settled(told))
