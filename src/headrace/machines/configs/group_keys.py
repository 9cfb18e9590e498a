"""Settings of a group; after `<` the broker key that gives its default. See `definition.py` for the notation.

Share and streams groups are not served. Their keys are accepted, so that tools that set them work.
"""

TABLE = """
consumer.assignment.interval.ms int 1000 0.. medium group < group.consumer.assignment.interval.ms
    Shortest time between two assignments of the group, with the new consumer protocol.
consumer.heartbeat.interval.ms int 5000 1.. medium group < group.consumer.heartbeat.interval.ms
    How often the group's members send heartbeats, with the new consumer protocol.
consumer.session.timeout.ms int 45000 1.. medium group < group.consumer.session.timeout.ms
    How long a member may send no heartbeat before it is removed, with the new consumer protocol.
share.assignment.interval.ms int 1000 0.. medium group < group.share.assignment.interval.ms
share.auto.offset.reset string latest reset medium group
share.delivery.count.limit int 5 2.. medium group < group.share.delivery.count.limit
share.heartbeat.interval.ms int 5000 1.. medium group < group.share.heartbeat.interval.ms
share.isolation.level string read_uncommitted {read_committed,read_uncommitted} medium group
share.partition.max.record.locks int 2000 100.. medium group < group.share.partition.max.record.locks
share.record.lock.duration.ms int 30000 1000.. medium group < group.share.record.lock.duration.ms
share.renew.acknowledge.enable boolean true * medium group
share.session.timeout.ms int 45000 1.. medium group < group.share.session.timeout.ms
streams.assignment.interval.ms int 1000 0.. medium group < group.streams.assignment.interval.ms
streams.heartbeat.interval.ms int 5000 1.. medium group < group.streams.heartbeat.interval.ms
streams.initial.rebalance.delay.ms int 3000 0.. medium group < group.streams.initial.rebalance.delay.ms
streams.num.standby.replicas int 0 0.. medium group < group.streams.num.standby.replicas
streams.session.timeout.ms int 45000 1.. medium group < group.streams.session.timeout.ms
"""
