"""The public methods of an admin client, for both `headrace.Admin` and `headrace.aio.Admin`.

Each operation is written in another module of this package, together with its values; here it becomes a
method.
"""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Callable, Mapping
from inspect import signature
from typing import ParamSpec, Self, TypeVar

from headrace.base.time import NEVER
from headrace.client.admin import (
    acls,
    cluster,
    configs,
    group_offsets,
    groups,
    offsets,
    replicas,
    topics,
    transactions,
    users,
)
from headrace.client.admin.operation import Operation
from headrace.client.admin.session import AdminSession
from headrace.client.clock import clock
from headrace.client.settings.configuration import Configuration, given_settings
from headrace.client.settings.keys import admin_keys
from headrace.client.settings.network import admin_settings, network_settings
from headrace.client.steps import Call, Client, Steps, Wait, may_wait

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("headrace.admin")


def _operation(operation: Callable[P, Operation[T]]) -> may_wait[P, T]:
    def steps(self: AdminMethods, /, *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        return self._perform(operation(*args, **kwargs))

    steps.__doc__ = operation.__doc__
    steps.__signature__ = signature(operation)  # type: ignore[attr-defined]
    steps.__wrapped__ = operation  # type: ignore[attr-defined]
    return may_wait(steps)


class AdminMethods(Client):
    def __init__(self, config: str | Mapping[str, object] | None = None, /, **settings: object) -> None:
        configuration = Configuration(admin_keys(), given_settings(config, settings))
        for name in configuration.without_effect():
            _log.warning("the setting %s has no effect", name)
        self._timeout_s: float | None = None
        self._session = AdminSession(admin_settings(configuration), random.SystemRandom())
        self._open_driver(self._session, network_settings(configuration), name="headrace-admin")
        self._start()

    def _start(self) -> None:
        pass

    def _perform(self, operation: Operation[T]) -> Steps[T]:
        session = self._session
        pending = session.run(clock(), operation, self._timeout_s)
        self._driver.wake()
        try:
            yield Wait(lambda: pending.is_done, NEVER)
        finally:
            session.abandon(pending)  # the wait may have been interrupted or cancelled
        return pending.result()

    def within(self, timeout: float) -> Self:
        """The same client, with `timeout` seconds for each call instead of default.api.timeout.ms.

        >>> hurried = admin.within(5)
        >>> cluster = hurried.describe_cluster()
        >>> cluster.controller_id
        1
        """
        hurried = copy.copy(self)
        hurried._timeout_s = timeout
        return hurried

    @may_wait
    def close(self) -> Steps[None]:
        """Closes the client; calls that wait fail. May be called again.

        >>> admin = Admin(servers)
        >>> admin.close()
        """
        yield Call(self._driver.close)

    # topics
    create_topic = _operation(topics.create_topic)
    create_topics = _operation(topics.create_topics)
    delete_topic = _operation(topics.delete_topic)
    delete_topics = _operation(topics.delete_topics)
    create_partitions = _operation(topics.create_partitions)
    list_topics = _operation(topics.list_topics)
    describe_topic = _operation(topics.describe_topic)
    describe_topics = _operation(topics.describe_topics)

    # offsets and records
    list_offsets = _operation(offsets.list_offsets)
    delete_records = _operation(offsets.delete_records)
    split_ranges = _operation(offsets.split_ranges)

    # configs
    describe_config = _operation(configs.describe_config)
    describe_configs = _operation(configs.describe_configs)
    alter_config = _operation(configs.alter_config)
    alter_configs = _operation(configs.alter_configs)
    list_config_resources = _operation(configs.list_config_resources)

    # groups
    list_groups = _operation(groups.list_groups)
    describe_group = _operation(groups.describe_group)
    describe_groups = _operation(groups.describe_groups)
    delete_group = _operation(groups.delete_group)
    delete_groups = _operation(groups.delete_groups)
    remove_members = _operation(groups.remove_members)
    list_group_offsets = _operation(group_offsets.list_group_offsets)
    list_offsets_of_groups = _operation(group_offsets.list_offsets_of_groups)
    alter_group_offsets = _operation(group_offsets.alter_group_offsets)
    delete_group_offsets = _operation(group_offsets.delete_group_offsets)
    group_lag = _operation(group_offsets.group_lag)
    lag_of_groups = _operation(group_offsets.lag_of_groups)

    # transactions
    list_transactions = _operation(transactions.list_transactions)
    describe_transaction = _operation(transactions.describe_transaction)
    describe_transactions = _operation(transactions.describe_transactions)
    fence_producers = _operation(transactions.fence_producers)
    describe_producers = _operation(transactions.describe_producers)
    find_open_transactions = _operation(transactions.find_open_transactions)
    find_hanging_transactions = _operation(transactions.find_hanging_transactions)
    abort_transaction = _operation(transactions.abort_transaction)

    # sinks
    list_sinks = _operation(transactions.list_sinks)
    commit_sink = _operation(transactions.commit_sink)
    abort_sink = _operation(transactions.abort_sink)
    reset_sink = _operation(transactions.reset_sink)

    # the cluster
    list_brokers = _operation(cluster.list_brokers)
    describe_cluster = _operation(cluster.describe_cluster)
    unregister_broker = _operation(cluster.unregister_broker)
    describe_features = _operation(cluster.describe_features)
    update_features = _operation(cluster.update_features)
    describe_quorum = _operation(cluster.describe_quorum)
    add_voter = _operation(cluster.add_voter)
    remove_voter = _operation(cluster.remove_voter)

    # replicas and their directories
    elect_leaders = _operation(replicas.elect_leaders)
    alter_reassignments = _operation(replicas.alter_reassignments)
    list_reassignments = _operation(replicas.list_reassignments)
    describe_log_dirs = _operation(replicas.describe_log_dirs)
    alter_replica_log_dirs = _operation(replicas.alter_replica_log_dirs)

    # rights, users and quotas
    create_acls = _operation(acls.create_acls)
    describe_acls = _operation(acls.describe_acls)
    delete_acls = _operation(acls.delete_acls)
    describe_users = _operation(users.describe_users)
    set_password = _operation(users.set_password)
    delete_passwords = _operation(users.delete_passwords)
    describe_quotas = _operation(users.describe_quotas)
    alter_quotas = _operation(users.alter_quotas)
    create_token = _operation(users.create_token)
    renew_token = _operation(users.renew_token)
    expire_token = _operation(users.expire_token)
    describe_tokens = _operation(users.describe_tokens)
