"""`evertable schema`: for editors that complete YAML."""

from __future__ import annotations

import argparse
import json


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same: it is JSON")


def command(options: argparse.Namespace) -> int:
    from evertable.define.json_schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0
