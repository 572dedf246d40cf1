// An app with an inbox in Node, told line by line what to do: examples/js with MQTT.js. It answers each
// line with one. node_test.go is who tells it.
import { createInterface } from 'node:readline'
import mqtt from 'mqtt'
import { contentOf, Inbox, metadataOf, Outbox, receive, Seen } from '../../../examples/js/mqtt-inbox.js'
import { fileStore } from '../../../examples/js/node-store.js'

let client, inbox, outbox, seen
let tell
const told = new Promise((resolve) => (tell = resolve)) // the first notice
const live = []
const lost = []

const orders = {
  async open({ dir }) {
    seen = await Seen.open(await fileStore(dir), { max: 500 })
  },
  // Connects, with what the app has in a directory.
  async connect({ url, id, user, dir, mode }) {
    await orders.open({ dir })
    client = mqtt.connect(url, {
      clientId: id,
      username: user,
      protocolVersion: 5,
      clean: false,
      reconnectPeriod: 50,
      properties: {
        sessionExpiryInterval: 3600,
        userProperties: { 'inbox-mode': mode, 'inbox-metadata': 'on', 'inbox-watch': 'on' },
      },
    })
    client.on('error', (error) => process.stderr.write(`${error}\n`))
    receive(client, async (packet) => {
      const { id, sender } = metadataOf(packet)
      live.push({ id, sender, topic: packet.topic, payload: packet.payload.toString(), first: await seen.first(id) })
    })
    inbox = new Inbox(client, { acknowledged: tell })
    outbox = await Outbox.open(client, await fileStore(dir), { lost: (item, error) => lost.push(`${item?.topic}: ${error}`) })
    return outbox.length
  },
  subscribe: async ({ filter }) => (await client.subscribeAsync(filter, { qos: 1 })).length,
  summary: () => inbox.summary(),
  told: () => told,
  // Walks through so many pages, and leaves the last without going on.
  async pages({ request, stop }) {
    const all = []
    for await (const page of inbox.pages(request)) {
      all.push(page.messages.map((m) => new TextDecoder().decode(contentOf(m))))
      if (all.length === stop) break
    }
    return all
  },
  async history({ request, stop }) {
    const all = []
    for await (const m of inbox.history(request)) {
      all.push(m)
      if (all.length === stop) break
    }
    return all
  },
  ack: ({ request }) => inbox.ack(request),
  mode: () => inbox.mode(),
  setMode: ({ mode }) => inbox.setMode(mode),
  delete: ({ id }) => inbox.delete(id),
  // Many questions at the same time.
  many: ({ n }) => Promise.all(Array.from({ length: n }, () => inbox.summary())).then((all) => all.map((s) => s.messages)),
  add: ({ topic, payload }) => outbox.add(topic, payload),
  publish: ({ topic, payload, options }) => outbox.publish(topic, payload, options),
  waiting: () => outbox.length,
  first: ({ ids }) => Promise.all(ids.map((id) => seen.first(id))),
  addSeen: ({ ids }) => seen.add(...ids),
  live: () => live,
  lost: () => lost,
  async end() {
    outbox.close()
    inbox.close()
    await client.endAsync()
  },
}

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line)
  let answer
  try {
    answer = { result: (await orders[order.do](order)) ?? null }
  } catch (error) {
    answer = { error: String(error), code: error.code }
  }
  process.stdout.write(JSON.stringify(answer) + '\n')
}
