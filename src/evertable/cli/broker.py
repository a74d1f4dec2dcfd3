"""`evertable broker`: a real Kafka broker on loopback, for first steps and tests."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from evertable.cli.terminal import Terminal, plural
from evertable.errors import DefinitionError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, help="where it listens (default: a free port)")
    parser.add_argument("--data", metavar="FOLDER", help="keep its topics here (default: nowhere)")
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="make this topic"
    )


def command(options: argparse.Namespace) -> int:
    topics = [_topic(text) for text in options.topic]
    from evertable.testing.broker import Broker

    terminal = Terminal.of(sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's `&` leaves the first one ignored
        signal.signal(number, signal.default_int_handler)
    begun = time.monotonic()
    try:
        with Broker(options.data, port=options.port, say=terminal.line) as broker:
            for name, partitions in topics:
                broker.create_topic(name, partitions)
                said = f"{name:<20} {plural(partitions, 'partition')}"
                terminal.line(f"{terminal.mark('fine')} {said}")
            terminal.with_time(
                f"{terminal.mark('fine')} Kafka is ready; Ctrl-C stops it", time.monotonic() - begun
            )
            print(broker.address, flush=True)
            while broker.lives():
                time.sleep(0.2)
    except KeyboardInterrupt:
        terminal.line("stopped")
        return 0
    terminal.line(f"{terminal.mark('broken')} the broker died")
    return 1


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    if not name or (partitions and not partitions.isdigit()) or partitions == "0":
        raise DefinitionError.of(
            "COMMAND_INVALID", f'"{text}" is no topic', hint="--topic clicks, or --topic clicks:4"
        )
    return name, int(partitions or 1)
