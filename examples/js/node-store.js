// A store of files for Node, to be handed to Outbox and Seen of mqtt-inbox.js.
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'

/**
 * Opens a store in a directory. Each item is one file, which is there as a whole or not at all, and is on
 * the disk when the promise is kept. One process at a time may use a directory.
 * @param {string} dir
 * @returns {Promise<import('./mqtt-inbox.js').Store>}
 */
export async function fileStore(dir) {
  await mkdir(dir, { recursive: true, mode: 0o700 })
  const path = (/** @type {string} */ key) => join(dir, encodeURIComponent(key))
  return {
    async getItem(key) {
      try {
        return await readFile(path(key), 'utf8')
      } catch (error) {
        if (/** @type {any} */ (error).code === 'ENOENT') return null
        throw error
      }
    },
    async setItem(key, value) {
      const temporary = path(key) + '.new'
      const file = await open(temporary, 'w', 0o600)
      try {
        await file.writeFile(value)
        await file.sync()
      } finally {
        await file.close()
      }
      await rename(temporary, path(key))
      await syncDirectory(dir)
    },
    async removeItem(key) {
      await rm(path(key), { force: true })
    },
  }
}

/**
 * Has the names of files on the disk. Windows has no such call.
 * @param {string} dir
 */
async function syncDirectory(dir) {
  if (process.platform === 'win32') return
  const directory = await open(dir, 'r')
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}
