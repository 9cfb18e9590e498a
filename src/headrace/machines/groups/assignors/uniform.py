"""The `uniform` assignor: members get equal numbers of partitions, and keep their partitions if possible.

If all subscribe to the same topics, any two members differ by one partition at the most, and the fewest
possible partitions move. If subscriptions differ, no partition can be moved to another subscriber so that the
two come closer to each other.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace

from headrace.machines.groups.assignors.model import Subscriber, Target, subscribers_by_topic

Held = dict[bytes, list[int]]


def assign_uniformly(
    subscribers: Mapping[str, Subscriber], partitions: Mapping[bytes, int]
) -> dict[str, Target]:
    if not subscribers:
        return {}
    wishes = {subscriber.topics for subscriber in subscribers.values()}
    if len(wishes) == 1:
        held = share_equally(subscribers, {topic: partitions[topic] for topic in sorted(wishes.pop())})
    else:
        held = balance_by_topic(subscribers, partitions)
    return {
        member_id: {topic: tuple(sorted(numbers)) for topic, numbers in topics.items() if numbers}
        for member_id, topics in held.items()
    }


def share_equally(subscribers: Mapping[str, Subscriber], partitions: Mapping[bytes, int]) -> dict[str, Held]:
    """All members have the same subscription: each gets the same number of partitions, some one more."""
    quota, larger_quotas = divmod(sum(partitions.values()), len(subscribers))
    free = {topic: set(range(count)) for topic, count in partitions.items()}
    held: dict[str, Held] = {}
    counts: dict[str, int] = {}
    for member_id, subscriber in subscribers.items():
        kept: Held = {}
        room = quota + (larger_quotas > 0)
        for topic, numbers in subscriber.current.items():
            available = free.get(topic)
            if not available or not room:
                continue
            keeps = [number for number in numbers if number in available][:room]
            available.difference_update(keeps)
            kept[topic] = keeps
            room -= len(keeps)
        held[member_id] = kept
        counts[member_id] = quota + (larger_quotas > 0) - room
        if counts[member_id] > quota:
            larger_quotas -= 1

    rest = [(topic, number) for topic, numbers in free.items() for number in sorted(numbers)]
    rest.reverse()
    for member_id, count in counts.items():
        wanted = quota - count
        if larger_quotas and wanted >= 0:
            wanted += 1
            larger_quotas -= 1
        for _ in range(wanted):
            topic, number = rest.pop()
            held[member_id].setdefault(topic, []).append(number)
    assert not rest, "the quotas add up to all partitions"
    return held


def balance_by_topic(
    subscribers: Mapping[str, Subscriber], partitions: Mapping[bytes, int]
) -> dict[str, Held]:
    """Subscriptions differ: free partitions go to the member with the fewest; then partitions move while that
    improves the balance.
    """
    wanted = subscribers_by_topic(subscribers)
    place = {member_id: number for number, member_id in enumerate(subscribers)}
    held: dict[str, Held] = {member_id: {} for member_id in subscribers}
    free = {topic: set(range(partitions[topic])) for topic in wanted}
    for member_id, subscriber in subscribers.items():
        for topic, numbers in subscriber.current.items():
            if topic in subscriber.topics:
                kept = [number for number in numbers if number in free[topic]]
                free[topic].difference_update(kept)
                held[member_id][topic] = kept
    load = {member_id: sum(map(len, topics.values())) for member_id, topics in held.items()}

    # Topics with few subscribers leave the least choice: they come first.
    by_choice = sorted(wanted, key=lambda topic: (len(wanted[topic]), topic))
    for topic in by_choice:
        if free[topic]:
            _hand_out(topic, sorted(free[topic]), wanted[topic], held, load, place)
    is_level = False
    while not is_level:  # a move lowers the sum of the squared loads, so that this ends
        is_level = True
        for topic in by_choice:
            if _level(topic, wanted[topic], held, load, place):
                is_level = False
    return held


def _hand_out(
    topic: bytes,
    numbers: list[int],
    members: list[str],
    held: dict[str, Held],
    load: dict[str, int],
    place: Mapping[str, int],
) -> None:
    queue = [(load[member_id], place[member_id], member_id) for member_id in members]
    heapify(queue)
    for number in numbers:
        count, order, member_id = queue[0]
        held[member_id].setdefault(topic, []).append(number)
        load[member_id] = count + 1
        heapreplace(queue, (count + 1, order, member_id))


def _level(
    topic: bytes, members: list[str], held: dict[str, Held], load: dict[str, int], place: Mapping[str, int]
) -> bool:
    """Moves partitions of one topic from its most to its least loaded subscriber until they differ by one."""
    givers = [
        (-load[member_id], place[member_id], member_id) for member_id in members if held[member_id].get(topic)
    ]
    takers = [(load[member_id], place[member_id], member_id) for member_id in members]
    if not givers or -min(givers)[0] - min(takers)[0] < 2:
        return False
    heapify(givers)
    heapify(takers)
    while givers:
        _, giver_order, giver = givers[0]
        count, taker_order, taker = takers[0]
        # Loads change while we go: an outdated entry is put back with its true load.
        if -givers[0][0] != load[giver]:
            heapreplace(givers, (-load[giver], giver_order, giver))
        elif count != load[taker]:
            heapreplace(takers, (load[taker], taker_order, taker))
        elif load[giver] - load[taker] < 2:
            break
        else:
            held[taker].setdefault(topic, []).append(held[giver][topic].pop())
            load[giver] -= 1
            load[taker] += 1
            if held[giver][topic]:
                heapreplace(givers, (-load[giver], giver_order, giver))
            else:
                heappop(givers)
            heapreplace(takers, (load[taker], taker_order, taker))
    return True
