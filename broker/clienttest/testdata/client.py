"""One visit of a Paho Python client to a broker. script_test.go says what is asked
for and what is told."""

import base64
import json
import sys
import threading
import time
import urllib.parse

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


def tell(**line):
    print(json.dumps(line), flush=True)


def new_client(v, url):
    kind = {"client_id": v["id"], "protocol": v["version"]}
    if hasattr(mqtt, "CallbackAPIVersion"):  # Paho 2
        kind["callback_api_version"] = mqtt.CallbackAPIVersion.VERSION1
    if v["version"] == mqtt.MQTTv311:
        kind["clean_session"] = False
    if url.scheme == "ws":
        kind["transport"] = "websockets"
    return mqtt.Client(**kind)


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
    acknowledged = threading.Semaphore(0)
    client.on_publish = lambda client, v, mid: acknowledged.release()
    client.reconnect_delay_set(min_delay=1, max_delay=1)
    connect(client, v, url)
    client.loop_start()
    if v["filter"]:
        client.subscribe(v["filter"], v["qos"])
    payloads = v["payloads"] or []
    for payload in payloads:
        client.publish(v["topic"], base64.b64decode(payload), v["qos"])
        # What is published at the moment of a reconnection the library sends
        # before what has waited for it. So nothing is.
        if client.is_connected():
            time.sleep(v["pause"] / 1000)
    for _ in payloads:
        acknowledged.acquire()
    tell(event="published")

    sys.stdin.read()
    # Once this is through, the broker knows what was received before.
    client.publish("left/" + v["id"], b"", 2)
    acknowledged.acquire()
    client.disconnect()
    client.loop_stop()


main()
