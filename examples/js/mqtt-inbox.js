// What an app needs beside MQTT.js to use all that the inboxes of mqtt-inbox have: what is
// unread, pages on demand, history, publishing that survives a reload, and telling messages
// that come again from new ones. For browsers and Node, without a build step.
//
// The MQTT.js client is handed in, connected with protocolVersion 5. README.md beside this
// file says how to begin; docs/protocol.md has every request and answer.

/**
 * @typedef {object} Message one message of an inbox or of history; empty fields are left out
 * @property {string} id the same in deliveries, pages and history
 * @property {string} time when the broker took it, RFC 3339
 * @property {string} [topic]
 * @property {string} [sender] the publisher's user name, or its client id if there is none
 * @property {string} [client] the publisher's client id
 * @property {number} [qos]
 * @property {boolean} [retain]
 * @property {string} [payload] if it is text; see contentOf
 * @property {string} [payload_base64] if it is not
 * @property {0 | 1} [payload_format] the Payload Format Indicator
 * @property {string} [content_type]
 * @property {string} [response_topic]
 * @property {string} [correlation_base64]
 * @property {[string, string][]} [properties]
 * @property {string} [expires]
 * @property {boolean} [deleted] its content was taken away
 * @property {boolean} [truncated] it is larger than this client takes, and its payload was left out
 * @property {number} [payload_bytes] the size of that
 *
 * @typedef {{from: string, to: string, count: number, reason: string}} Gap messages that were lost
 * @typedef {{messages: number, bytes: number, at_least?: boolean}} Count
 * @typedef {{messages: Message[], gaps?: Gap[], next?: string, more: boolean, remaining?: Count}} Page
 *
 * @typedef {{id: string, time: string}} Mark
 * @typedef {Count & {sender?: string, topic?: string, oldest: Mark, newest: Mark, truncated?: boolean}} Tally
 *   truncated: its name is larger than this client takes, and was left out
 * @typedef {Count & {position: string, senders: Tally[], topics: Tally[]}} Summary
 *
 * @typedef {object} PullRequest
 * @property {number} [limit] messages in a page
 * @property {number} [max_bytes]
 * @property {'asc' | 'desc'} [order]
 * @property {string} [sender]
 * @property {string} [topic] a filter
 * @property {string} [after] a cursor, an id or a time
 * @property {string} [before]
 * @property {boolean} [ack] false acknowledges nothing
 *
 * @typedef {{ids?: string[], through?: string, sender?: string, topic?: string, all?: boolean}} AckRequest
 *   through: a cursor, the position of a summary, or an id
 *
 * @typedef {{clients: string[], more?: boolean}} Notice whose inboxes have changed; with more, others too
 *
 * @typedef {object} Store where things are kept; localStorage is one. Promises may be returned.
 * @property {(key: string) => string | null | undefined | Promise<string | null | undefined>} getItem
 * @property {(key: string, value: string) => unknown} setItem when it is done, the value lasts
 * @property {(key: string) => unknown} removeItem
 */

/** An error that the broker answers. The code is for programs. */
export class InboxError extends Error {
  /** @param {string} code @param {string} message */
  constructor(code, message) {
    super(`${code}: ${message}`)
    this.name = 'InboxError'
    this.code = code
  }
}

const prefix = '$inbox/'
const answerEnd = '/answer'
const noticeTopic = prefix + 'acknowledged'

/** The broker takes no more requests of one connection at a time. */
const mostRequests = 4

/** Asks the inbox of one MQTT client. Everything may be called at any time. */
export class Inbox {
  #client
  #timeout
  #acknowledged
  /** @type {Map<string, {sent: boolean, send: () => void, answered: (payload: any) => void}>} */
  #pending = new Map()
  #running = 0
  /** @type {(() => void)[]} */
  #waiting = []
  #tag = randomName() // so that two of these can share a connection
  #last = 0

