"""Settings of the group and transaction coordinators. See `definition.py` for the notation."""

TABLE = """
group.consumer.assignment.interval.ms int 1000 0.. medium cluster
    Shortest time between two assignments of a group of the new consumer protocol.
group.consumer.assignors list uniform,range * medium ro
    Assignors of the new consumer protocol, by name; the first is used if no member names one.
group.consumer.heartbeat.interval.ms int 5000 1.. medium ro
    How often members of the new consumer protocol send heartbeats.
group.consumer.max.assignment.interval.ms int 15000 0.. medium ro
    Largest consumer.assignment.interval.ms a group may be given.
group.consumer.max.heartbeat.interval.ms int 15000 1.. medium ro
    Largest consumer.heartbeat.interval.ms a group may be given.
group.consumer.max.session.timeout.ms int 60000 1.. medium ro
    Largest consumer.session.timeout.ms a group may be given.
group.consumer.max.size int 2147483647 1.. medium ro
    Largest number of members of a group of the new consumer protocol; more are refused.
group.consumer.migration.policy string bidirectional ~{disabled,downgrade,upgrade,bidirectional} medium ro
    Which changes of protocol are allowed while a group has members: `upgrade` to the new one, `downgrade` to
    the classic one, both, or none.
group.consumer.min.assignment.interval.ms int 0 0.. medium ro
    Smallest consumer.assignment.interval.ms a group may be given.
group.consumer.min.heartbeat.interval.ms int 5000 1.. medium ro
    Smallest consumer.heartbeat.interval.ms a group may be given.
group.consumer.min.session.timeout.ms int 45000 1.. medium ro
    Smallest consumer.session.timeout.ms a group may be given.
group.consumer.regex.refresh.interval.ms int 600000 10000.. medium internal
    How often the topics that match a group's regular expression are looked up again.
group.consumer.session.timeout.ms int 45000 1.. medium ro
    A member of the new consumer protocol that is silent for this long is removed.
group.coordinator.rebalance.protocols list classic,consumer,streams {consumer,classic,share,streams} medium ro
    Group protocols that the broker serves. `share` and `streams` are accepted, but not served.
group.initial.rebalance.delay.ms int 3000 * medium ro
    How long a classic group that was empty waits for more members before its first rebalance.
group.max.session.timeout.ms int 1800000 * medium ro
    Largest session timeout that a classic member may request.
group.max.size int 2147483647 1.. medium ro
    Largest number of members of a classic group; more are refused.
group.min.session.timeout.ms int 6000 * medium ro
    Smallest session timeout that a classic member may request.
offset.metadata.max.bytes int 4096 * high ro
    Largest size of the metadata text of a committed offset.
offsets.commit.timeout.ms int 5000 1.. high ro
    How long a commit waits for the replicas of its partition before it fails.
offsets.load.buffer.size int 5242880 1.. high ro
    Bytes read at a time while a group coordinator loads its partition.
offsets.retention.check.interval.ms long 600000 1.. high ro
    How often expired offsets are removed.
offsets.retention.minutes int 10080 1.. high ro
    How long the offsets of an empty group, or of a topic to which it is no longer subscribed, are kept.
offsets.topic.compression.codec int 0 * high ro
    Codec of batches in `__consumer_offsets`, by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.topic.num.partitions int 50 1.. high ro
    Number of partitions with which `__consumer_offsets` is created; do not change it afterwards.
offsets.topic.replication.factor short 3 1.. high ro
    Number of replicas with which `__consumer_offsets` is created.
offsets.topic.segment.bytes int 104857600 1.. high ro
    Segment size of `__consumer_offsets`; small segments are compacted and loaded sooner.
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000 1.. low ro
    Has no effect: Headrace aborts a transaction as soon as its timeout is over.
transaction.max.timeout.ms int 900000 1.. high ro
    Longest transaction timeout that a producer may request.
transaction.partition.verification.enable boolean true * low cluster
    Whether the broker asks the coordinator if a partition belongs to the transaction, before it writes the
    first record.
transaction.remove.expired.transaction.cleanup.interval.ms int 3600000 1.. low ro
    How often expired transactional ids are removed.
transaction.state.log.load.buffer.size int 5242880 1.. high ro
    Bytes read at a time while a transaction coordinator loads its partition.
transaction.state.log.min.isr int 2 1.. high ro
    min.insync.replicas of `__transaction_state` when it is created.
transaction.state.log.num.partitions int 50 1.. high ro
    Number of partitions with which `__transaction_state` is created; do not change it afterwards.
transaction.state.log.replication.factor short 3 1.. high ro
    Number of replicas with which `__transaction_state` is created.
transaction.state.log.segment.bytes int 104857600 1.. high ro
    Segment size of `__transaction_state`.
transaction.two.phase.commit.enable boolean false * low ro
    Has no effect: two-phase commit with an external coordinator is not supported.
transactional.id.expiration.ms int 604800000 1.. high ro
    How long an unused transactional id is kept.
"""
