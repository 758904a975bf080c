// Drives a broker with kafkajs: one command as JSON on stdin, one result as JSON on stdout, or a message on
// stderr and a non-zero exit code. The commands are those of ../go/internal/command.

'use strict'

const {
  Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, AclResourceTypes, AclOperationTypes,
  AclPermissionTypes, ResourcePatternTypes, logLevel,
} = require('kafkajs')

const TIMEOUT_MS = 40000
const CHUNK_MESSAGES = 50

// kafkajs brings gzip; users plug in the others, as here.
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => {
  const lz4 = require('lz4js')
  return {
    compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
  }
}
CompressionCodecs[CompressionTypes.ZSTD] = () => {
  // Its simple form needs frames that tell their size, which librdkafka and Java do not write.
  const streaming = new Promise(resolve => require('zstd-codec').ZstdCodec.run(zstd => resolve(new zstd.Streaming())))
  return {
    compress: async encoder => Buffer.from((await streaming).compress(encoder.buffer)),
    decompress: async buffer => Buffer.from((await streaming).decompress(buffer)),
  }
}

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const decoded = text => (text === null ? null : Buffer.from(text, 'base64'))
const encoded = bytes => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString('base64'))

// kafkajs has an object of headers; a name that comes twice has a list of values.
const headersOf = message => {
  const headers = {}
  for (const { name, value } of message.headers) {
    headers[name] = name in headers ? [].concat(headers[name], decoded(value)) : decoded(value)
  }
  return headers
}

const listOf = headers =>
  Object.entries(headers || {}).flatMap(([name, values]) =>
    (Array.isArray(values) ? values : [values]).map(value => ({ name, value: encoded(value) }))
  )

// TLS and the login of a command, as go/internal/command/security.go has them.
const securityOf = ({ security }) => {
  if (!security) return {}
  const { readFileSync } = require('fs')
  const own = security.certificate && readFileSync(security.certificate)
  const { mechanism, username, password, token } = security
  const login = token ? { oauthBearerProvider: async () => ({ value: token }) } : { username, password }
  return {
    ...(security.ca ? { ssl: { ca: [readFileSync(security.ca)], ...(own ? { cert: own, key: own } : {}) } } : {}),
    ...(mechanism ? { sasl: { mechanism: mechanism.toLowerCase(), ...login } } : {}),
  }
}

const clientOf = command =>
  new Kafka({ brokers: [command.bootstrap], clientId: 'compat', logLevel: logLevel.NOTHING, ...securityOf(command) })

const produce = async command => {
  const producer = clientOf(command).producer({ idempotent: command.idempotent, maxInFlightRequests: 1 })
  await producer.connect()
  try {
    const offsets = []
    const size = command.pause_ms > 0 ? CHUNK_MESSAGES : command.messages.length
    for (let start = 0; start < command.messages.length; start += size) {
      const chunk = command.messages.slice(start, start + size)
      const [sent] = await producer.send({
        topic: command.topic,
        acks: -1,
        compression: CODECS[command.codec],
        messages: chunk.map(message => ({
          key: decoded(message.key),
          value: decoded(message.value),
          headers: headersOf(message),
          timestamp: String(message.timestamp_ms),
          partition: 0,
        })),
      })
      offsets.push(...chunk.map((_, index) => Number(sent.baseOffset) + index))
      if (command.pause_ms > 0) await new Promise(resolve => setTimeout(resolve, command.pause_ms))
    }
    return { offsets }
  } finally {
    await producer.disconnect()
  }
}

// Its public consumer needs a group. Its Fetch request and its decoders can be had below that, by module path.
const consume = async command => {
  const Cluster = require('kafkajs/src/cluster')
  const defaultSocketFactory = require('kafkajs/src/network/socketFactory')
  const { createLogger } = require('kafkajs/src/loggers')
  const logger = createLogger({ level: logLevel.NOTHING, logCreator: () => () => {} })
  const cluster = new Cluster({
    logger, brokers: [command.bootstrap], clientId: 'compat', socketFactory: defaultSocketFactory(),
    connectionTimeout: 1000, metadataMaxAge: 300000, isolationLevel: 1, ...securityOf(command),
  })
  await cluster.connect()
  try {
    await cluster.addTargetTopic(command.topic)
    const [nodeId] = Object.keys(cluster.findLeaderForPartitions(command.topic, [0]))
    const broker = await cluster.findBroker({ nodeId })
    const messages = []
    let offset = command.offset
    while (messages.length < command.count) {
      const { responses } = await broker.fetch({
        isolationLevel: 1,
        maxWaitTime: 500,
        topics: [
          { topic: command.topic, partitions: [{ partition: 0, fetchOffset: String(offset), maxBytes: 1048576 }] },
        ],
      })
      for (const record of responses[0].partitions[0].messages) {
        if (Number(record.offset) < offset || messages.length === command.count) continue
        offset = Number(record.offset) + 1
        messages.push({
          key: encoded(record.key),
          value: encoded(record.value),
          headers: listOf(record.headers),
          timestamp_ms: Number(record.timestamp),
          offset: Number(record.offset),
        })
      }
    }
    return { messages }
  } finally {
    await cluster.disconnect()
  }
}