  /**
   * @param {any} client of MQTT.js, with protocolVersion 5
   * @param {{timeout?: number, acknowledged?: (notice: Notice) => void}} [options] timeout of one
   *   answer, milliseconds; acknowledged is told that messages were acknowledged over HTTP or by another
   *   device of the same user, if the client has connected with the user property inbox-watch: on
   */
  constructor(client, { timeout = 15_000, acknowledged } = {}) {
    needVersion5(client)
    this.#client = client
    this.#timeout = timeout
    this.#acknowledged = acknowledged
    client.on('message', this.#take)
    client.on('connect', this.#again)
  }

  /** Takes nothing from the client any more. */
  close() {
    this.#client.off('message', this.#take)
    this.#client.off('connect', this.#again)
  }

  /**
   * Returns what is unread, by sender and by topic, the newest first.
   * @returns {Promise<Summary>}
   */
  async summary() {
    const senders = []
    const topics = []
    for (let next; ; ) {
      const part = await this.#ask('summary', { limit: 1000, next })
      senders.push(...part.senders)
      topics.push(...part.topics)
      if (!part.next) {
        const { next: _, more: __, ...all } = part
        return { ...all, senders: senders.sort(newestFirst), topics: topics.sort(newestFirst) }
      }
      next = part.next
    }
  }

  /**
   * Returns one page of what is unread. To ask with the cursor of a page acknowledges that page.
   * @param {PullRequest} [request]
   * @returns {Promise<Page>}
   */
  pull(request = {}) {
    return this.#ask('pull', request)
  }

  /**
   * Walks through what is unread, page by page. When the loop goes on, the page before is
   * acknowledged; who leaves the loop is given the page at hand again.
   * @param {PullRequest} [request]
   * @returns {AsyncGenerator<Page>}
   */
  pages(request = {}) {
    return walk((r) => this.pull(r), request, 'asc')
  }

  /**
   * Acknowledges messages and returns how many of them were unread.
   * @param {AckRequest} request by ids, or everything that matches
   * @returns {Promise<number>}
   */
  async ack(request) {
    if (!request.ids) return (await this.#ask('ack', request)).acknowledged
    let acknowledged = 0
    for (let i = 0; i < request.ids.length; i += 1000) {
      acknowledged += (await this.#ask('ack', { ...request, ids: request.ids.slice(i, i + 1000) })).acknowledged
    }
    return acknowledged
  }

  /**
   * Walks through history, message by message, the newest first unless the request says
   * otherwise. The next page is asked for when the loop comes to it.
   * @param {PullRequest} [request]
   * @returns {AsyncGenerator<Message>}
   */
  async *history(request = {}) {
    for await (const page of walk((r) => this.historyPage(r), request, 'desc')) yield* page.messages
  }

  /**
   * Returns one page of history.
   * @param {PullRequest} [request]
   * @returns {Promise<Page>}
   */
  historyPage(request = {}) {
    return this.#ask('history', request)
  }

  /** @returns {Promise<'push' | 'pull'>} how the session is served from its next connection on */
  async mode() {
    return (await this.#ask('mode', {})).mode
  }

  /** @param {'push' | 'pull'} mode how the session is served from its next connection on */
  async setMode(mode) {
    await this.#ask('mode', { mode })
  }

  /** @param {string} id of a message of one's own, whose content is taken away */
  async delete(id) {
    await this.#ask('delete', { id })
  }

  /** @param {string} operation @param {object} request */
  async #ask(operation, request) {
    for (let pause = 500; ; pause = Math.min(2 * pause, 15_000)) {
      const answer = await this.#once(operation, JSON.stringify(request))
      if (!answer.error) return answer
      if (answer.error.code !== 'busy') throw new InboxError(answer.error.code, answer.error.message)
      await sleep(pause * (0.5 + Math.random() / 2))
    }
  }

  /** @param {string} operation @param {string} body @returns {Promise<any>} */
  async #once(operation, body) {
    if (this.#running < mostRequests) this.#running++
    else await new Promise((resolve) => this.#waiting.push(() => resolve(undefined)))
    const key = `${this.#tag}/${++this.#last}`
    let timer
    try {
      return await new Promise((resolve, reject) => {
        const send = () =>
          this.#client.publish(
            prefix + operation,
            body,
            { qos: 0, properties: { correlationData: key, contentType: 'application/json' } },
            (/** @type {any} */ error) => error && reject(error),
          )
        const answered = (/** @type {any} */ payload) => {
          try {
            resolve(JSON.parse(textOf(payload)))
          } catch (error) {
            reject(error)
          }
        }
        this.#pending.set(key, { send, answered, sent: this.#client.connected })
        timer = setTimeout(() => reject(new Error(`no answer to ${operation} in ${this.#timeout} ms`)), this.#timeout)
        send()
      })
    } finally {
      clearTimeout(timer)
      this.#pending.delete(key)
      const next = this.#waiting.shift()
      if (next) next()
      else this.#running--
    }
  }

  // What was sent over the connection before may be lost, or its answer. To ask twice does no
  // harm. What was not sent yet MQTT.js has in its queue.
  #again = () => {
    for (const request of this.#pending.values()) {
      if (request.sent) request.send()
      request.sent = true
    }
  }

  #take = (/** @type {string} */ topic, /** @type {any} */ payload, /** @type {any} */ packet) => {
    if (topic === noticeTopic) this.#acknowledged?.(JSON.parse(textOf(payload)))
    const key = packet.properties?.correlationData
    if (isAnswer(topic) && key) this.#pending.get(textOf(key))?.answered(payload)
  }
}

/**
 * Whether a topic is that of an answer or a notice, which 'message' brings too, and which is not for the app.
 * @param {string} topic
 */
export const isAnswer = (topic) => (topic.startsWith(prefix) && topic.endsWith(answerEnd)) || topic === noticeTopic

/**
 * @param {(request: any) => Promise<Page>} ask
 * @param {PullRequest} request
 * @param {'asc' | 'desc'} byDefault
 */
async function* walk(ask, request, byDefault) {
  const bound = (request.order ?? byDefault) === 'desc' ? 'before' : 'after'
  for (let next = request; ; ) {
    const page = await ask(next)
    if (page.messages.length > 0 || page.gaps?.length) yield page
    if (!page.next) return
    next = { ...request, [bound]: page.next }
  }
}

/** @param {Tally} a @param {Tally} b */
function newestFirst(a, b) {
  const [x, y] = [a.newest, b.newest].map((mark) => mark.time + mark.id)
  return x < y ? 1 : x > y ? -1 : 0
}

/**
 * Has messages acknowledged when a function is done with them, instead of at once: for what
 * takes a promise to be kept. It gets them one after the other, with their packets. Meanwhile
 * nothing else is read from the connection, not even answers, so it must not ask the inbox,
 * and be quick. If it fails, the message comes again with the next connection.
 * @param {any} client of MQTT.js
 * @param {(packet: any) => unknown} done
 * @param {(error: unknown) => void} [failed]
 */
export function receive(client, done, failed = console.error) {
  client.handleMessage = async (/** @type {any} */ packet, /** @type {(error?: unknown) => void} */ acknowledge) => {
    try {
      if (!isAnswer(packet.topic)) await done(packet)
    } catch (error) {
      failed(error)
      return acknowledge(error)
    }
    acknowledge()
  }
}

/**
 * Reads what the broker says of a message that it delivers, if the client has connected with the
 * user property inbox-metadata: on. A publisher may send the same properties; the broker's come last.
 * @param {any} packet
 * @returns {{id?: string, time?: string, sender?: string}}
 */
export function metadataOf(packet) {
  const last = (/** @type {string} */ key) => [packet.properties?.userProperties?.[key]].flat().at(-1)
  return { id: last('inbox-id'), time: last('inbox-time'), sender: last('inbox-sender') }
}

/**
 * The payload of a message of a page, as bytes.
 * @param {Message} message
 */
export function contentOf(message) {
  return message.payload_base64 ? fromBase64(message.payload_base64) : new TextEncoder().encode(message.payload ?? '')
}

/**
 * @typedef {object} PublishOptions
 * @property {1 | 2} [qos]
 * @property {boolean} [retain]
 * @property {any} [properties] as MQTT.js has them
 *
 * @typedef {object} Receipt
 * @property {string} name under which the message was sent
 * @property {string} [id] that the broker gave it, if it told; not of QoS 2
 */

/**
 * Publishes a message under a name, so that it is stored once however often it is sent, and
 * returns when the broker has acknowledged it. For what must survive a reload there is Outbox.
 * @param {any} client of MQTT.js, with protocolVersion 5
 * @param {string} topic
 * @param {string | Uint8Array} payload
 * @param {PublishOptions} [options]
 * @returns {Promise<Receipt>}
 */
export async function publish(client, topic, payload, options = {}) {
  needVersion5(client)
  const item = itemOf(topic, payload, options)
  return { name: item.name, id: await send(client, item) }
}

/**
 * A message that waits.
 * @typedef {{name: string, added: number, topic: string, qos: 1 | 2, retain: boolean, properties: any, text?: string,
 *   base64?: string, correlation?: string}} Item
 */

/** @param {string} topic @param {string | Uint8Array} payload @param {PublishOptions} options @returns {Item} */
function itemOf(topic, payload, { qos = 1, retain = false, properties = {} }) {
  if (qos !== 1 && qos !== 2) throw new TypeError(`QoS ${qos} is not acknowledged`)
  if (!topic || topic.startsWith('$') || /[#+\u0000-\u001f\u007f-\u009f]/.test(topic)) {
    throw new TypeError(`topic ${JSON.stringify(topic)} cannot be published to`)
  }
  const { correlationData, topicAlias: _, ...rest } = properties
  const name = [rest.userProperties?.['msg-id']].flat()[0] ?? randomName()
  return {
    name,
    added: Date.now(),
    topic,
    qos,
    retain,
    properties: { ...rest, userProperties: { ...rest.userProperties, 'msg-id': name } },
    ...(typeof payload === 'string' ? { text: payload } : { base64: toBase64(payload) }),
    ...(correlationData && { correlation: toBase64(bytesOf(correlationData)) }),
  }
}

/**
 * Sends a message once, and returns the id that the broker gave it.
 * @param {any} client @param {Item} item @returns {Promise<string | undefined>}
 */
async function send(client, item) {
  const ids = idsTold(client)
  const properties = { ...item.properties }
  if (item.correlation) properties.correlationData = fromBase64(item.correlation)
  if (properties.messageExpiryInterval !== undefined) {
    const waited = Math.max(Date.now() - item.added, 0) / 1000 // the clock may have been set back
    if (waited > properties.messageExpiryInterval) throw new ExpiredError()
    properties.messageExpiryInterval -= Math.floor(waited)
  }
  const sent = await client.publishAsync(item.topic, item.text ?? fromBase64(item.base64 ?? ''), {
    qos: item.qos,
    retain: item.retain,
    properties,
  })
  return ids.get(sent?.messageId)
}

/**
 * The ids that a client was told in the last acknowledgements, by packet id.
 * @type {WeakMap<any, Map<number, string>>}
 */
const told = new WeakMap()

/** @param {any} client @returns {Map<number, string>} */
function idsTold(client) {
  let ids = told.get(client)
  if (ids) return ids
  const kept = (ids = new Map())
  told.set(client, kept)
  client.on('packetreceive', (/** @type {any} */ packet) => {
    if (packet.cmd !== 'puback') return
    kept.delete(packet.messageId)
    kept.set(packet.messageId, [packet.properties?.userProperties?.['inbox-id']].flat()[0])
    if (kept.size > 1000) kept.delete(kept.keys().next().value ?? 0)
  })
  return kept
}

// Codes with which the broker refuses a message for good: it is larger than the store takes, not
// authorized, its topic is none, or its payload is not the text that it says it is.
const finalCodes = [0x83, 0x87, 0x90, 0x99]

/** A message expired before it could be sent. */
export class ExpiredError extends Error {
  constructor() {
    super('the message expired before it was sent')
    this.name = 'ExpiredError'
  }
}

/** There is no room in the outbox. */
export class OutboxFullError extends Error {
  /** @param {number} messages */
  constructor(messages) {
    super(`the outbox is full: ${messages} messages wait`)
    this.name = 'OutboxFullError'
  }
}

/**
 * Keeps what is to be published until the broker has acknowledged it: over reloads, crashes and
 * long times without a connection. Messages are sent in the order in which they were added, one
 * after the other, each under its name, so that the broker stores it once; the client id must
 * stay the same. One outbox at a time may use a store and a prefix: not two tabs.
 */
export class Outbox {
  #client
  #store
  #prefix
  #most
  #mostBytes
  #lost
  #turn = turns()
  #first = 0
  #next = 0
  /** @type {number[]} their sizes, from the first one on */
  #sizes = []
  #bytes = 0
  #sending = false
  #closed = false
  /** @type {() => void} */
  #wake = () => {}
  /** @type {Map<number, {resolve: (r: Receipt) => void, reject: (error: unknown) => void}>} */
  #told = new Map()

  /**
   * Opens the outbox that a store has, and begins to send.
   * @param {any} client of MQTT.js, with protocolVersion 5
   * @param {Store} store
   * @param {{prefix?: string, maxMessages?: number, maxBytes?: number,
   *   lost?: (item: Item | undefined, error: unknown) => void}} [options] lost is told of each message that is
   *   given up: it was refused for good, has expired, or cannot be read any more
   */
  static async open(client, store, options = {}) {
    const outbox = new Outbox(client, store, options)
    await outbox.#load()
    client.on('connect', outbox.#connected)
    outbox.#send()
    return outbox
  }

  /** @param {any} client @param {Store} store @param {any} options */
  constructor(client, store, { prefix = 'mqtt-inbox/outbox/', maxMessages = 1000, maxBytes = 2 << 20, lost = console.error }) {
    needVersion5(client)
    this.#client = client
    this.#store = store
    this.#prefix = prefix
    this.#most = maxMessages
    this.#mostBytes = maxBytes
    this.#lost = lost
  }

  // The numbers of the first message and of the one that comes next are one item. A message is there before
  // the numbers say so, and goes after they do not any more: what a crash leaves beside them is removed, or
  // written over.
  async #load() {
    const range = ((await this.#store.getItem(this.#prefix + 'range')) ?? '0 0').split(' ').map(Number)
    ;[this.#first, this.#next] = range
    if (!(this.#first <= this.#next)) throw new Error(`outbox ${this.#prefix}: ${range} is no range of messages`)
    await this.#store.removeItem(this.#prefix + (this.#first - 1))
    for (let n = this.#first; n < this.#next; n++) {
      this.#sizes.push((await this.#store.getItem(this.#prefix + n))?.length ?? 0)
      this.#bytes += this.#sizes[this.#sizes.length - 1]
    }
  }

  /** @param {number} first @param {number} next */
  async #saveRange(first, next) {
    await this.#store.setItem(this.#prefix + 'range', `${first} ${next}`)
    this.#first = first
    this.#next = next
  }

  /** How many messages wait. */
  get length() {
    return this.#next - this.#first
  }

  /**
   * Keeps a message until it is sent, and returns its name. It is kept when the promise is.
   * @param {string} topic @param {string | Uint8Array} payload @param {PublishOptions} [options]
   * @returns {Promise<string>}
   */
  async add(topic, payload, options = {}) {
    return (await this.#add(itemOf(topic, payload, options))).name
  }

  /**
   * Keeps a message, and returns when the broker has acknowledged it.
   * @param {string} topic @param {string | Uint8Array} payload @param {PublishOptions} [options]
   * @returns {Promise<Receipt>}
   */
  async publish(topic, payload, options = {}) {
    const item = itemOf(topic, payload, options)
    return new Promise((resolve, reject) => this.#add(item, { resolve, reject }).catch(reject))
  }

  /** @param {Item} item @param {{resolve: (r: Receipt) => void, reject: (error: unknown) => void}} [waits] */
  async #add(item, waits) {
    const text = JSON.stringify(item)
    await this.#turn(async () => {
      if (this.#closed) throw new Error('the outbox is closed')
      if (this.length >= this.#most || this.#bytes + text.length > this.#mostBytes) throw new OutboxFullError(this.length)
      const n = this.#next
      await this.#store.setItem(this.#prefix + n, text)
      await this.#saveRange(this.#first, n + 1)
      this.#sizes.push(text.length)
      this.#bytes += text.length
      if (waits) this.#told.set(n, waits)
    })
    this.#send()
    return item
  }

  #connected = () => {
    this.#wake()
    this.#send()
  }

  // Sends the first message until there is none. It is started by everything after which there may be
  // something to send, and runs once at a time.
  async #send() {
    if (this.#sending) return
    this.#sending = true
    for (let pause = 500; this.length > 0 && !this.#closed && !this.#client.disconnecting; ) {
      try {
        await this.#sendFirst()
        pause = 500
      } catch {
        await this.#rest(pause * (0.5 + Math.random() / 2))
        pause = Math.min(2 * pause, 15_000)
      }
    }
    this.#sending = false
  }

  /** Sends the first message. It fails if that may be tried again. */
  async #sendFirst() {
    const n = this.#first
    const text = await this.#store.getItem(this.#prefix + n)
    let item
    try {
      item = JSON.parse(text ?? '')
    } catch (error) {
      await this.#store.setItem(this.#prefix + 'damaged', text ?? '')
      return this.#lose(n, undefined, error)
    }
    try {
      const id = await send(this.#client, item)
      await this.#remove(n)
      this.#told.get(n)?.resolve({ name: item.name, id })
      this.#told.delete(n)
    } catch (error) {
      const code = /** @type {any} */ (error)?.code
      if (!finalCodes.includes(code) && !(error instanceof ExpiredError)) throw error
      await this.#lose(n, item, error)
    }
  }

  /** @param {number} n @param {Item | undefined} item @param {unknown} error */
  async #lose(n, item, error) {
    await this.#remove(n)
    this.#told.get(n)?.reject(error)
    this.#told.delete(n)
    this.#lost(item, error)
  }

  /** @param {number} n the first message */
  #remove(n) {
    return this.#turn(async () => {
      await this.#saveRange(n + 1, this.#next)
      this.#bytes -= this.#sizes.shift() ?? 0
      await this.#store.removeItem(this.#prefix + n)
    })
  }

  /** @param {number} ms */
  async #rest(ms) {
    let timer
    await new Promise((resolve) => {
      this.#wake = () => resolve(undefined)
      timer = setTimeout(resolve, ms)
    })
    clearTimeout(timer)
    this.#wake = () => {}
  }

  /** Sends nothing more. What waits is kept. */
  close() {
    this.#closed = true
    this.#client.off('connect', this.#connected)
    this.#wake()
    for (const waits of this.#told.values()) waits.reject(new Error('the outbox is closed'))
    this.#told.clear()
  }
}

/** How many ids one item of a Seen holds. */
const chunkSize = 100

/**
 * Remembers the ids of the messages that were received last, so that those that come again can be
 * told from new ones. Call first() before a message is shown, or, so that nothing is lost: has(), then
 * what the message is for, then add(), then acknowledge it, by asking for the next page for example.
 */
export class Seen {
  #store
  #prefix
  #chunks
  #turn = turns()
  /** @type {Set<string>} in the order of their coming */
  #known = new Set()
  /** @type {string[]} those of the chunk that is being filled */
  #filling = []
  #generation = 0

  /**
   * Opens the filter that a store has.
   * @param {Store} store
   * @param {{prefix?: string, max?: number}} [options] max is how many ids are remembered, or up to a hundred more
   */
  static async open(store, options = {}) {
    const seen = new Seen(store, options)
    await seen.#load()
    return seen
  }

  /** @param {Store} store @param {{prefix?: string, max?: number}} options */
  constructor(store, { prefix = 'mqtt-inbox/seen/', max = 10_000 }) {
    this.#store = store
    this.#prefix = prefix
    this.#chunks = Math.ceil(max / chunkSize) + 1
  }

  // A chunk is one item: its generation, and ids. The one with the highest generation is being filled.
  async #load() {
    const chunks = []
    for (let i = 0; i < this.#chunks; i++) {
      const [generation, ...ids] = ((await this.#store.getItem(this.#prefix + i)) ?? '').split(' ')
      if (ids.length > 0) chunks.push({ generation: Number(generation), ids })
    }
    chunks.sort((a, b) => a.generation - b.generation)
    for (const { ids } of chunks) ids.forEach((id) => this.#known.add(id))
    const last = chunks.at(-1)
    if (last) [this.#generation, this.#filling] = [last.generation, last.ids]
  }

  /** Whether an id is remembered. @param {string} [id] */
  has(id) {
    return this.#known.has(id ?? '')
  }

  /**
   * Remembers an id, and returns whether it is new. One that is empty always is.
   * @param {string} [id] @returns {Promise<boolean>}
   */
  first(id) {
    return this.#turn(async () => {
      if (id && this.has(id)) return false
      if (id) await this.#put([id])
      return true
    })
  }

  /**
   * Remembers ids.
   * @param {string[]} ids @returns {Promise<void>}
   */
  add(...ids) {
    return this.#turn(() => this.#put(ids))
  }

  /** @param {string[]} ids */
  async #put(ids) {
    const added = [...new Set(ids)].filter((id) => id && !this.#known.has(id))
    while (added.length > 0) {
      const full = this.#filling.length >= chunkSize
      const generation = this.#generation + (full ? 1 : 0)
      const before = full ? [] : this.#filling
      const part = added.splice(0, chunkSize - before.length)
      await this.#store.setItem(this.#prefix + (generation % this.#chunks), [generation, ...before, ...part].join(' '))
      this.#generation = generation
      this.#filling = [...before, ...part]
      part.forEach((id) => this.#known.add(id))
      this.#forget()
    }
  }

  // What the chunk had that was written over.
  #forget() {
    const most = (this.#chunks - 1) * chunkSize + this.#filling.length
    for (const id of this.#known) {
      if (this.#known.size <= most) return
      this.#known.delete(id)
    }
  }
}

/** A store that is only in memory: for tests, and where nothing else is allowed. */
export class MemoryStore {
  #items = new Map()

  /** @param {string} key @returns {string | null} */
  getItem(key) {
    return this.#items.get(key) ?? null
  }

  /** @param {string} key @param {string} value */
  setItem(key, value) {
    this.#items.set(key, value)
  }

  /** @param {string} key */
  removeItem(key) {
    this.#items.delete(key)
  }
}

/** Returns a function that calls one function after the other, each when the one before is done. */
function turns() {
  /** @type {Promise<unknown>} */
  let last = Promise.resolve()
  return (/** @type {() => Promise<any>} */ act) => {
    const done = last.then(act)
    last = done.catch(() => {})
    return done
  }
}

/** @param {any} client */
function needVersion5(client) {
  if (client.options.protocolVersion !== 5) throw new TypeError('connect with protocolVersion: 5')
}

/** @param {number} ms */
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

function randomName() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('')
}

/** @param {string | Uint8Array} data */
const bytesOf = (data) => (typeof data === 'string' ? new TextEncoder().encode(data) : data)

/** @param {string | Uint8Array} data */
const textOf = (data) => (typeof data === 'string' ? data : new TextDecoder().decode(data))

/** @param {Uint8Array} bytes */
const toBase64 = (bytes) => btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(''))

/** @param {string} text */
const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0))
