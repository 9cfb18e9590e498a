// kafkajs at secured brokers: `node secured.js FILE` with cells as secured_cells.py makes them, all at a time.
const { readFileSync } = require('fs')
const { Kafka, logLevel } = require('kafkajs')
const { tell } = require('./telling')

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

function client(cell) {
  const { topic, bootstrap, authority, certificate, key, mechanism, user, password, token } = cell
  const ssl = authority && {
    ca: [readFileSync(authority)], servername: 'localhost',
    ...(certificate && { cert: readFileSync(certificate), key: readFileSync(key) }),
  }
  const sasl = mechanism && (mechanism === 'OAUTHBEARER'
    ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
    : { mechanism: mechanism.toLowerCase(), username: user, password })
  return new Kafka({
    clientId: topic, brokers: [bootstrap], logLevel: logLevel.NOTHING,
    connectionTimeout: 60000, requestTimeout: 60000, retry: { initialRetryTime: 30, maxRetryTime: 1000, retries: 6 },
    reauthenticationThreshold: 1000, ...(ssl && { ssl }), ...(sasl && { sasl }),
  })
}

// Sends record after record and reads each of them back in a group, then commits.
async function echo(cell) {
  const { topic, count, seconds } = cell
  const kafka = client(cell)
  const [producer, admin] = [kafka.producer(), kafka.admin()]
  await producer.connect()
  await admin.connect()
  const consumer = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let read = 0
  let trouble = null
  consumer.on(consumer.events.CRASH, ({ payload }) => { trouble = payload.error })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ message: { offset, value } }) => {
      // a member whose connection ended may begin again
      if (`${value}` !== offset || offset > read) trouble = new Error(`${value} at ${offset} instead of ${read}`)
      if (Number(offset) === read) read += 1
    },
  })
  let until = 0
  let number = 0
  for (; number < count || Date.now() < until; number += 1) {
    await producer.send({ topic, messages: [{ value: `${number}` }] })
    while (read <= number) {
      if (trouble) throw trouble
      await pause(5)
    }
    if (number === count - 1) until = Date.now() + seconds * 1000
    else if (number >= count) await pause(20)
  }
  await consumer.commitOffsets([{ topic, partition: 0, offset: `${read}` }])
  const [{ partitions: [{ offset }] }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
  await Promise.all([consumer, producer, admin].map((one) => one.disconnect()))
  return { echoed: number, committed: Number(offset) }
}

async function main() {
  const cells = JSON.parse(readFileSync(process.argv[2]))
  await Promise.all(cells.map(async (cell) => {
    tell(cell.name, await echo(cell).catch((error) => ({ error: `${error.name}: ${error.message}` })))
  }))
  process.exit(0)
}

main()
