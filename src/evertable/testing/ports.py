"""Ports on loopback for servers of tests: none that a client gets for its own end."""

from __future__ import annotations

import random
import socket

_RANGE = range(15_000, 32_000)  # below those that Linux gives to clients


def free_ports(number: int) -> list[int]:
    """So many different ports, on which nobody listens now."""
    found: list[int] = []
    for port in random.sample(_RANGE, len(_RANGE)):
        if len(found) == number:
            break
        if is_free(port):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
