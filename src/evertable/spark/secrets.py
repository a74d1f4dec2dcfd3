"""Secrets: read at the moment Spark gets them, and taken out of everything that comes back.

`redact` stands at the boundary: Spark repeats options in its exceptions, so every foreign text
passes through it before anyone sees or stores it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from evertable.errors import DefinitionError
from evertable.location import Location

_SECRET = re.compile(r"\$\{secret:([^}]*)\}")
_USER_INFO = re.compile(r"(\w+://)[^/\s:@]+(:[^/\s@]*)?@")
_PASSWORD_LIKE = re.compile(
    r"(?i)(?<![{\w.])((?:[\w.]*(?:password|passwd|secret|token|api[-_]?key))[\"']?\s*[=:]\s*[\"']?)"
    r"([^\s\"',;)}]+)"
)
_SHORTEST_TO_HIDE = 4  # hiding every "a" would make all text unreadable

_known: dict[str, str] = {}  # value -> the placeholder that stands for it


def resolve(options: Mapping[str, str], what: str, place: Location | None) -> dict[str, str]:
    """Options with their secrets read; DefinitionError naming a secret that is not there."""

    def value_of(match: re.Match[str]) -> str:
        try:
            value = _read(match[1])
        except LookupError as e:
            raise DefinitionError.of(
                "SECRET_MISSING",
                f"{what} needs ${{secret:{match[1]}}}",
                place=place,
                detail=str(e),
                hint=f"export {match[1]}=…, or use ${{secret:file:PATH}}",
            ) from e
        # a log is read line by line, so each line of a key is hidden as well
        for part in (value, *value.splitlines()):
            if len(part) >= _SHORTEST_TO_HIDE:
                _known[part] = match[0]
        return value

    return {key: _SECRET.sub(value_of, text) for key, text in options.items()}


def secrets_in(text: str) -> list[str]:
    """The names of the secrets that an option asks for."""
    return _SECRET.findall(text)


def value_of(name: str) -> str:
    """The value of a secret; empty where it is not there."""
    try:
        return _read(name)
    except LookupError:
        return ""


def redact(text: str) -> str:
    """The text without any secret that was read, user info in URLs, or password."""
    for value in sorted(_known, key=len, reverse=True):  # one secret may be a part of another
        text = text.replace(value, _known[value])
    text = _USER_INFO.sub(r"\1***@", text)
    return _PASSWORD_LIKE.sub(_hidden, text)


def _hidden(match: re.Match[str]) -> str:
    return match[0] if match[2].startswith("${secret:") else f"{match[1]}***"


def _read(name: str) -> str:
    if name.startswith("file:"):
        try:
            return Path(name.removeprefix("file:")).expanduser().read_text().rstrip("\r\n")
        except OSError as e:
            raise LookupError(f"its file cannot be read: {e.strerror}") from e
    try:
        return os.environ[name]
    except KeyError:
        raise LookupError("there is no such environment variable") from None
