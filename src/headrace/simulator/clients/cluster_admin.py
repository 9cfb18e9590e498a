"""Admin client of a cluster: creates, changes, describes and deletes its own topics, and elects leaders.

It sends its requests to whichever node answers, one after the other. It uses no name, number of partitions or
value twice. So the answers say which topics and settings must exist at the end, although a request that was
not answered may be carried out later.
"""

from collections.abc import Callable, Generator
from typing import Any

from headrace.machines.metadata.image import ClusterImage
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.cluster import Cluster
from headrace.simulator.history import AdminAnswered, Violation
from headrace.simulator.host import Host

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
DESCRIBE_CONFIGS, ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS = 32, 43, 44
TOPIC_RESOURCE, SET, PREFERRED = 2, 0, 0
TIMEOUT_MS = 3_000
PATIENCE_S = 2.0  # less than some faults last: it asks other nodes while the first one still tries
SETTING, LEAST_VALUE = "delete.retention.ms", 1_000
TOPICS_MAX = 5  # at a time

# After these nobody knows whether it was done, or will be.
UNCERTAIN = frozenset((ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR))


class Made:
    """A topic, as far as the client knows."""

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.may_exist = False  # somebody may create it, or has
        self.exists = False
        self.is_doomed = False  # its deletion was asked for
        self.is_gone = False
        self.counts = [partitions]  # the number of partitions that was told last, and those not refused since
        self.values = [""]  # the same of its setting; "": the default

    def __repr__(self) -> str:
        return f"{self.name} (partitions {self.counts}, setting {self.values})"


