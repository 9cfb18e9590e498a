"""Simulated operator: changes settings, moves partitions and replaces topics while the node works.

Its requests arrive at once, so that a play can put them between two steps of a job. `restore` undoes its
changes.
"""

from dataclasses import dataclass
from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.simulator.clients.admin import create
from headrace.simulator.clients.simulated_client import Ask, SimulatedClient
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import (
    ConfigAsked,
    ConfigChanged,
    TopicCreationAsked,
    TopicDeleted,
    TopicDeletionAsked,
)
from headrace.simulator.host import Host

DELETE_TOPICS, ALTER_REPLICA_LOG_DIRS, INCREMENTAL_ALTER_CONFIGS = 20, 34, 44
TOPIC_RESOURCE, BROKER_RESOURCE, SET = 2, 4, 0
TIMEOUT_MS = 5_000
RESTORE_AGAIN_S = 0.1
NEVER = str(2**63 - 1)

# Values of a topic's settings that change nothing of what is promised; the first is the one set in the end.
HARMLESS: dict[str, tuple[str, ...]] = {
    "compression.type": ("producer", "gzip", "lz4", "zstd", "snappy"),
    "headrace.sealed.compression.type": ("none", "zstd", "gzip"),
    "headrace.validate.records": ("false", "true"),
    "flush.ms": (NEVER, "0", "50"),
    "min.insync.replicas": ("1", "2"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "index.interval.bytes": ("4096", "0", "300"),
    "file.delete.delay.ms": ("60000", "0", "200"),
    "segment.ms": ("604800000", "300"),
}

# The same for settings of the broker itself.
BROKER: dict[str, tuple[str, ...]] = {
    "log.index.interval.bytes": ("4096", "0"),
    "log.segment.delete.delay.ms": ("60000", "100"),
    "log.cleaner.delete.retention.ms": ("86400000", "1000"),
    "message.max.bytes": ("1048588", "900000"),
    "log.roll.ms": ("604800000", "500"),
}


@dataclass(slots=True, frozen=True)
class Setting:
    topic: str  # "": of the broker
    key: str
    values: tuple[str, ...]  # the first is the one set in the end


def settings_of(topic: Topic | str, **more: tuple[str, ...]) -> list[Setting]:
    """The harmless ones, and more: underscores stand for dots."""
    name, own = (topic, {}) if isinstance(topic, str) else (topic.name, topic.configs)
    wanted = HARMLESS | {key.replace("_", "."): values for key, values in more.items()}
    return [
        Setting(name, key, tuple(dict.fromkeys((own.get(key, values[0]), *values))))
        for key, values in wanted.items()
    ]


def broker_settings() -> list[Setting]:
    return [Setting("", key, values) for key, values in BROKER.items()]


class Operator(SimulatedClient):
    def __init__(
        self,
        host: Host,
        name: str,
        settings: list[Setting],
        passing: list[Topic],
        everything: list[Topic],
    ) -> None:
        super().__init__(host, name)
        self._settings = settings
        self._passing = passing  # topics that it deletes and makes again
        self._all = everything  # that clients know of
        self._changed: dict[Setting, None] = {}  # may have another value than in the end
        self._is_restoring = False

    # --- its deeds: what was done, in words -----------------------------------------------------------------

    def change_setting(self) -> str:
        rng = self.world.rng
        if not self._settings:
            return "no setting to change"
        setting = rng.choice(self._settings)
        return self._set(setting, rng.choice(setting.values))

    def move_partition(self) -> str:
        """To the other directory, also a coordinator's while it loads; or back, while it is on its way."""
        host, rng = self.host.reach(None), self.world.rng
        node = host.node
        if node is None or len(host.disks) < 2:
            return "no partition moves"
        partitions = list(node.broker.partitions.all())
        if not partitions:
            return "no partition moves"
        partition = rng.choice(partitions)
        path = rng.choice(sorted(host.disks))
        topic = AlterReplicaLogDirTopic(name=partition.topic, partitions=[partition.index])
        body = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        return self._tell(
            Ask(ALTER_REPLICA_LOG_DIRS, 2, body), f"{partition.topic}-{partition.index} moves to {path}"
        )

    def replace_topic(self) -> str:
        """Make it, or delete it and mostly make another under its name at once."""
        if not self._passing:
            return "no topic to replace"
        if self.wire is None:  # a topic that nobody deletes is not to be forgotten for its namesake
            return "the operator is not connected"
        number = self.world.rng.randrange(len(self._passing))
        topic = self._passing[number]
        if not topic.is_doomed and topic.is_asked:
            done = self._delete(topic)
            if self.world.chance(0.3):
                return done
        fresh = topic
        if topic.is_asked:
            fresh = Topic(
                topic.name, topic.partitions, topic.configs, has_namesakes=True, has_keys=topic.has_keys
            )
            self._passing[number] = fresh
            self._all.append(fresh)
        return self._create(fresh)

    def restore(self) -> None:
        self._is_restoring = True
        self._restore_next()

    @property
    def has_restored(self) -> bool:
        return not self._changed

    # --- requests -------------------------------------------------------------------------------------------

    def _tell(self, asked: Ask, what: str) -> str:
        if self.wire is None:
            return f"the operator is not connected: {what}"
        self.ask(asked.api_key, asked.version, asked.body, asked, at_once=True)
        return what

    def _set(self, setting: Setting, value: str) -> str:
        if self.wire is None:
            return "the operator is not connected"
        history = self.history
        if setting.topic:
            history.add(ConfigAsked(setting.topic, setting.key, value))
        if value == setting.values[0]:
            self._changed.setdefault(setting)
        else:
            self._changed[setting] = None
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE if setting.topic else BROKER_RESOURCE,
            resource_name=setting.topic,
            configs=[AlterableConfig(name=setting.key, config_operation=SET, value=value)],
        )
        body = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

        def promised(answer: Any) -> None:
            code = answer.responses[0].error_code
            if code == ErrorCode.NONE and setting.topic:
                history.add(ConfigChanged(setting.topic, setting.key, value))
            is_settled = code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if is_settled and value == setting.values[0]:
                self._changed.pop(setting, None)

        asked = Ask(INCREMENTAL_ALTER_CONFIGS, 1, body, promised)
        return self._tell(asked, f"{setting.topic or 'broker'}: {setting.key}={value}")

    def _delete(self, topic: Topic) -> str:
        if self.wire is None:
            return "the operator is not connected"
        topic.is_doomed = True
        self.history.add(TopicDeletionAsked(topic.name))
        body = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic.name)], topic_names=[], timeout_ms=TIMEOUT_MS
        )

        def promised(answer: Any) -> None:
            if answer.responses[0].error_code == ErrorCode.NONE:
                topic.is_gone = True
                if topic in self._passing:  # else its namesake may be there by now
                    self.history.add(TopicDeleted(topic.name))

        return self._tell(Ask(DELETE_TOPICS, 6, body, promised), f"topic {topic.name} is deleted")

    def _create(self, topic: Topic) -> str:
        if self.wire is None:
            return "the operator is not connected"
        topic.is_asked = True
        self.history.add(TopicCreationAsked(topic.name))
        return self._tell(create(self.history, topic), f"topic {topic.name} is made")

    # --- a session ------------------------------------------------------------------------------------------

    def connected(self) -> None:
        if self._is_restoring:
            self._restore_next()

    def promised(self, asked: Any, answer: Any, /) -> None:
        if asked.promised is not None:
            asked.promised(answer)

    def got(self, asked: Any, answer: Any) -> None:
        if self._is_restoring:
            self.world.after(RESTORE_AGAIN_S, self._restore_next)

    def _restore_next(self) -> None:
        setting = next(iter(self._changed), None)
        if setting is not None and self.wire is not None:
            self._set(setting, setting.values[0])
