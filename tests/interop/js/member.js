// One member of somebody else's group: `node member.js BOOTSTRAP TOPIC GROUP ASSIGNOR`. It prints its partitions
// whenever they change and the value of every record, and leaves when it is sent a line.
const { AssignerProtocol: { MemberAssignment, MemberMetadata } } = require('kafkajs')
const { tell, run } = require('./telling')

// Kafka's own assignors under their own names, which kafkajs does not have: any member may become the leader.
const spread = {
  range: (partitions, members) => {
    const share = Math.floor(partitions.length / members.length)
    const extra = partitions.length % members.length
    return (partition) => {
      const wide = extra * (share + 1)
      return partition < wide ? Math.floor(partition / (share + 1)) : extra + Math.floor((partition - wide) / share)
    }
  },
  roundrobin: (partitions, members) => (partition) => partition % members.length,
}

const assigner = (name) => ({ cluster }) => ({
  name,
  version: 0,
  async assign({ members, topics }) {
    const ids = members.map(({ memberId }) => memberId).sort()
    const given = Object.fromEntries(ids.map((id) => [id, {}]))
    for (const topic of topics) {
      const partitions = cluster.findTopicPartitionMetadata(topic).map(({ partitionId }) => partitionId)
      const owner = spread[name](partitions, ids)
      for (const partition of partitions) (given[ids[owner(partition)]][topic] ??= []).push(partition)
    }
    return ids.map((id) => ({
      memberId: id,
      memberAssignment: MemberAssignment.encode({ version: 0, assignment: given[id], userData: Buffer.alloc(0) }),
    }))
  },
  protocol({ topics }) {
    return { name, metadata: MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) }) }
  },
})

async function story(kafka, topic) {
  const [groupId, name] = process.argv.slice(4)
  const consumer = kafka.consumer({ groupId, partitionAssigners: [assigner(name)], heartbeatInterval: 300, maxWaitTimeInMs: 100 })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => tell('assigned', (payload.memberAssignment[topic] ?? []).sort((a, b) => a - b)))
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => tell('record', message.value.toString()) })
  process.stdin.once('data', async () => {
    await consumer.disconnect()
    process.exit(0)
  })
}

run(story)
