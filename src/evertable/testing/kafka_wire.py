"""The one request of Kafka's protocol that a test broker needs: make a topic.

A client library is a large dependency for one request, and Kafka's own command is a JVM of its own.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

_CREATE_TOPICS, _VERSION = 19, 2
_TIMEOUT_MS = 15_000
_EXISTS = 36  # a broker with a folder of its own still has its topics


def create_topic(
    address: str, name: str, partitions: int, configs: Mapping[str, str]
) -> str | None:
    """Make a topic; the broker's reason where it would not."""
    host, _, port = address.rpartition(":")
    body = b"".join(
        [
            struct.pack(">hhi", _CREATE_TOPICS, _VERSION, 1),
            _text("evertable"),
            struct.pack(">i", 1),
            _text(name),
            struct.pack(">ihi", partitions, 1, 0),  # one replica, placed by the broker
            struct.pack(">i", len(configs)),
            *(_text(text) for pair in configs.items() for text in pair),
            struct.pack(">i?", _TIMEOUT_MS, False),
        ]
    )
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_MS / 1000) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _read(connection, 4))
        answer = _read(connection, size)
    # correlation id, throttle time, one topic: its name, the error's number and text
    at = 4 + 4 + 4
    (length,) = struct.unpack_from(">h", answer, at)
    at += 2 + length
    code, said = struct.unpack_from(">hh", answer, at)
    if code in (0, _EXISTS):
        return None
    return answer[at + 4 : at + 4 + max(said, 0)].decode() or f"Kafka's error {code}"


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
