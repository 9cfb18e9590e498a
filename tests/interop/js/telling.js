// What the stories share: a client that keeps quiet, one JSON line per step, and waiting for a condition.
const { Kafka, logLevel } = require('kafkajs')

const tell = (step, told) => console.log(JSON.stringify({ step, told }))

const refusal = async (attempt) =>
  attempt.then(() => 'accepted', (error) => error.errors?.[0]?.type ?? error.type ?? error.groups?.[0]?.error?.type ?? error.message)

async function until(ask, expected) {
  const wanted = JSON.stringify(expected)
  const deadline = Date.now() + 30000
  for (;;) {
    const answer = JSON.stringify(await Promise.resolve().then(ask).catch((error) => error.type ?? error.message))
    if (answer === wanted) return
    if (Date.now() > deadline) throw new Error(`still ${answer}, expected ${wanted}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

// `story(kafka, topic)` with the arguments of the command line: BOOTSTRAP TOPIC
function run(story) {
  const [bootstrap, topic] = process.argv.slice(2)
  const retry = { initialRetryTime: 30, maxRetryTime: 500, retries: 8 }
  const kafka = new Kafka({ clientId: 'story', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, retry })
  story(kafka, topic).catch((error) => {
    console.error(error)
    process.exit(1)
  })
}

module.exports = { tell, refusal, until, run }
