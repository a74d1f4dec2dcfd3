"""State in memory with the methods of Spark's handle: values, lists, maps, TTL and timers.

Time to live is counted as Spark counts it: from the last write of a value, of each element of a
list, of each key of a map, in processing time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from evertable.errors import Finding, Refused

Clock = Callable[[], int]


class Handle:
    """What `init` gets."""

    def __init__(self, time_mode: str, now: Clock) -> None:
        self.key: tuple[Any, ...] = ()
        self.watermark = 0
        self._mode = time_mode
        self._now = now
        self._variables: dict[str, Value | List | Map] = {}
        self._timers: dict[tuple[Any, ...], set[int]] = {}

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        return self._variable(stateName, Value, ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        return self._variable(stateName, List, ttlDurationMs)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> Any:
        return self._variable(stateName, Map, ttlDurationMs)

    def deleteIfExists(self, stateName: str) -> None:
        self._variables.pop(stateName, None)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._has_timers()
        now = self.watermark if self._mode == "event" else self._now()
        if self._mode == "event" and expiryTimestampMs <= now:
            raise ValueError(f"a timer for {expiryTimestampMs} is behind the watermark {now}")
        self._timers.setdefault(self.key, set()).add(expiryTimestampMs)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._has_timers()
        self._timers.get(self.key, set()).discard(expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:
        self._has_timers()
        return iter(sorted(self._timers.get(self.key, ())))

    def due(self, until: int) -> list[tuple[int, tuple[Any, ...]]]:
        """The timers to fire, the earliest first."""
        found = [(at, key) for key, all_of in self._timers.items() for at in all_of if at <= until]
        return sorted(found, key=lambda one: (one[0], repr(one[1])))

    def shown(self, name: str) -> Any:
        if name not in self._variables:
            raise Refused(
                Finding(
                    "TEST_INVALID",
                    f'the processor has no state "{name}"; it has {", ".join(self._variables)}',
                )
            )
        return self._variables[name].shown()

    def _variable(self, name: str, kind: Any, ttl: int | None) -> Any:
        if ttl is not None and self._mode != "processing":
            raise ValueError("a time to live needs time mode ProcessingTime")
        return self._variables.setdefault(name, kind(self, ttl, self._now))

    def _has_timers(self) -> None:
        if self._mode == "none":
            raise ValueError("timers need a time mode: event or processing")


class _Variable:
    """Values of one variable by key, each with the time at which it is gone."""

    def __init__(self, handle: Handle, ttl: int | None, now: Clock) -> None:
        self._handle = handle
        self._ttl = ttl
        self._now = now
        self._of: dict[tuple[Any, ...], Any] = {}

    @property
    def _key(self) -> tuple[Any, ...]:
        return self._handle.key

    def _dated(self, value: Any) -> tuple[Any, int | None]:
        return value, None if self._ttl is None else self._now() + self._ttl

    def _lives(self, dated: tuple[Any, int | None]) -> bool:
        return dated[1] is None or dated[1] > self._now()

    def clear(self) -> None:
        self._of.pop(self._key, None)


class Value(_Variable):
    def exists(self) -> bool:
        return self.get() is not None

    def get(self) -> tuple[Any, ...] | None:
        dated = self._of.get(self._key)
        return dated[0] if dated is not None and self._lives(dated) else None

    def update(self, newValue: tuple[Any, ...]) -> None:
        self._of[self._key] = self._dated(tuple(newValue))

    def shown(self) -> tuple[Any, ...] | None:
        return self.get()


class List(_Variable):
    def _living(self) -> list[tuple[Any, ...]]:
        return [dated[0] for dated in self._of.get(self._key, ()) if self._lives(dated)]

    def exists(self) -> bool:
        return bool(self._living())

    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._living())

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        self._of[self._key] = [self._dated(tuple(one)) for one in newState]

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        self._of.setdefault(self._key, []).append(self._dated(tuple(newState)))

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        for one in newState:
            self.appendValue(one)

    def shown(self) -> list[tuple[Any, ...]]:
        return self._living()


class Map(_Variable):
    def _living(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        return {
            k: dated[0] for k, dated in self._of.get(self._key, {}).items() if self._lives(dated)
        }

    def exists(self) -> bool:
        return bool(self._living())

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return self._living().get(tuple(key))

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return tuple(key) in self._living()

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self._of.setdefault(self._key, {})[tuple(key)] = self._dated(tuple(value))

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return iter(self._living().items())

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._living())

    def values(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._living().values())

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self._of.get(self._key, {}).pop(tuple(key), None)

    def shown(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        return self._living()
