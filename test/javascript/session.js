// A user's session by kafkajs. Arguments: bootstrap server, replicas of each topic. Says
// of each scenario, on a line of its own, "ok NAME" or "FAILED NAME: why".
'use strict'

const assert = require('node:assert')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, PartitionAssigners, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const kafka = new Kafka({ clientId: 'session', brokers: [process.argv[2]], logLevel: logLevel.NOTHING, retry: { retries: 8 } })
const replicas = Number(process.argv[3])
const admin = kafka.admin()

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function until(seconds, what, condition) {
  for (const end = Date.now() + seconds * 1000; !(await condition()); await sleep(20)) {
    assert(Date.now() < end, `within ${seconds} s: ${what}`)
  }
}

const create = (topic, numPartitions, configEntries = []) =>
  admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: replicas, configEntries }], waitForLeaders: true })

async function send(topic, messages, options = {}) {
  const { idempotent, ...rest } = options
  const producer = kafka.producer({ idempotent: idempotent ?? false, allowAutoTopicCreation: false })
  await producer.connect()
  const told = await producer.send({ topic, messages, ...rest })
  await producer.disconnect()
  return told
}

// member is a consumer that notes what it reads and which partitions it has.
async function member(groupId, topic, options = {}) {
  const { fromBeginning = true, ...rest } = options
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 300, rebalanceTimeout: 10000, ...rest })
  const m = { consumer, got: [], owned: [] }
  consumer.on(consumer.events.GROUP_JOIN, (e) => {
    m.owned = Object.values(e.payload.memberAssignment).flat()
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning })
  await consumer.run({ eachMessage: async ({ topic, partition, message }) => m.got.push({ topic, partition, ...message }) })
  return m
}

const distinct = (...members) => new Set(members.flatMap((m) => m.got.map((r) => `${r.partition}/${r.offset}`))).size

