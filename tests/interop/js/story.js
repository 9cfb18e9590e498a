// kafkajs as producer and admin: `node story.js BOOTSTRAP TOPIC` prints one JSON line per step.
// What it wrote is read back by others.
const { CompressionTypes, CompressionCodecs, ConfigResourceTypes } = require('kafkajs')
const { tell, refusal, until, run } = require('./telling')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

async function story(kafka, topic) {
  const admin = kafka.admin()
  await admin.connect()
  const partitions = async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
  const config = async (name) =>
    (await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: [name] }],
    })).resources[0].configEntries[0].configValue

  const wanted = { topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '-1' }] }
  tell('create', await admin.createTopics({ topics: [wanted], waitForLeaders: true }))
  tell('create again', await admin.createTopics({ topics: [wanted] }))
  await until(partitions, 2)
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  await until(partitions, 3)
  tell('fewer partitions', await refusal(admin.createPartitions({ topicPartitions: [{ topic, count: 1 }] })))
  await until(() => config('retention.ms'), '-1')
  const change = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.ms', value: '99000000000000' }] }
  const altered = await admin.alterConfigs({ validateOnly: false, resources: [change] })
  tell('alter', altered.resources.map((resource) => resource.errorCode))
  await until(() => config('retention.ms'), '99000000000000')

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP, CompressionTypes.Snappy]) {
    const messages = [...Array(100).keys()].map((number) => ({
      partition: number % 3,
      key: `key-${number}`,
      value: number % 10 === 0 ? null : `value ${number} `.repeat(20),
      headers: { trace: [`${number}`, 'again'], codec: `${compression}` },
      timestamp: `${1700000000000 + number}`,
    }))
    const sent = await producer.send({ topic, compression, acks: -1, messages })
    tell('send', sent.map(({ partition, errorCode, baseOffset }) => [partition, errorCode, baseOffset]).sort())
  }
  await producer.disconnect()
  const plain = kafka.producer()
  await plain.connect()
  for (const acks of [1, 0]) tell(`acks ${acks}`, (await plain.send({ topic, acks, messages: [{ partition: 0, value: 'x' }] })).length)
  const big = 'x'.repeat(2 * 1024 * 1024)
  tell('too big', await refusal(plain.send({ topic, messages: [{ partition: 0, value: big }] })))
  await plain.disconnect()

  await until(async () => (await admin.fetchTopicOffsets(topic)).find(({ partition }) => partition === 0).high, '104')
  tell('offsets', (await admin.fetchTopicOffsets(topic)).sort((a, b) => a.partition - b.partition))
  tell('by time', (await admin.fetchTopicOffsetsByTimestamp(topic, 1700000000050)).sort((a, b) => a.partition - b.partition))
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 1, offset: '10' }] })
  tell('emptied', (await admin.fetchTopicOffsets(topic)).find(({ partition }) => partition === 1))
  const cluster = await admin.describeCluster()
  const ids = cluster.brokers.map(({ nodeId }) => nodeId)
  tell('cluster', [ids.length > 0, ids.includes(cluster.controller), cluster.clusterId.length])
  await admin.deleteTopics({ topics: [`${topic}-nowhere`] }).catch((error) => tell('delete unknown', error.type))
  await admin.disconnect()
}

run(story)