class ClusterAdmin(Script):
    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self._cluster = cluster
        self.patience_s = PATIENCE_S
        self._replicas = min(3, cluster.size)
        self._numbers = 0  # used so far
        self.made: list[Made] = []
        self.is_stopping = False  # does each thing once more, until it is done, and ends

    def chosen(self) -> Host:
        """Often the active controller: if it is isolated, only those that are connected to it ask it."""
        controller = self._cluster.hosts.get(self._cluster.controller_id)
        return controller if controller is not None and self.world.chance(0.6) else super().chosen()

    def story(self) -> Story:
        while not self.is_stopping:
            yield Pause(self.world.between(0.02, 0.2))
            there = [one for one in self.made if one.exists and not one.is_doomed]
            deed = self.world.rng.randrange(8)
            if not there or (deed < 2 and len(there) < TOPICS_MAX):
                yield from self._create(self._new())
                continue
            topic = self.world.rng.choice(there)
            if deed == 2:
                yield from self._delete(topic)
            elif deed <= 4:
                yield from self._grow(topic)
            elif deed == 5:
                yield from self._alter(topic)
            elif deed == 6:
                yield from self._describe(topic)
            else:
                yield from self._elect(topic)
        yield from self._finale()

    def _finale(self) -> Story:
        topic, doomed = self._new(), self._new()
        for one in (topic, doomed):
            while not one.exists:
                yield from self._create(one)
        while len(topic.counts) > 1 or topic.counts[0] == 1:
            yield from self._grow(topic)
        while not topic.values[0]:
            yield from self._alter(topic)
        while not (yield from self._describe(topic)):
            pass
        while not doomed.is_gone:
            yield from self._delete(doomed)

    # --- deeds ----------------------------------------------------------------------------------------------

    def _new(self) -> Made:
        made = Made(f"{self.name}-{len(self.made)}", 1)
        self.made.append(made)
        return made

    def _create(self, topic: Made) -> Story:
        wanted = CreatableTopic(
            name=topic.name,
            num_partitions=topic.counts[0],
            replication_factor=self._replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name="retention.ms", value="-1")],
        )
        body = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=False)
        may_have_existed, topic.may_exist = topic.may_exist, True
        code = yield from self._ask(
            CREATE_TOPICS, 7, body, "create", lambda answer: answer.topics[0].error_code
        )
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):  # it may have been asked twice
            topic.exists = True
        elif code not in UNCERTAIN:
            topic.may_exist = may_have_existed

    def _delete(self, topic: Made) -> Story:
        state = DeleteTopicState(name=topic.name)
        body = DeleteTopicsRequest(topics=[state], topic_names=[], timeout_ms=TIMEOUT_MS)
        was_doomed, topic.is_doomed = topic.is_doomed, True
        code = yield from self._ask(
            DELETE_TOPICS, 6, body, "delete", lambda answer: answer.responses[0].error_code
        )
        if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            topic.is_gone = True
        elif code not in UNCERTAIN:
            topic.is_doomed = was_doomed

    def _grow(self, topic: Made) -> Story:
        count = topic.counts[-1] + 1
        body = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic.name, count=count, assignments=None)],
            timeout_ms=TIMEOUT_MS,
            validate_only=False,
        )
        topic.counts.append(count)
        code = yield from self._ask(
            CREATE_PARTITIONS, 3, body, "grow", lambda answer: answer.results[0].error_code
        )
        if code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):  # it may have been asked twice
            topic.counts = [count]
        elif code not in UNCERTAIN:
            topic.counts.remove(count)

    def _alter(self, topic: Made) -> Story:
        self._numbers += 1
        value = str(LEAST_VALUE + self._numbers)
        config = AlterableConfig(name=SETTING, config_operation=SET, value=value)
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=[config]
        )
        body = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        topic.values.append(value)
        code = yield from self._ask(
            INCREMENTAL_ALTER_CONFIGS, 1, body, "alter", lambda answer: answer.responses[0].error_code
        )
        if code == ErrorCode.NONE:  # what was not answered before may still come
            topic.values.remove(value)
            topic.values[0] = value
        elif code not in UNCERTAIN:
            topic.values.remove(value)

    def _describe(self, topic: Made) -> Generator[Ask | Pause, Any, bool]:
        """Whether it has a value that it may have. A node that lags behind does not know the last one yet."""
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic.name, configuration_keys=[SETTING]
        )
        body = DescribeConfigsRequest(
            resources=[resource], include_synonyms=False, include_documentation=False
        )
        told: list[str] = []

        def code_of(answer: Any) -> int:
            result = answer.results[0]
            told.extend(config.value for config in result.configs)
            return int(result.error_code)

        yield from self._ask(DESCRIBE_CONFIGS, 4, body, "describe", code_of)
        return bool(told) and told[0] in topic.values

    def _elect(self, topic: Made) -> Story:
        """Of its own topic, or of all that there are."""
        some = [TopicPartitions(topic=topic.name, partitions=list(range(topic.counts[0])))]
        body = ElectLeadersRequest(
            election_type=PREFERRED,
            topic_partitions=some if self.world.chance(0.3) else None,
            timeout_ms=TIMEOUT_MS,
        )

        def code_of(answer: Any) -> int:
            results = answer.replica_election_results
            codes = [one.error_code for each in results for one in each.partition_result]
            return int(answer.error_code or next((code for code in codes if code), 0))

        yield from self._ask(ELECT_LEADERS, 2, body, "elect", code_of)

    def _ask(
        self, api_key: int, version: int, body: Any, what: str, code_of: Callable[[Any], int]
    ) -> Generator[Ask | Pause, Any, ErrorCode]:
        """The error code of the answer; without one, as if the node had said that it does not know."""
        answer = yield Ask(api_key, version, body)
        if answer is None:
            return ErrorCode.REQUEST_TIMED_OUT
        code = ErrorCode(code_of(answer))
        self.history.add(AdminAnswered(self.name, what, code.name))
        if code != ErrorCode.NONE:
            self.hang_up()  # another node may know more
            yield Pause(0.1)
        return code

    # --- what there must be ---------------------------------------------------------------------------------

    def check(self, image: ClusterImage) -> None:
        """In the metadata of a node that has caught up, when nothing is under way any more."""
        for made in self.made:
            topic = image.topics.get(made.name)
            if topic is None:
                if made.exists and not made.is_doomed:
                    raise Violation(f"{made} was created, nobody has deleted it, and it is not there")
                continue
            if not made.may_exist:
                raise Violation(f"the creation of {made} was refused, and it is there")
            if made.is_gone:
                raise Violation(f"{made} was deleted, and it is there")
            if len(topic.partitions) not in made.counts:
                raise Violation(f"{made} has {len(topic.partitions)} partitions")
            value = image.topic_config(made.name).get(SETTING, "")
            if value not in made.values:
                raise Violation(f"{made} has {SETTING}={value}")