const withAdmin = async (command, use) => {
  const admin = clientOf(command).admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

// Where no record is that late kafkajs answers with the end of the log.
const offsetForTime = command =>
  withAdmin(command, async admin => {
    const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(command.topic, command.timestamp_ms)
    const [{ high }] = await admin.fetchTopicOffsets(command.topic)
    return { offset: offset === high ? -1 : Number(offset) }
  })

// Kafka's code of what the call failed with; 0 is none, and -2 an error that is not the broker's.
const errorCode = async call => {
  try {
    await call()
    return 0
  } catch (error) {
    const cause = error.errors ? error.errors[0] : error
    return typeof cause.code === 'number' ? cause.code : -2
  }
}

const retention = async (admin, topic) => {
  const { resources } = await admin.describeConfigs({
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }],
    includeSynonyms: true,
  })
  const [entry] = resources[0].configEntries
  return `${entry.configValue} from ${entry.configSource}`
}

const partitionCount = async (admin, topic) =>
  (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length

const deleteRecords = async (admin, command, result) => {
  const messages = Array.from({ length: 10 }, (_, n) => ({
    key: null, value: Buffer.from([n]).toString('base64'), headers: [], timestamp_ms: Date.now(),
  }))
  await produce({ ...command, codec: 'none', idempotent: true, messages })
  await admin.deleteTopicRecords({ topic: command.topic, partitions: [{ partition: 0, offset: '4' }] })
  const [first] = (await admin.fetchTopicOffsets(command.topic)).filter(({ partition }) => partition === 0)
  result.start_offset = Number(first.low)
  result.end_offset = Number(first.high)
}

// Takes one topic through its life; each step's outcome is in the result.
const admin = command =>
  withAdmin(command, async admin => {
    const { topic } = command
    const result = {}
    const cluster = await admin.describeCluster()
    result.brokers = cluster.brokers.length
    result.cluster_id = cluster.clusterId

    const configEntries = [{ name: 'retention.ms', value: '5000000' }]
    const created = { topic, numPartitions: 3, replicationFactor: 1, configEntries }
    result.is_created = await admin.createTopics({ topics: [created] })
    // kafkajs takes a topic that exists for an answer, not for an error.
    result.is_created_again = await admin.createTopics({ topics: [created] })
    const bad = { topic: `${topic}-bad`, numPartitions: 1, configEntries: [{ name: 'no.such', value: '1' }] }
    result.bad_config_error = await errorCode(() => admin.createTopics({ topics: [bad] }))
    result.partitions = await partitionCount(admin, topic)
    result.retention = await retention(admin, topic)

    await admin.alterConfigs({
      validateOnly: false,
      resources: [
        { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.ms', value: '8000000' }] },
      ],
    })
    result.replaced_retention = await retention(admin, topic)

    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    result.grown_partitions = await partitionCount(admin, topic)
    await deleteRecords(admin, command, result)

    const { resources } = await admin.describeConfigs({
      resources: [{ type: ConfigResourceTypes.BROKER, name: String(cluster.brokers[0].nodeId) }],
      includeSynonyms: false,
    })
    result.broker_configs = resources[0].configEntries.length > 0

    await admin.deleteTopics({ topics: [topic] })
    result.is_listed_after_deletion = (await admin.listTopics()).includes(topic)
    return result
  })

const RETENTION_MS = '7000000'

// Makes the topic with two partitions, sets its retention, and lets the user of the topic's name read it.
const administer = command =>
  withAdmin(command, async admin => {
    const { topic } = command
    await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 1 }], waitForLeaders: true })
    const configEntries = [{ name: 'retention.ms', value: RETENTION_MS }]
    await admin.alterConfigs({
      validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }],
    })
    await admin.createAcls({
      acl: [
        {
          resourceType: AclResourceTypes.TOPIC, resourceName: topic, resourcePatternType: ResourcePatternTypes.LITERAL,
          principal: `User:${topic}`, host: '*', operation: AclOperationTypes.READ,
          permissionType: AclPermissionTypes.ALLOW,
        },
      ],
    })
    return {}
  })

// Reads as the one member of the group of the topic's name, and commits.
const readGroup = async command => {
  const { topic, count } = command
  const consumer = clientOf(command).consumer({ groupId: topic })
  await consumer.connect()
  try {
    await consumer.subscribe({ topic, fromBeginning: true })
    const values = []
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      const eachMessage = async ({ message }) => {
        values.push(encoded(message.value))
        if (values.length === count) resolve()
      }
      consumer.run({ autoCommit: false, eachMessage }).catch(reject)
    })
    await consumer.commitOffsets([{ topic, partition: 0, offset: String(count) }])
    return { values }
  } finally {
    await consumer.disconnect()
  }
}

const describeGroup = command =>
  withAdmin(command, async admin => {
    const { groups } = await admin.describeGroups([command.topic])
    if (groups[0].errorCode !== 0) throw new Error(`error ${groups[0].errorCode}`)
    return {}
  })

const VERBS = {
  produce, consume, offset_for_time: offsetForTime, admin, administer, read_group: readGroup,
  describe_group: describeGroup,
}

const main = async () => {
  const chunks = []
  for await (const chunk of process.stdin) chunks.push(chunk)
  const command = JSON.parse(Buffer.concat(chunks).toString())
  const timer = setTimeout(() => {
    console.error(`no end of '${command.verb}' within ${TIMEOUT_MS} ms`)
    process.exit(1)
  }, TIMEOUT_MS)
  const result = await VERBS[command.verb](command)
  clearTimeout(timer)
  // Node does not wait for a pipe when it exits.
  await new Promise(resolve => process.stdout.write(JSON.stringify(result), resolve))
}

main().then(
  () => process.exit(0),
  error => {
    console.error(error.stack || String(error))
    process.exit(1)
  }
)
