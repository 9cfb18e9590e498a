"""Random lives of a consumer group: members of both protocols come, go, crash, lose answers and change their
minds.

The coordinator judges itself after every decision (see the harness): the log rebuilds it, nobody shares a
partition. Here the consumers are judged too: what two of them read at the same time never overlaps. In the
end all are left in peace, and everything must have found one owner.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harness.consumer_groups import GROUP, ClassicConsumer, Consumer, Coordinator
from harness.group_shard import FakeTopics
from headrace.machines.groups.consumer import ConsumerGroup

NAMES = ["orders", "bills", "orders-eu"]
SUBSCRIPTIONS = st.lists(st.sampled_from(NAMES), unique=True)
PATTERNS = st.sampled_from([None, None, None, "orders.*", "b.+", ""])


class History(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.topics = FakeTopics(orders=3, bills=2)
        # The group never becomes a classic one, whose members would have to assign for themselves.
        self.coordinator = Coordinator(
            self.topics, group_consumer_assignment_interval_ms=500, group_consumer_migration_policy="upgrade"
        )
        self.consumers: list[Consumer] = []
        self.classics: list[ClassicConsumer] = []
        self.count = 0

    def pick(self, data: Any) -> Consumer:
        chosen: Consumer = data.draw(st.sampled_from(self.consumers))
        return chosen

    @rule(topics=SUBSCRIPTIONS, regex=PATTERNS, is_static=st.booleans())
    def join(self, topics: list[str], regex: str | None, is_static: bool) -> None:
        if len(self.consumers) < 6:
            self.count += 1
            instance_id = f"i{self.count}" if is_static else None
            joining = Consumer(
                self.coordinator, f"m{self.count}", *topics, regex=regex, instance_id=instance_id
            )
            joining.beat()
            self.consumers.append(joining)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), is_answer_lost=st.sampled_from([False, False, True]))
    def beat(self, data: Any, is_answer_lost: bool) -> None:
        self.pick(data).beat(is_answer_lost=is_answer_lost)

    @rule()
    def beat_all(self) -> None:
        for consumer in self.consumers:
            consumer.beat()
        for classic in self.classics:
            classic.settle(1)

    @property
    def is_inhabited(self) -> bool:
        group = self.coordinator.groups.groups.get(GROUP)
        return isinstance(group, ConsumerGroup) and not group.is_empty

    @precondition(lambda self: self.is_inhabited and len(self.classics) < 3)
    @rule(topics=SUBSCRIPTIONS)
    def join_classic(self, topics: list[str]) -> None:
        self.classics.append(ClassicConsumer(self.coordinator, *topics).settle(1))

    @precondition(lambda self: self.classics)
    @rule(data=st.data())
    def beat_classic(self, data: Any) -> None:
        data.draw(st.sampled_from(self.classics)).settle(1)

    @precondition(lambda self: self.classics)
    @rule(data=st.data(), is_crash=st.booleans())
    def end_classic(self, data: Any, is_crash: bool) -> None:
        ending = data.draw(st.sampled_from(self.classics))
        self.classics.remove(ending)
        if not is_crash:
            ending.leave()
            self.drop_zombies()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), topics=SUBSCRIPTIONS)
    def subscribe(self, data: Any, topics: list[str]) -> None:
        self.pick(data).subscribe(*topics)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        leaving = self.pick(data)
        self.consumers.remove(leaving)
        leaving.leave()
        self.drop_zombies()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def crash(self, data: Any) -> None:
        self.consumers.remove(self.pick(data))

    @precondition(lambda self: any(consumer.instance_id for consumer in self.consumers))
    @rule(data=st.data())
    def restart_static(self, data: Any) -> None:
        static = data.draw(st.sampled_from([each for each in self.consumers if each.instance_id]))
        static.leave(epoch=-2)
        self.count += 1
        static.member_id = f"m{self.count}"
        static.beat()

    @rule(seconds=st.sampled_from([0.3, 1, 12, 31]))
    def pass_time(self, seconds: float) -> None:
        self.coordinator.pass_time(seconds)
        self.drop_zombies()

    @rule()
    def another_coordinator(self) -> None:
        if GROUP in self.coordinator.groups.groups:
            self.coordinator.restart()

    @rule(name=st.sampled_from(NAMES), size=st.integers(1, 5))
    def change_topic(self, name: str, size: int) -> None:
        known = self.topics.partition_count(name)
        if known is None:
            self.topics.create(name, size)
        elif size > known:
            self.topics.grow(name, size)
        else:
            self.topics.delete(name)

    def drop_zombies(self) -> None:
        """Who was removed for its silence does not know; it may go on reading, and its commits are
        refused. Nobody of the classic protocol comes back to an empty group: it would become a classic one.
        """
        group = self.coordinator.groups.groups.get(GROUP)
        members = group.members if isinstance(group, ConsumerGroup) else {}
        for consumer in self.consumers:
            if consumer.member_id not in members:
                consumer.owned.clear()
        for classic in self.classics:
            if classic.member_id not in members:
                classic.owned.clear()
        if not members:
            self.classics.clear()

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        read = self.all_owned()
        assert len(read) == len(set(read))

    def all_owned(self) -> list[tuple[bytes, int]]:
        owned = [place for consumer in self.consumers for place in consumer.owned]
        for classic in self.classics:
            owned += [(topic_id, number) for topic_id, _, number in classic.owned]
        return owned

    def teardown(self) -> None:
        for _ in range(18):
            self.coordinator.pass_time(5)
            self.drop_zombies()
            for _ in range(2):
                self.beat_all()
        group = self.coordinator.groups.groups.get(GROUP)
        if not self.consumers and not self.classics:
            assert not isinstance(group, ConsumerGroup) or group.is_empty
            return
        assert isinstance(group, ConsumerGroup)
        assert group.state_name == "Stable"
        consumers, classics = ({each.member_id for each in kind} for kind in (self.consumers, self.classics))
        assert set(group.members) == consumers | classics
        wanted = {name for name in self.topics.names() if group.is_subscribed_to(name)}
        assert sorted(self.all_owned()) == sorted(self.topics.places(*wanted))


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
