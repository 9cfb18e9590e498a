"""Settings of the group and transaction coordinators. See `definition.py` for the notation."""

TABLE = """
group.consumer.assignment.interval.ms int 1000 0.. medium cluster
    Least time between two assignments of a group of the new consumer protocol.
group.consumer.assignors list uniform,range * medium ro
    Assignors of the new consumer protocol, by short name; the first is taken when a member names none.
group.consumer.heartbeat.interval.ms int 5000 1.. medium ro
    How often members of the new consumer protocol are told to heartbeat.
group.consumer.max.assignment.interval.ms int 15000 0.. medium ro
    Largest consumer.assignment.interval.ms a group may be given.
group.consumer.max.heartbeat.interval.ms int 15000 1.. medium ro
    Largest consumer.heartbeat.interval.ms a group may be given.
group.consumer.max.session.timeout.ms int 60000 1.. medium ro
    Largest consumer.session.timeout.ms a group may be given.
group.consumer.max.size int 2147483647 1.. medium ro
    Most members of a group of the new consumer protocol; one more is refused.
group.consumer.migration.policy string bidirectional ~{disabled,downgrade,upgrade,bidirectional} medium ro
    Which groups may change protocol while members are live: `upgrade` to the new one, `downgrade` to the
    classic one, both, or none.
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
    Group protocols that are served. `share` and `streams` may be named and are not served.
group.initial.rebalance.delay.ms int 3000 * medium ro
    How long a classic group that was empty waits for more members before its first rebalance.
group.max.session.timeout.ms int 1800000 * medium ro
    Largest session timeout a classic member may ask for.
group.max.size int 2147483647 1.. medium ro
    Most members of a classic group; one more is refused.
group.min.session.timeout.ms int 6000 * medium ro
    Smallest session timeout a classic member may ask for.
offset.metadata.max.bytes int 4096 * high ro
    Longest text that may be committed beside an offset.
offsets.commit.timeout.ms int 5000 1.. high ro
    How long a commit waits for the replicas of its partition before it fails.
offsets.load.buffer.size int 5242880 1.. high ro
    Bytes read at a time while a group coordinator loads its partition.
offsets.retention.check.interval.ms long 600000 1.. high ro
    How often expired offsets are looked for.
offsets.retention.minutes int 10080 1.. high ro
    How long the offsets of an empty group, or of a topic its members left, are kept.
offsets.topic.compression.codec int 0 * high ro
    Codec of batches in `__consumer_offsets`, by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.topic.num.partitions int 50 1.. high ro
    Partitions of `__consumer_offsets` when it is created; not to be changed afterwards.
offsets.topic.replication.factor short 3 1.. high ro
    Replicas of `__consumer_offsets` when it is created.
offsets.topic.segment.bytes int 104857600 1.. high ro
    Segment size of `__consumer_offsets`; small segments are compacted and loaded sooner.
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000 1.. low ro
    Without effect here: a transaction past its timeout is aborted at once, not with the next round.
transaction.max.timeout.ms int 900000 1.. high ro
    Longest transaction timeout a producer may ask for.
transaction.partition.verification.enable boolean true * low cluster
    Checks with the coordinator that a partition belongs to a transaction before its first record is taken.
transaction.remove.expired.transaction.cleanup.interval.ms int 3600000 1.. low ro
    How often expired transactional ids are looked for.
transaction.state.log.load.buffer.size int 5242880 1.. high ro
    Bytes read at a time while a transaction coordinator loads its partition.
transaction.state.log.min.isr int 2 1.. high ro
    min.insync.replicas of `__transaction_state` when it is created.
transaction.state.log.num.partitions int 50 1.. high ro
    Partitions of `__transaction_state` when it is created; not to be changed afterwards.
transaction.state.log.replication.factor short 3 1.. high ro
    Replicas of `__transaction_state` when it is created.
transaction.state.log.segment.bytes int 104857600 1.. high ro
    Segment size of `__transaction_state`.
transaction.two.phase.commit.enable boolean false * low ro
    Lets producers prepare transactions for an outside coordinator, without a timeout.
transactional.id.expiration.ms int 604800000 1.. high ro
    How long a transactional id without a transaction is remembered.
"""
