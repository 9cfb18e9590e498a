// kafkajs in transactions: `node transactions.js BOOTSTRAP TOPIC` prints one JSON line per step.
const { tell, refusal, until, run } = require('./telling')

async function story(kafka, topic) {
  const copies = `${topic}-copies`
  const group = `${topic}-copier`
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }, { topic: copies, numPartitions: 1 }] })
  await until(async () => (await admin.fetchTopicMetadata({ topics: [copies] })).topics[0].partitions.length, 1)
  const transactional = () =>
    kafka.producer({ transactionalId: `${topic}-id`, idempotent: true, maxInFlightRequests: 1, transactionTimeout: 30000 })
  const values = (name) => [...Array(10).keys()].map((n) => ({ partition: n % 2, value: `${name} ${n}` }))

  const producer = transactional()
  await producer.connect()
  for (const [name, end] of [['first', 'commit'], ['lost', 'abort'], ['second', 'commit'], ['empty', 'commit']]) {
    const transaction = await producer.transaction()
    if (name !== 'empty') {
      const sent = await transaction.send({ topic, messages: values(name) })
      tell(`${name}: sent`, sent.map(({ partition, errorCode, baseOffset }) => [partition, errorCode, baseOffset]).sort())
    }
    await transaction[end]()
    tell(`${name}: ${end}`, transaction.isActive())
  }

  // whoever reads committed sees two of three; the offsets tell where the markers are
  const read = async (name, readUncommitted, count) => {
    const consumer = kafka.consumer({ groupId: `${topic}-${name}`, readUncommitted, maxWaitTimeInMs: 100 })
    const rows = []
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({ eachMessage: async ({ partition, message }) => rows.push([partition, message.offset, message.value.toString()]) })
    await until(() => rows.length, count)
    await consumer.disconnect()
    return rows.sort((a, b) => a[0] - b[0] || Number(a[1]) - Number(b[1]))
  }
  tell('committed', await read('committed', false, 20))
  tell('uncommitted', await read('uncommitted', true, 30))

  // consume, transform, produce: offsets and copies in one transaction
  const copier = kafka.consumer({ groupId: group, readUncommitted: false, maxWaitTimeInMs: 100 })
  let copied = 0
  await copier.connect()
  await copier.subscribe({ topic, fromBeginning: true })
  await copier.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      const transaction = await producer.transaction()
      await transaction.send({ topic: copies, messages: batch.messages.map(({ value }) => ({ value: `copy of ${value}` })) })
      const offset = String(Number(batch.lastOffset()) + 1)
      await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition: batch.partition, offset }] }] })
      await transaction.commit()
      copied += batch.messages.length
    },
  })
  await until(() => copied, 20)
  await copier.disconnect()
  tell('offsets of the copier', (await admin.fetchOffsets({ groupId: group, topics: [topic] }))[0].partitions
    .sort((a, b) => a.partition - b.partition).map(({ offset }) => offset))

  // a second producer of the same id fences the first
  const left = await producer.transaction()
  await left.send({ topic: copies, messages: [{ value: 'of the first' }] })
  const other = transactional()
  await other.connect()
  const transaction = await other.transaction()
  await transaction.send({ topic: copies, messages: [{ value: 'of the second' }] })
  await transaction.commit()
  tell('fenced', await refusal(left.send({ topic: copies, messages: [{ value: 'too late' }] })))
  tell('cannot commit', await refusal(left.commit()))
  await other.disconnect()
  await producer.disconnect().catch(() => {})
  const reader = kafka.consumer({ groupId: `${topic}-reader`, readUncommitted: false, maxWaitTimeInMs: 100 })
  const seen = []
  await reader.connect()
  await reader.subscribe({ topic: copies, fromBeginning: true })
  await reader.run({ eachMessage: async ({ message }) => seen.push(message.value.toString()) })
  await until(() => seen.length, 21)
  await reader.disconnect()
  tell('copies', seen.sort())
  await admin.disconnect()
}

run(story)
