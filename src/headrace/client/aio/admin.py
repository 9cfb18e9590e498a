"""The admin client for asyncio: `headrace.aio.Admin`.

What the methods do is written once for all shells, in client/admin; here an operation is begun, and
the task waits for it.
"""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from headrace.client.admin import (
    acls,
    cluster,
    configs,
    credentials,
    group_offsets,
    groups,
    offsets,
    quotas,
    replicas,
    sinks,
    topics,
    transactions,
)
from headrace.client.admin.operation import Operation
from headrace.client.admin.session import AdminSession, present
from headrace.client.aio.driver import Driver
from headrace.client.clock import clock
from headrace.client.settings.admin import admin_settings
from headrace.client.settings.configuration import Configuration, given_settings
from headrace.client.settings.keys import admin_keys
from headrace.client.settings.network import network_settings

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("headrace.admin")


def _awaited(
    operation: Callable[P, Operation[T]],
) -> Callable[Concatenate[Admin, P], Coroutine[Any, Any, T]]:
    async def method(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(operation(*args, **kwargs))

    present(method, operation)
    return method


class _Once:
    """Something to do before the first call, whichever copy of the client that comes from."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._is_done = False

    def __call__(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._act()


class Admin:
    """The methods of `headrace.Admin` as coroutines.

    It may be made before the loop runs, and belongs to the loop on which it is first waited for. Any number
    of tasks may use it at once; one that is cancelled does not take back what it has ordered.

    >>> import asyncio
    >>> from headrace.aio import Admin
    >>> async def main():
    ...     async with Admin(servers) as admin:
    ...         asked = admin.describe_topic("orders"), admin.describe_cluster()
    ...         topic, cluster = await asyncio.gather(*asked)
    ...         print(topic.name, cluster.controller_id)
    >>> asyncio.run(main())
    orders 1
    """

    def __init__(self, config: str | Mapping[str, object] | None = None, /, **settings: object) -> None:
        configuration = Configuration(admin_keys(), given_settings(config, settings))
        for name in configuration.without_effect():
            log.warning("the setting %s has no effect", name)
        self._timeout_s: float | None = None
        self._session = AdminSession(admin_settings(configuration), random.SystemRandom())
        self._driver = Driver(self._session, network_settings(configuration), name="headrace-admin")
        self._start = _Once(self._driver.start)

    def within(self, timeout: float) -> Self:
        """The same client for calls that may take so many seconds, and no more."""
        hurried = copy.copy(self)
        hurried._timeout_s = timeout
        return hurried

    async def close(self) -> None:
        """Ends the client and all that is under way. May be called again."""
        await self._driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, operation: Operation[T]) -> T:
        driver, session = self._driver, self._session
        driver.check()
        self._start()
        pending = session.run(clock(), operation, self._timeout_s)
        driver.wake()
        try:
            await driver.wait_until(lambda: pending.is_done)
        finally:
            session.abandon(pending)  # the task may have been cancelled
        return pending.result()

    # topics
    create_topic = _awaited(topics.create_topic)
    create_topics = _awaited(topics.create_topics)
    delete_topic = _awaited(topics.delete_topic)
    delete_topics = _awaited(topics.delete_topics)
    create_partitions = _awaited(topics.create_partitions)
    list_topics = _awaited(topics.list_topics)
    describe_topic = _awaited(topics.describe_topic)
    describe_topics = _awaited(topics.describe_topics)

    # offsets and records
    list_offsets = _awaited(offsets.list_offsets)
    delete_records = _awaited(offsets.delete_records)
    split_ranges = _awaited(offsets.split_ranges)

    # configs
    describe_config = _awaited(configs.describe_config)
    describe_configs = _awaited(configs.describe_configs)
    alter_config = _awaited(configs.alter_config)
    alter_configs = _awaited(configs.alter_configs)
    list_config_resources = _awaited(configs.list_config_resources)

    # groups
    list_groups = _awaited(groups.list_groups)
    describe_group = _awaited(groups.describe_group)
    describe_groups = _awaited(groups.describe_groups)
    delete_group = _awaited(groups.delete_group)
    delete_groups = _awaited(groups.delete_groups)
    remove_members = _awaited(groups.remove_members)
    list_group_offsets = _awaited(group_offsets.list_group_offsets)
    list_offsets_of_groups = _awaited(group_offsets.list_offsets_of_groups)
    alter_group_offsets = _awaited(group_offsets.alter_group_offsets)
    delete_group_offsets = _awaited(group_offsets.delete_group_offsets)
    group_lag = _awaited(group_offsets.group_lag)
    lag_of_groups = _awaited(group_offsets.lag_of_groups)

    # transactions
    list_transactions = _awaited(transactions.list_transactions)
    describe_transaction = _awaited(transactions.describe_transaction)
    describe_transactions = _awaited(transactions.describe_transactions)
    fence_producers = _awaited(transactions.fence_producers)
    describe_producers = _awaited(transactions.describe_producers)
    find_open_transactions = _awaited(transactions.find_open_transactions)
    find_hanging_transactions = _awaited(transactions.find_hanging_transactions)
    abort_transaction = _awaited(transactions.abort_transaction)

    # sinks
    list_sinks = _awaited(sinks.list_sinks)
    commit_sink = _awaited(sinks.commit_sink)
    abort_sink = _awaited(sinks.abort_sink)
    reset_sink = _awaited(sinks.reset_sink)

    # the cluster
    list_brokers = _awaited(cluster.list_brokers)
    describe_cluster = _awaited(cluster.describe_cluster)
    unregister_broker = _awaited(cluster.unregister_broker)
    describe_features = _awaited(cluster.describe_features)
    update_features = _awaited(cluster.update_features)
    describe_quorum = _awaited(cluster.describe_quorum)
    add_voter = _awaited(cluster.add_voter)
    remove_voter = _awaited(cluster.remove_voter)

    # replicas and their directories
    elect_leaders = _awaited(replicas.elect_leaders)
    alter_reassignments = _awaited(replicas.alter_reassignments)
    list_reassignments = _awaited(replicas.list_reassignments)
    describe_log_dirs = _awaited(replicas.describe_log_dirs)
    alter_replica_log_dirs = _awaited(replicas.alter_replica_log_dirs)

    # rights, users and quotas
    create_acls = _awaited(acls.create_acls)
    describe_acls = _awaited(acls.describe_acls)
    delete_acls = _awaited(acls.delete_acls)
    describe_users = _awaited(credentials.describe_users)
    set_password = _awaited(credentials.set_password)
    delete_passwords = _awaited(credentials.delete_passwords)
    describe_quotas = _awaited(quotas.describe_quotas)
    alter_quotas = _awaited(quotas.alter_quotas)
    create_token = _awaited(credentials.create_token)
    renew_token = _awaited(credentials.renew_token)
    expire_token = _awaited(credentials.expire_token)
    describe_tokens = _awaited(credentials.describe_tokens)
