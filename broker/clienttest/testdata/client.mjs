// One visit of an MQTT.js client to a broker. script_test.go says what is asked for
// and what is told.
import { createInterface } from 'node:readline'
import mqtt from 'mqtt'

const tell = (line) => process.stdout.write(JSON.stringify(line) + '\n')
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function visit(v, over) {
  const client = mqtt.connect(v.url, {
    clientId: v.id,
    protocolVersion: v.version,
    clean: false,
    reconnectPeriod: 100,
    ...(v.version === 5 && { properties: { sessionExpiryInterval: 3600 } }),
  })
  client.on('error', (error) => process.stderr.write(`${error}\n`))
  client.on('message', (topic, payload, packet) => {
    tell({ topic, qos: packet.qos, payload: payload.toString('base64') })
  })
  if (v.filter) {
    const [granted] = await client.subscribeAsync(v.filter, { qos: v.qos })
    tell({ event: 'subscribed', qos: granted.qos })
  }
  const acknowledged = []
  for (const payload of v.payloads ?? []) {
    acknowledged.push(client.publishAsync(v.topic, Buffer.from(payload, 'base64'), { qos: v.qos }))
    await pause(v.pause)
  }
  await Promise.all(acknowledged)
  tell({ event: 'published' })

  await over
  // Once this is through, the broker knows what was received before.
  await client.publishAsync(`left/${v.id}`, '', { qos: 2 })
  await client.endAsync()
}

const input = createInterface({ input: process.stdin })
const over = new Promise((resolve) => input.once('close', resolve))
input.once('line', (line) => visit(JSON.parse(line), over))
