// kafkajs in consumer groups: `node groups.js BOOTSTRAP TOPIC` prints one JSON line per step.
const { PartitionAssigners: { roundRobin }, AssignerProtocol: { MemberAssignment, MemberMetadata } } = require('kafkajs')
const { tell, refusal, until, run } = require('./telling')

const PARTITIONS = 4

// A consumer that counts, remembers what it was given, and hands out what it saw.
async function member(kafka, topic, groupId, options = {}, running = {}) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, maxWaitTimeInMs: 100, ...options })
  const it = { consumer, seen: [], assigned: [], joins: 0 }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    it.assigned = (payload.memberAssignment[topic] ?? []).sort()
    it.joins += 1
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ partition, message }) => it.seen.push([partition, message.offset, message.value.toString()]),
    ...running,
  })
  return it
}

const sorted = (rows) => [...rows].sort((a, b) => a[0] - b[0] || Number(a[1]) - Number(b[1]))
const distinct = (rows) => new Set(rows.map(([partition, offset]) => `${partition}:${offset}`)).size

async function story(kafka, topic) {
  const group = `${topic}-group`
  const admin = kafka.admin()
  const producer = kafka.producer()
  await admin.connect()
  await producer.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }] })
  await until(async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length, PARTITIONS)
  const send = (name, count) =>
    producer.send({ topic, messages: [...Array(count).keys()].map((n) => ({ partition: n % PARTITIONS, value: `${name} ${n}` })) })
  const committed = async (name = group) =>
    (await admin.fetchOffsets({ groupId: name, topics: [topic] }))[0].partitions
      .sort((a, b) => a.partition - b.partition).map(({ offset, metadata }) => [offset, metadata])
  const described = async (name = group) => {
    const [found] = (await admin.describeGroups([name])).groups
    const members = found.members.map((one) => [
      one.clientId, one.clientHost, one.memberId.startsWith('story-'),
      MemberMetadata.decode(one.memberMetadata)?.topics ?? null,
      (MemberAssignment.decode(one.memberAssignment)?.assignment[topic] ?? []).length,
    ])
    return [found.errorCode, found.state, found.protocolType, found.protocol, members.sort()]
  }

  tell('unknown group', await described())
  await send('alone', 100)
  const first = await member(kafka, topic, group)
  await until(() => first.seen.length, 100)
  tell('alone', [first.assigned, sorted(first.seen)])
  tell('described', await described())

  const second = await member(kafka, topic, group)
  await until(() => [first.assigned.length, second.assigned.length], [2, 2])
  await until(async () => (await described())[1], 'Stable')
  tell('shared', [...first.assigned, ...second.assigned].sort())
  tell('described with two', await described())
  await send('together', 100)
  await until(() => distinct([...first.seen, ...second.seen]), 200)
  tell('delete while in use', await refusal(admin.deleteGroups([group])))

  await second.consumer.disconnect()
  await until(() => first.assigned.length, PARTITIONS)
  await send('alone again', 100)
  await until(() => distinct([...first.seen, ...second.seen]), 300)
  await first.consumer.disconnect()
  await until(async () => (await described())[1], 'Empty')
  tell('empty', await described())
  tell('committed', await committed())
  tell('listed', (await admin.listGroups()).groups.filter(({ groupId }) => groupId === group))

  await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: '70' }, { partition: 3, offset: '5' }] })
  tell('set', await committed())
  await until(async () => (await described())[1], 'Empty')
  await admin.resetOffsets({ groupId: group, topic, earliest: true })
  tell('reset', await committed())

  // offsets by hand, with metadata, and a restart that goes on from them
  const manual = `${topic}-manual`
  const careful = await member(kafka, topic, manual, {}, { autoCommit: false })
  await until(() => careful.seen.length, 300)
  tell('nothing is committed by itself', await committed(manual))
  await careful.consumer.commitOffsets([{ topic, partition: 1, offset: '74', metadata: 'by hand ä' }])
  await careful.consumer.commitOffsets([0, 2, 3].map((partition) => ({ topic, partition, offset: '75' })))
  tell('by hand', await committed(manual))
  await careful.consumer.disconnect()
  const goesOn = await member(kafka, topic, manual)
  await until(() => goesOn.seen.length, 1)
  tell('goes on', sorted(goesOn.seen))
  goesOn.consumer.seek({ topic, partition: 2, offset: '70' })
  await until(() => goesOn.seen.length, 6)
  tell('sought', sorted(goesOn.seen))
  await goesOn.consumer.disconnect()

  // batches, with the round-robin assigner that kafkajs has
  const batches = []
  const batched = await member(kafka, topic, `${topic}-batches`, { partitionAssigners: [roundRobin], sessionTimeout: 6000 }, {
    eachMessage: undefined,
    eachBatch: async ({ batch }) => batches.push([batch.partition, batch.messages.length, batch.lastOffset()]),
  })
  await until(() => batches.reduce((sum, [, count]) => sum + count, 0), 300)
  await batched.consumer.disconnect()
  tell('batches', [...new Set(batches.map(([partition]) => partition))].sort())

  tell('delete', (await admin.deleteGroups([group, manual])).sort((a, b) => a.groupId.localeCompare(b.groupId)))
  tell('delete again', await refusal(admin.deleteGroups([group])))
  tell('gone', await described())
  tell('no offsets', await committed())
  await producer.disconnect()
  await admin.disconnect()
}

run(story)
