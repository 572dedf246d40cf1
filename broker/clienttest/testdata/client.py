"""One visit of a Paho Python client to a broker. script_test.go says what is asked
for and what is told."""

import base64
import collections
import json
import socket
import sys
import threading
import time
import urllib.parse

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


def tell(**line):
    print(json.dumps(line), flush=True)


class Client(mqtt.Client):
    """A client that makes no attempt to connect that fails. When Paho 1.6 tries once
    more, it publishes anew what it has only to release."""

    def reconnect(self):
        while True:
            try:
                socket.create_connection((self._host, self._port)).close()
                return super().reconnect()
            except ConnectionError:
                time.sleep(0.05)


class Publisher:
    """Publishes payloads, also while there is no connection, but not while one is made:
    what is published at that moment the library sends before what has waited for it."""

    most_meanwhile = 100  # while there is no connection

    def __init__(self, client, v):
        self.client, self.topic, self.qos = client, v["topic"], v["qos"]
        self.waiting = collections.deque(base64.b64decode(p) for p in v["payloads"] or [])
        self.sent, self.acknowledged = 0, 0
        self.turn = threading.Lock()  # one publishes at a time
        self.there = threading.Event()  # the connection, and nothing has waited for it
        self.there.set()
        self.every = threading.Semaphore(0)  # one for each acknowledgement
        client.on_publish, client.on_disconnect = self.on_publish, self.on_disconnect

    def publish(self):
        self.sent += 1  # at once: the acknowledgement is another thread's affair
        self.client.publish(self.topic, self.waiting.popleft(), self.qos)

    def on_publish(self, client, v, mid):
        self.acknowledged += 1
        if self.acknowledged == self.sent:
            self.there.set()
        self.every.release()

    def on_disconnect(self, client, v, reason, *properties):
        # On the thread that makes the next connection after this.
        with self.turn:
            self.there.clear()
            for _ in range(min(len(self.waiting), self.most_meanwhile)):
                self.publish()

    def run(self, pause):
        while self.waiting:
            self.there.wait()
            with self.turn:
                if self.there.is_set() and self.waiting:
                    self.publish()
            time.sleep(pause)
        for _ in range(self.sent):
            self.every.acquire()


def new_client(v, url):
    kind = {"client_id": v["id"], "protocol": v["version"]}
    if hasattr(mqtt, "CallbackAPIVersion"):  # Paho 2
        kind["callback_api_version"] = mqtt.CallbackAPIVersion.VERSION1
    if v["version"] == mqtt.MQTTv311:
        kind["clean_session"] = False
    if url.scheme == "ws":
        kind["transport"] = "websockets"
    return Client(**kind)


def connect(client, v, url):
    options = {}
    if v["version"] == mqtt.MQTTv5:
        options["clean_start"] = False
        options["properties"] = Properties(PacketTypes.CONNECT)
        options["properties"].SessionExpiryInterval = 3600
    client.connect(url.hostname, url.port, **options)


def on_message(client, v, message):
    payload = base64.b64encode(message.payload).decode()
    tell(topic=message.topic, qos=message.qos, payload=payload)


def on_subscribe(client, v, mid, granted, *properties):
    tell(event="subscribed", qos=getattr(granted[0], "value", granted[0]))


def main():
    v = json.loads(sys.stdin.readline())
    url = urllib.parse.urlparse(v["url"])
    client = new_client(v, url)
    client.on_message = on_message
    client.on_subscribe = on_subscribe
    publisher = Publisher(client, v)
    client.reconnect_delay_set(min_delay=1, max_delay=1)
    connect(client, v, url)
    client.loop_start()
    if v["filter"]:
        client.subscribe(v["filter"], v["qos"])
    publisher.run(v["pause"] / 1000)
    tell(event="published")

    sys.stdin.read()
    # Once this is through, the broker knows what was received before.
    client.publish("left/" + v["id"], b"", 2)
    publisher.every.acquire()
    client.disconnect()
    client.loop_stop()


main()
