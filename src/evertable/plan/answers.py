"""What was answered to the question of `plan`, kept until `run` has gone that way."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from evertable.errors import DefinitionError
from evertable.model.names import PATTERN, did_you_mean
from evertable.plan.changes import WAYS, Way

POSITIONS = ("old", "earliest", "latest")


@dataclass(frozen=True, slots=True)
class Answer:
    """A way, for one edit: it does not hold for another one."""

    way: Way
    position: str = ""  # of start_over: old, earliest, latest, or a time
    name: str = ""  # of a table beside
    old: str = ""  # digests of the manifests that it was given for
    new: str = ""
    since: str = ""  # the checkpoint that it was given for
    from_offsets: dict[str, str] | None = None  # where the old checkpoint stood

    def fits(self, old: str, new: str) -> bool:
        return (self.old, self.new) == (old, new)


class Answers:
    """The answer for one table, in one small file."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def read(self) -> Answer | None:
        try:
            return Answer(**json.loads(self._file.read_text()))
        except FileNotFoundError:
            return None

    def keep(self, answer: Answer) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        draft.write_text(json.dumps(asdict(answer)))
        draft.replace(self._file)

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)


def parsed(text: str) -> tuple[str, Answer]:
    """`TABLE=WAY`, `TABLE=start_over:latest`, `TABLE=beside:NAME`.

    >>> parsed("t=start_over:earliest")
    ('t', Answer(way='start_over', position='earliest', name='', old='', new='', since='', \
from_offsets=None))
    """
    table, equals, told = text.partition("=")
    way, _, more = told.partition(":")
    if not equals or way not in WAYS:
        raise DefinitionError.of(
            "COMMAND_INVALID",
            f'"{text}" is no answer',
            hint=did_you_mean(way, WAYS) or f"TABLE=WAY, one of {', '.join(WAYS)}",
        )
    found: Way = next(w for w in WAYS if w == way)
    if more and found not in ("start_over", "beside"):
        raise DefinitionError.of("COMMAND_INVALID", f'"{way}" takes nothing after it: "{more}"')
    if more and found == "beside" and not re.match(PATTERN, more):
        raise DefinitionError.of("COMMAND_INVALID", f'"{more}" is no name of a table')
    position = (more or "old") if found == "start_over" else ""
    if position and position not in POSITIONS and not _is_time(position):
        raise DefinitionError.of(
            "COMMAND_INVALID",
            f'"{position}" is no position',
            hint=f"{', '.join(POSITIONS)}, or a time such as 2026-11-17T14:25:00Z",
        )
    return table, Answer(found, position, more if found == "beside" else "")


def _is_time(text: str) -> bool:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False