const scenarios = {
  async compression() {
    for (const [name, compression] of [['none', CompressionTypes.None], ['gzip', CompressionTypes.GZIP], ['snappy', CompressionTypes.Snappy]]) {
      const topic = 'js-codec-' + name
      await create(topic, 1)
      const text = ' the same words again and again'.repeat(20)
      const told = await send(topic, Array.from({ length: 100 }, (_, i) => ({ key: 'k' + i, value: i + text })), { compression })
      assert.equal(told[0].baseOffset, '0')
      const m = await member(topic, topic)
      await until(20, 'all come', () => m.got.length === 100)
      m.got.forEach((r, i) => assert.equal(r.value.toString(), i + text))
      await m.consumer.disconnect()
    }
  },

  async contents() {
    await create('js-contents', 1)
    await send('js-contents', [
      { key: 'key', value: 'value', timestamp: '1000000', headers: { h: 'x', many: ['a', 'b'] } },
      { key: 'key', value: null },
      { key: null, value: '' },
    ], { acks: -1, idempotent: true })
    const large = Buffer.alloc(900 << 10, 7)
    await send('js-contents', [{ value: large }])
    await assert.rejects(send('js-contents', [{ value: Buffer.alloc(2 << 20) }]), { type: 'MESSAGE_TOO_LARGE' })
    const m = await member('js-contents', 'js-contents')
    await until(20, 'all come', () => m.got.length === 4)
    assert.equal(m.got[0].timestamp, '1000000')
    assert.equal(m.got[0].headers.h.toString(), 'x')
    assert.deepEqual(m.got[0].headers.many.map(String), ['a', 'b'])
    assert.equal(m.got[1].value, null)
    assert.equal(m.got[2].key, null)
    assert(m.got[3].value.equals(large))
    await m.consumer.disconnect()
  },

  async group() {
    const topic = 'js-group'
    await create(topic, 4)
    const fill = () => send(topic, Array.from({ length: 40 }, (_, i) => ({ partition: i % 4, value: 'v' })))
    await fill()
    const a = await member(topic, topic, { partitionAssigners: [PartitionAssigners.roundRobin] })
    await until(30, 'one has all', () => a.owned.length === 4 && distinct(a) === 40)
    const b = await member(topic, topic)
    await until(30, 'two share', () => a.owned.length === 2 && b.owned.length === 2)
    await fill()
    await until(30, 'two read on', () => distinct(a, b) === 80)
    await b.consumer.disconnect()
    await until(30, 'one has all again', () => a.owned.length === 4)
    await fill()
    await until(30, 'one reads on', () => distinct(a, b) === 120)
    await a.consumer.disconnect()
    // A later member goes on where they stopped.
    const c = await member(topic, topic)
    await fill()
    await until(30, 'a later one reads', () => c.got.length >= 40)
    assert.equal(c.got.length, 40)
    await c.consumer.disconnect()
  },

  async seek() {
    const topic = 'js-seek'
    await create(topic, 1)
    await send(topic, Array.from({ length: 20 }, (_, i) => ({ value: 'v' + i, timestamp: String(1000000 + i * 1000) })))
    const m = await member(topic, topic)
    await until(20, 'all come', () => m.got.length === 20)
    m.consumer.seek({ topic, partition: 0, offset: '15' })
    await until(20, 'five come again', () => m.got.length === 25)
    m.consumer.pause([{ topic }])
    await send(topic, [{ value: 'later' }])
    await sleep(300)
    assert.equal(m.got.length, 25)
    m.consumer.resume([{ topic }])
    await until(20, 'the later one comes', () => m.got.length === 26)
    await m.consumer.commitOffsets([{ topic, partition: 0, offset: '3', metadata: 'where I was' }])
    await m.consumer.disconnect()
    assert.equal((await admin.fetchTopicOffsetsByTimestamp(topic, 1005500))[0].offset, '6')
    const of = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
    assert.equal(of[0].partitions[0].offset, '3')
    assert.equal(of[0].partitions[0].metadata, 'where I was')
    await admin.setOffsets({ groupId: topic, topic, partitions: [{ partition: 0, offset: '18' }] })
    await admin.resetOffsets({ groupId: topic, topic, earliest: true })
    await admin.deleteGroups([topic])
  },

  async admin() {
    const topic = 'js-admin'
    await create(topic, 2, [{ name: 'retention.ms', value: '3600000' }])
    assert.equal(await create(topic, 2), false)
    assert((await admin.listTopics()).includes(topic))
    const meta = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.equal(meta.topics[0].partitions[0].isr.length, replicas)
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    const type = ConfigResourceTypes.TOPIC
    await admin.alterConfigs({ resources: [{ type, name: topic, configEntries: [{ name: 'retention.ms', value: '1000000' }] }] })
    const told = await admin.describeConfigs({ includeSynonyms: true, resources: [{ type, name: topic }] })
    assert.equal(told.resources[0].configEntries.find((c) => c.configName === 'retention.ms').configValue, '1000000')
    await send(topic, Array.from({ length: 10 }, () => ({ partition: 0, value: 'v' })))
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '4' }] })
    const of = (await admin.fetchTopicOffsets(topic)).find((p) => p.partition === 0)
    assert.deepEqual([of.low, of.high], ['4', '10'])
    const cluster = await admin.describeCluster()
    assert.equal(cluster.brokers.length, replicas)
    const m = await member('js-admin-group', topic)
    await until(20, 'it reads', () => m.got.length === 6)
    const groups = await admin.describeGroups(['js-admin-group'])
    assert.equal(groups.groups[0].state, 'Stable')
    assert((await admin.listGroups()).groups.some((g) => g.groupId === 'js-admin-group'))
    await assert.rejects(admin.deleteGroups(['js-admin-group']))
    await m.consumer.disconnect()
    await admin.deleteGroups(['js-admin-group'])
    assert.deepEqual((await admin.listPartitionReassignments({})).topics, [])
    await admin.deleteTopics({ topics: [topic] })
    await until(10, 'it is gone', async () => !(await admin.listTopics()).includes(topic))
  },

  async missing() {
    await assert.rejects(admin.describeAcls({ resourceType: 1, resourcePatternType: 1, operation: 1, permissionType: 1 }))
    const producer = kafka.producer({ transactionalId: 't', maxInFlightRequests: 1, idempotent: true, retry: { retries: 1 } })
    await assert.rejects(producer.connect().then(() => producer.transaction()))
    await producer.disconnect()
  },
}

async function main() {
  await admin.connect()
  let failed = 0
  await Promise.all(Object.entries(scenarios).map(async ([name, run]) => {
    try {
      await run()
      console.log('ok ' + name)
    } catch (e) {
      failed++
      console.log(`FAILED ${name}: ${e.message.split('\n').join(' ')} ${(e.stack.match(/session\.js:\d+/g) ?? []).join(' ')}`)
    }
  }))
  await admin.disconnect()
  process.exit(failed === 0 ? 0 : 1)
}

main()
