"""Times as tests write them: `12:04` is a time of the test's day, in the zone of its session."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo

_SHORT = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?")


@dataclass(frozen=True)
class Day:
    """The day and the zone that short times are relative to."""

    date: dt.date = dt.date(2026, 1, 1)
    zone: str = "UTC"

    def moment(self, text: str) -> dt.datetime:
        """A time of this day, or any time in full; ValueError for what is neither.

        >>> Day().moment("12:04").isoformat()
        '2026-01-01T12:04:00+00:00'
        """
        zone = ZoneInfo(self.zone)
        short = _SHORT.fullmatch(text)
        if short:
            hour, minute, second, part = short.groups()
            micros = int((part or "0").ljust(6, "0"))
            at = dt.time(int(hour), int(minute), int(second or 0), micros, zone)
            return dt.datetime.combine(self.date, at)
        full = dt.datetime.fromisoformat(text)
        return full if full.tzinfo else full.replace(tzinfo=zone)

    def shown(self, moment: dt.datetime) -> str:
        """The other way round; times of other days with their date.

        >>> Day().shown(dt.datetime(2026, 1, 2, 0, 5))
        '2026-01-02 00:05:00'
        """
        local = moment.astimezone(ZoneInfo(self.zone)) if moment.tzinfo else moment
        text = local.strftime("%H:%M:%S")
        if local.microsecond:
            text += f".{local.microsecond:06}".rstrip("0")
        return text if local.date() == self.date else f"{local:%Y-%m-%d} {text}"

    def millis(self, text: str) -> int:
        return int(self.moment(text).timestamp() * 1000)

    def shown_millis(self, millis: int) -> str:
        return self.shown(dt.datetime.fromtimestamp(millis / 1000, dt.UTC))
