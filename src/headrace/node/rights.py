"""The rights that each API needs, as Apache Kafka 4.3.1 asks for them: one row per API key.

Handlers follow this table, the reference page is made from it, and a test tries every served API with and
without each right. Rights come before existence: a client gets the same refusal for a topic that is there and
for one that is not. Where several rights are listed for one question, any of them will do, and they are asked
in this order.
"""

from typing import Final, NamedTuple

from headrace.machines.security.acl_rules import Operation, ResourceType
from headrace.protocol.errors import ErrorCode


class Right(NamedTuple):
    operation: Operation
    resource: ResourceType
    of_any: bool = False  # to some resource of the type, whatever its name (KIP-679)


class Question(NamedTuple):
    """What a handler asks before it goes on."""

    rights: tuple[Right, ...]  # any of them
    refusal: ErrorCode | None  # what the client is told without; None: it is left out of the answer
    when: str = ""  # in words; "": always


_READ, _WRITE, _DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
_CLUSTER_ACTION, _ALTER = Operation.CLUSTER_ACTION, Operation.ALTER
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID

# What a client without the right to a resource is told.
REFUSALS: Final = {
    _TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    _GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    _TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def _needs(operation: Operation, resource: ResourceType, when: str = "") -> Question:
    return Question((Right(operation, resource),), REFUSALS[resource], when)


def _shows(operation: Operation, resource: ResourceType, when: str = "") -> Question:
    """What may not be seen is left out."""
    return Question((Right(operation, resource),), None, when)


def _either(refusal: ErrorCode | None, *rights: Right, when: str = "") -> Question:
    return Question(rights, refusal, when)


def _configs(operation: Operation) -> tuple[Question, ...]:
    return (
        _needs(operation, _TOPIC, "of topics"),
        _needs(operation, _GROUP, "of groups"),
        _needs(operation, _CLUSTER, "of brokers, their loggers and client metrics"),
    )


_FROM_NODES = (_needs(_CLUSTER_ACTION, _CLUSTER),)
_SINK = (_needs(_WRITE, _TRANSACTIONAL_ID),)
_MEMBER = (_needs(_READ, _GROUP),)
_NAMED = "of topics that the request names"
_ALL_TOPICS = "if the request is for all topics"

RIGHTS: Final[dict[int, tuple[Question, ...]]] = {
    0: (  # produce
        _needs(_WRITE, _TRANSACTIONAL_ID, "if a batch is transactional; asked for the whole request"),
        _needs(_WRITE, _TOPIC),
    ),
    1: (  # fetch
        _either(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            Right(_CLUSTER_ACTION, _CLUSTER),
            when="with a replica id",
        ),
        _needs(_READ, _TOPIC, "without a replica id"),
    ),
    2: (_needs(_DESCRIBE, _TOPIC),),  # list_offsets
    3: (  # metadata
        _needs(_DESCRIBE, _TOPIC, _NAMED),
        _shows(_DESCRIBE, _TOPIC, _ALL_TOPICS),
        _either(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            Right(Operation.CREATE, _CLUSTER),
            Right(Operation.CREATE, _TOPIC),
            when="if a topic is to be created",
        ),
    ),
    8: (_needs(_READ, _GROUP), _needs(_READ, _TOPIC)),  # offset_commit
    9: (  # offset_fetch
        _needs(_DESCRIBE, _GROUP),
        _needs(_DESCRIBE, _TOPIC, _NAMED),
        _shows(_DESCRIBE, _TOPIC, _ALL_TOPICS),
    ),
    10: (  # find_coordinator
        _needs(_DESCRIBE, _GROUP, "of groups"),
        _needs(_DESCRIBE, _TRANSACTIONAL_ID, "of transactional ids and sinks"),
    ),
    11: _MEMBER,  # join_group
    12: _MEMBER,  # heartbeat
    13: _MEMBER,  # leave_group
    14: _MEMBER,  # sync_group
    15: (_needs(_DESCRIBE, _GROUP),),  # describe_groups
    16: (_either(None, Right(_DESCRIBE, _CLUSTER), Right(_DESCRIBE, _GROUP)),),  # list_groups
    17: (),  # sasl_handshake
    18: (),  # api_versions
    19: (  # create_topics
        _either(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            Right(Operation.CREATE, _CLUSTER),
            Right(Operation.CREATE, _TOPIC),
        ),
        _needs(Operation.DESCRIBE_CONFIGS, _TOPIC, "to be told the settings of the new topic"),
    ),
    20: (  # delete_topics
        _either(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            Right(Operation.DELETE, _CLUSTER),
            Right(Operation.DELETE, _TOPIC),
        ),
        _shows(_DESCRIBE, _TOPIC, "to be told the name of a topic that may not be deleted"),
    ),
    21: (_needs(Operation.DELETE, _TOPIC),),  # delete_records
    22: (  # init_producer_id
        _needs(_WRITE, _TRANSACTIONAL_ID, "with a transactional id"),
        _needs(Operation.TWO_PHASE_COMMIT, _TRANSACTIONAL_ID, "for two-phase commit"),
        _either(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            Right(Operation.IDEMPOTENT_WRITE, _CLUSTER),
            Right(_WRITE, _TOPIC, of_any=True),
            when="without a transactional id",
        ),
    ),
    23: (  # offset_for_leader_epoch
        _either(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            Right(_CLUSTER_ACTION, _CLUSTER),
            Right(_DESCRIBE, _TOPIC),
        ),
    ),
    24: (  # add_partitions_to_txn
        _needs(_WRITE, _TRANSACTIONAL_ID, "up to version 3"),
        _needs(_WRITE, _TOPIC, "up to version 3"),
        _needs(_CLUSTER_ACTION, _CLUSTER, "from version 4 on"),
    ),
    25: (_needs(_WRITE, _TRANSACTIONAL_ID), _needs(_READ, _GROUP)),  # add_offsets_to_txn
    26: (_needs(_WRITE, _TRANSACTIONAL_ID),),  # end_txn
    27: (  # write_txn_markers
        _either(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Right(_ALTER, _CLUSTER), Right(_CLUSTER_ACTION, _CLUSTER)
        ),
    ),
    28: (  # txn_offset_commit
        _needs(_WRITE, _TRANSACTIONAL_ID),
        _needs(_READ, _GROUP),
        _needs(_READ, _TOPIC),
    ),
    29: (_needs(_DESCRIBE, _CLUSTER),),  # describe_acls
    30: (_needs(_ALTER, _CLUSTER),),  # create_acls
    31: (_needs(_ALTER, _CLUSTER),),  # delete_acls
    32: _configs(Operation.DESCRIBE_CONFIGS),  # describe_configs
    33: _configs(Operation.ALTER_CONFIGS),  # alter_configs
    34: (_needs(_ALTER, _CLUSTER),),  # alter_replica_log_dirs
    35: (_needs(_DESCRIBE, _CLUSTER),),  # describe_log_dirs
    36: (),  # sasl_authenticate
    37: (_needs(_ALTER, _TOPIC),),  # create_partitions
    38: (  # create_delegation_token
        _needs(Operation.CREATE_TOKENS, ResourceType.USER, "for another owner"),
    ),
    39: (),  # renew_delegation_token: its owner and renewers
    40: (),  # expire_delegation_token: its owner and renewers
    41: (  # describe_delegation_token
        _either(
            None,
            Right(_DESCRIBE, ResourceType.DELEGATION_TOKEN),
            Right(Operation.DESCRIBE_TOKENS, ResourceType.USER),
            when="of others than its owner, requester and renewers",
        ),
    ),
    42: (_needs(Operation.DELETE, _GROUP),),  # delete_groups
    43: (_needs(_ALTER, _CLUSTER),),  # elect_leaders
    44: _configs(Operation.ALTER_CONFIGS),  # incremental_alter_configs
    45: (_needs(_ALTER, _CLUSTER),),  # alter_partition_reassignments
    46: (_needs(_DESCRIBE, _CLUSTER),),  # list_partition_reassignments
    47: (_needs(Operation.DELETE, _GROUP), _needs(_READ, _TOPIC)),  # offset_delete
    48: (_needs(Operation.DESCRIBE_CONFIGS, _CLUSTER),),  # describe_client_quotas
    49: (_needs(Operation.ALTER_CONFIGS, _CLUSTER),),  # alter_client_quotas
    50: (_needs(_DESCRIBE, _CLUSTER),),  # describe_user_scram_credentials
    51: (_needs(_ALTER, _CLUSTER),),  # alter_user_scram_credentials
    52: _FROM_NODES,  # vote
    53: _FROM_NODES,  # begin_quorum_epoch
    54: _FROM_NODES,  # end_quorum_epoch
    55: (_needs(_DESCRIBE, _CLUSTER),),  # describe_quorum
    56: _FROM_NODES,  # alter_partition
    57: (_needs(_ALTER, _CLUSTER),),  # update_features
    58: _FROM_NODES,  # envelope; then what the request inside it needs
    59: _FROM_NODES,  # fetch_snapshot
    60: (),  # describe_cluster
    61: (_needs(_READ, _TOPIC),),  # describe_producers
    62: _FROM_NODES,  # broker_registration
    63: _FROM_NODES,  # broker_heartbeat
    64: (_needs(_ALTER, _CLUSTER),),  # unregister_broker
    65: (_needs(_DESCRIBE, _TRANSACTIONAL_ID), _shows(_DESCRIBE, _TOPIC)),  # describe_transactions
    66: (_shows(_DESCRIBE, _TRANSACTIONAL_ID),),  # list_transactions
    67: _FROM_NODES,  # allocate_producer_ids
    68: (  # consumer_group_heartbeat
        _needs(_READ, _GROUP),
        _needs(_DESCRIBE, _TOPIC, "of topics to which the member subscribes by name"),
        _shows(_DESCRIBE, _TOPIC, "of topics that match its pattern"),
    ),
    69: (  # consumer_group_describe
        _needs(_DESCRIBE, _GROUP),
        _needs(_DESCRIBE, _TOPIC, "of all topics that members have or will have"),
    ),
    70: _FROM_NODES,  # controller_registration
    73: _FROM_NODES,  # assign_replicas_to_dirs
    74: (_needs(Operation.DESCRIBE_CONFIGS, _CLUSTER),),  # list_config_resources
    75: (_needs(_DESCRIBE, _TOPIC, _NAMED), _shows(_DESCRIBE, _TOPIC, _ALL_TOPICS)),
    80: (_needs(_ALTER, _CLUSTER),),  # add_raft_voter
    81: (_needs(_ALTER, _CLUSTER),),  # remove_raft_voter
    82: _FROM_NODES,  # update_raft_voter
    30001: (  # split_ranges
        _either(ErrorCode.UNKNOWN_TOPIC_ID, Right(_DESCRIBE, _TOPIC)),
    ),
    30002: (_needs(_WRITE, _TOPIC),),  # append_at
    30010: _SINK,  # join_sink
    30011: _SINK,  # commit_sink
    30012: _SINK,  # abort_sink
    30013: (_shows(_DESCRIBE, _TRANSACTIONAL_ID),),  # list_sinks
    30014: _SINK,  # reset_sink
}

# APIs that mean something else on a controller's listener.
RIGHTS_ON_CONTROLLERS: Final[dict[int, tuple[Question, ...]]] = {
    1: _FROM_NODES,  # fetch, of the metadata log
    60: (_needs(_ALTER, _CLUSTER),),  # describe_cluster
}
