"""Decision about a broker's heartbeat: it stays as it is, or is unfenced, fenced, or allowed to stop.

    fenced ── caught up ──> unfenced ── wants to stop ──> shutting down ── leaders moved ──> fenced, may stop
      ^                        │ wants to be fenced
      └────────────────────────┘

A fenced broker that wants to stop may do so at once; one that has begun to stop is never unfenced. An
unfenced one may stop when it leads nothing and all other brokers have replayed that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.machines.metadata.controller.brokers import (
    RulesOf,
    check_epoch,
    fail_directories,
    fence_brokers,
    shut_down_broker,
    unfence_broker,
)
from headrace.machines.metadata.controller.decision import MetadataDecision
from headrace.machines.metadata.controller.sessions import BrokerSessions, Session
from headrace.machines.metadata.image import BrokerState, ClusterImage


@dataclass(slots=True)
class Heartbeat:
    broker: int
    broker_epoch: int
    metadata_offset: int  # the broker has replayed the record at this offset
    wants_fence: bool = False
    wants_shutdown: bool = False
    offline_directories: Sequence[bytes] = ()


@dataclass(slots=True)
class HeartbeatReply:
    is_caught_up: bool
    is_fenced: bool
    may_stop: bool = False


def heartbeat(
    image: ClusterImage, beat: Heartbeat, session: Session, sessions: BrokerSessions, rules_of: RulesOf
) -> MetadataDecision[HeartbeatReply]:
    """Refusal: the broker has registered again since."""
    state = check_epoch(image, beat.broker, beat.broker_epoch)
    if beat.offline_directories:
        failure = fail_directories(image, beat.broker, beat.offline_directories, rules_of)
        if failure.records:  # the rest is decided at the next heartbeat, on the image after this one
            reply = HeartbeatReply(is_caught_up(state, beat), state.is_fenced)
            return MetadataDecision(reply, failure.records, failure.unclean_elections)
    if state.is_fenced:
        return fenced_heartbeat(image, state, beat, rules_of)
    reply = HeartbeatReply(is_caught_up(state, beat), is_fenced=False)
    if beat.wants_fence:
        return fenced(image, beat, rules_of, may_stop=beat.wants_shutdown)
    if not beat.wants_shutdown and not state.in_controlled_shutdown:
        return MetadataDecision(reply)
    if image.replica_index.leads(beat.broker) or not state.in_controlled_shutdown:
        shutdown = shut_down_broker(image, beat.broker, rules_of)
        return MetadataDecision(reply, shutdown.records, shutdown.unclean_elections)
    if session.shutdown_offset is None or not sessions.all_have(image, session.shutdown_offset):
        return MetadataDecision(reply)
    return fenced(image, beat, rules_of, may_stop=True)


def fenced_heartbeat(
    image: ClusterImage, state: BrokerState, beat: Heartbeat, rules_of: RulesOf
) -> MetadataDecision[HeartbeatReply]:
    caught_up = is_caught_up(state, beat)
    if beat.wants_shutdown or state.in_controlled_shutdown:
        return MetadataDecision(HeartbeatReply(caught_up, is_fenced=True, may_stop=True))
    if beat.wants_fence or not caught_up:
        return MetadataDecision(HeartbeatReply(caught_up, is_fenced=True))
    unfenced = unfence_broker(image, state.id, rules_of)
    return MetadataDecision(
        HeartbeatReply(caught_up, is_fenced=False), unfenced.records, unfenced.unclean_elections
    )


def fenced(
    image: ClusterImage, beat: Heartbeat, rules_of: RulesOf, *, may_stop: bool
) -> MetadataDecision[HeartbeatReply]:
    decision = fence_brokers(image, (beat.broker,), rules_of)
    reply = HeartbeatReply(is_caught_up(image.brokers[beat.broker], beat), is_fenced=True, may_stop=may_stop)
    return MetadataDecision(reply, decision.records, decision.unclean_elections)


def is_caught_up(state: BrokerState, beat: Heartbeat) -> bool:
    """Its epoch is the offset of its registration."""
    return beat.metadata_offset >= state.epoch
