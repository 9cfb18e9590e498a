"""The blocking admin client: `headrace.Admin`.

What the methods do is written once for all shells, in client/admin; here an operation is begun, and
the caller waits for it.
"""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

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
from headrace.client.clock import clock
from headrace.client.settings.admin import admin_settings
from headrace.client.settings.configuration import Configuration, given_settings
from headrace.client.settings.keys import admin_keys
from headrace.client.settings.network import network_settings
from headrace.client.threads.driver import Driver

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("headrace.admin")


def _blocking(operation: Callable[P, Operation[T]]) -> Callable[Concatenate[Admin, P], T]:
    def method(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(operation(*args, **kwargs))

    present(method, operation)
    return method


class Admin:
    """Asks and orders about topics, configs, groups, transactions, brokers, rights and users.

    Settings have Kafka's names, or Python's spelling of them; text alone is `bootstrap.servers`. Every method
    waits for at most default.api.timeout.ms, and tries again meanwhile what may pass; `within` gives another
    patience. Any number of threads may use one client.

    What goes wrong is raised as an error that names its subject, mostly a `KafkaError`. Where several were
    asked for together and some failed, that is a `PartlyFailed`, which has the results of the others.

    >>> with Admin(servers) as admin:
    ...     admin.describe_topic("orders").replication_factor
    1
    """

    def __init__(self, config: str | Mapping[str, object] | None = None, /, **settings: object) -> None:
        configuration = Configuration(admin_keys(), given_settings(config, settings))
        for name in configuration.without_effect():
            log.warning("the setting %s has no effect", name)
        self._timeout_s: float | None = None
        self._session = AdminSession(admin_settings(configuration), random.SystemRandom())
        self._driver = Driver(self._session, network_settings(configuration), name="headrace-admin")
        self._driver.start()

    def within(self, timeout: float) -> Self:
        """The same client for calls that may take so many seconds, and no more.

        >>> admin.within(5).describe_cluster().controller_id
        1
        """
        hurried = copy.copy(self)
        hurried._timeout_s = timeout
        return hurried

    def close(self) -> None:
        """Ends the client and all that is under way. May be called again.

        >>> admin = Admin(servers)
        >>> admin.close()
        """
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, operation: Operation[T]) -> T:
        driver, session = self._driver, self._session
        with driver.lock:
            driver.check()
            pending = session.run(clock(), operation, self._timeout_s)
            driver.wake()
            try:
                driver.wait_until(lambda: pending.is_done)
            finally:
                session.abandon(pending)  # the wait may have been interrupted
            return pending.result()

    # topics
    create_topic = _blocking(topics.create_topic)
    create_topics = _blocking(topics.create_topics)
    delete_topic = _blocking(topics.delete_topic)
    delete_topics = _blocking(topics.delete_topics)
    create_partitions = _blocking(topics.create_partitions)
    list_topics = _blocking(topics.list_topics)
    describe_topic = _blocking(topics.describe_topic)
    describe_topics = _blocking(topics.describe_topics)

    # offsets and records
    list_offsets = _blocking(offsets.list_offsets)
    delete_records = _blocking(offsets.delete_records)
    split_ranges = _blocking(offsets.split_ranges)

    # configs
    describe_config = _blocking(configs.describe_config)
    describe_configs = _blocking(configs.describe_configs)
    alter_config = _blocking(configs.alter_config)
    alter_configs = _blocking(configs.alter_configs)
    list_config_resources = _blocking(configs.list_config_resources)

    # groups
    list_groups = _blocking(groups.list_groups)
    describe_group = _blocking(groups.describe_group)
    describe_groups = _blocking(groups.describe_groups)
    delete_group = _blocking(groups.delete_group)
    delete_groups = _blocking(groups.delete_groups)
    remove_members = _blocking(groups.remove_members)
    list_group_offsets = _blocking(group_offsets.list_group_offsets)
    list_offsets_of_groups = _blocking(group_offsets.list_offsets_of_groups)
    alter_group_offsets = _blocking(group_offsets.alter_group_offsets)
    delete_group_offsets = _blocking(group_offsets.delete_group_offsets)
    group_lag = _blocking(group_offsets.group_lag)
    lag_of_groups = _blocking(group_offsets.lag_of_groups)

    # transactions
    list_transactions = _blocking(transactions.list_transactions)
    describe_transaction = _blocking(transactions.describe_transaction)
    describe_transactions = _blocking(transactions.describe_transactions)
    fence_producers = _blocking(transactions.fence_producers)
    describe_producers = _blocking(transactions.describe_producers)
    find_open_transactions = _blocking(transactions.find_open_transactions)
    find_hanging_transactions = _blocking(transactions.find_hanging_transactions)
    abort_transaction = _blocking(transactions.abort_transaction)

    # sinks
    list_sinks = _blocking(sinks.list_sinks)
    commit_sink = _blocking(sinks.commit_sink)
    abort_sink = _blocking(sinks.abort_sink)
    reset_sink = _blocking(sinks.reset_sink)

    # the cluster
    list_brokers = _blocking(cluster.list_brokers)
    describe_cluster = _blocking(cluster.describe_cluster)
    unregister_broker = _blocking(cluster.unregister_broker)
    describe_features = _blocking(cluster.describe_features)
    update_features = _blocking(cluster.update_features)
    describe_quorum = _blocking(cluster.describe_quorum)
    add_voter = _blocking(cluster.add_voter)
    remove_voter = _blocking(cluster.remove_voter)

    # replicas and their directories
    elect_leaders = _blocking(replicas.elect_leaders)
    alter_reassignments = _blocking(replicas.alter_reassignments)
    list_reassignments = _blocking(replicas.list_reassignments)
    describe_log_dirs = _blocking(replicas.describe_log_dirs)
    alter_replica_log_dirs = _blocking(replicas.alter_replica_log_dirs)

    # rights, users and quotas
    create_acls = _blocking(acls.create_acls)
    describe_acls = _blocking(acls.describe_acls)
    delete_acls = _blocking(acls.delete_acls)
    describe_users = _blocking(credentials.describe_users)
    set_password = _blocking(credentials.set_password)
    delete_passwords = _blocking(credentials.delete_passwords)
    describe_quotas = _blocking(quotas.describe_quotas)
    alter_quotas = _blocking(quotas.alter_quotas)
    create_token = _blocking(credentials.create_token)
    renew_token = _blocking(credentials.renew_token)
    expire_token = _blocking(credentials.expire_token)
    describe_tokens = _blocking(credentials.describe_tokens)
