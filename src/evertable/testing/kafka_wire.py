"""The two requests of Kafka's protocol that a test broker needs: make a topic, and see it.

A client library is a large dependency for one request, and Kafka's own command is a JVM of its own.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping

_CREATE_TOPICS, _METADATA = (19, 2), (3, 1)  # keys and versions of the requests
_TIMEOUT_MS = 15_000
_EXISTS = 36  # a broker with a folder of its own still has its topics


def create_topic(
    address: str, name: str, partitions: int, configs: Mapping[str, str]
) -> str | None:
    """Make a topic, and return when clients see it; the broker's reason where it would not."""
    answer = _asked(
        address,
        _CREATE_TOPICS,
        struct.pack(">i", 1),
        _text(name),
        struct.pack(">ihi", partitions, 1, 0),  # one replica, placed by the broker
        struct.pack(">i", len(configs)),
        *(_text(text) for pair in configs.items() for text in pair),
        struct.pack(">i?", _TIMEOUT_MS, False),
    )
    # throttle time, one topic: its name, the error's number and text
    at = 4 + 4
    (length,) = struct.unpack_from(">h", answer, at)
    at += 2 + length
    code, said = struct.unpack_from(">hh", answer, at)
    if code in (0, _EXISTS):
        return _until_seen(address, name)
    return answer[at + 4 : at + 4 + max(said, 0)].decode() or f"Kafka's error {code}"


def _until_seen(address: str, name: str) -> str | None:
    """What was made is told to clients a moment later."""
    until = time.monotonic() + _TIMEOUT_MS / 1000
    while time.monotonic() < until:
        answer = _asked(address, _METADATA, struct.pack(">i", 1), _text(name))
        if _error_of_topic(answer) == 0:
            return None
        time.sleep(0.02)
    return "it was made, and the broker tells nobody of it"


def _error_of_topic(answer: bytes) -> int:
    """Of the only topic that was asked for."""
    (brokers,) = struct.unpack_from(">i", answer, 0)
    at = 4
    for _ in range(brokers):
        at += 4  # its number
        at = _after_text(answer, at) + 4  # host and port
        at = _after_text(answer, at)  # rack
    (code,) = struct.unpack_from(">h", answer, at + 4 + 4)  # the controller, how many topics
    return int(code)


def _after_text(answer: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">h", answer, at)
    return at + 2 + max(int(length), 0)


def _asked(address: str, request: tuple[int, int], *parts: bytes) -> bytes:
    """The broker's answer to one request."""
    host, _, port = address.rpartition(":")
    body = b"".join([struct.pack(">hhi", *request, 1), _text("evertable"), *parts])
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_MS / 1000) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _read(connection, 4))
        return _read(connection, size)[4:]  # after the number of the request


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data
