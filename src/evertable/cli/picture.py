"""What a running pipeline looks like: the events so far to lines of text. Pure."""

from __future__ import annotations

import io
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from evertable.cli.terminal import Terminal, cell, clean, count, duration, plural, size
from evertable.errors import Finding
from evertable.run.events import (
    Batch,
    Ended,
    Event,
    Idle,
    Noticed,
    Refreshed,
    Retrying,
    Started,
)
from evertable.spark.secrets import redact

_MOST_NEWS = 4


@dataclass
class TableView:
    """What is known of one table."""

    name: str
    how: str = "starting"
    batch: Batch | None = None
    finding: Finding | None = None
    waits: Retrying | None = None  # as long as it backs off
    idle: bool = False
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    bad: int = 0


@dataclass
class RunView:
    """What is known of a run; events go in, pictures come out."""

    pipeline: str
    tables: dict[str, TableView]
    news: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_NEWS))

    def take(self, event: Event) -> None:
        table = self.tables.setdefault(event.table, TableView(event.table))
        match event:
            case Started():
                table.how = "running"
            case Batch():
                table.how, table.finding = "running", None
                table.batch, table.idle = event, False
                table.rows_in += event.rows_in
                table.rows_out += event.rows_out or 0
                table.late += event.late
                table.bad += event.bad
                if event.rows_out:
                    self.news.append(
                        f"{_local(event.at)} {{fine}} {event.table}: "
                        f"{plural(event.rows_out, 'row')} out, batch {event.batch:,}"
                    )
            case Idle():
                table.idle = True
            case Retrying():
                table.how, table.finding, table.waits = "backing off", event.finding, event
            case Noticed():
                said = clean(redact(event.finding.message), newlines=False)
                self.news.append(f"{_local(event.at)} {{look}} {event.table}: {said}")
            case Ended():
                table.how, table.finding = event.how, event.finding

    def lines(self, terminal: Terminal, seconds: float, now: datetime) -> list[str]:
        """The live view, as many lines as it needs."""
        arriving = sum(t.batch.arriving for t in self._moving())
        head = (
            f"{terminal.paint(self.pipeline, 'bold')}  running {duration(int(seconds))}  "
            f"{plural(len(self.tables), 'table')}  {count(arriving)} rows/s arriving"
        )
        clock = now.astimezone().strftime("%H:%M:%S")
        width = max([5, *(len(name) for name in self.tables)])
        columns = ("rows/s", "arriving", "watermark", "state", "", "late", "bad")
        header = f"  {'table':<{width}}" + "".join(
            f"{name:>{w}}" for name, w in zip(columns, _WIDTHS, strict=True)
        )
        lines = [f"{head}  {terminal.paint(clock, 'dim')}", "", terminal.paint(header, "bold")]
        for table in self.tables.values():
            lines += self._row(terminal, table, width, now)
        if self.news:
            lines.append("")
            for text in self.news:
                for mark in ("fine", "look"):
                    text = text.replace(f"{{{mark}}}", terminal.mark(mark))
                lines.append(f"  {text}")
        return lines

    def _moving(self) -> list[_WithBatch]:
        return [
            _WithBatch(t, t.batch)
            for t in self.tables.values()
            if t.batch and t.how == "running" and not t.idle
        ]

    def _row(self, terminal: Terminal, table: TableView, width: int, now: datetime) -> list[str]:
        broken = table.how in ("failed", "backing off")
        mark = terminal.mark("broken" if broken else "fine")
        batch = table.batch
        moving = batch is not None and table.how == "running" and not table.idle
        cells = (
            count(batch.done) if batch and moving else "0",
            count(batch.arriving) if batch and moving else "0",
            watermark_age(batch, now) if batch else table.how,
            count(batch.state_rows) if batch and batch.state_rows else "none",
            size(batch.state_bytes) if batch and batch.state_rows else "",
            count(table.late),
            count(table.bad),
        )
        row = f"{mark} {table.name:<{width}}" + "".join(
            f"{cell:>{w}}" for cell, w in zip(cells, _WIDTHS, strict=True)
        )
        if table.how in ("finished", "stopped"):
            row += f"  {table.how}"
        if not broken or table.finding is None:
            return [row]
        finding = table.finding
        place = f" {finding.place}" if finding.place else ""
        said = f"  {finding.code}{place}: {clean(redact(finding.message), newlines=False)}"
        if table.waits and table.how == "backing off":
            why = clean(redact(finding.detail or finding.message), newlines=False)
            tail = f"; {until(table.waits, now)}, batch {table.waits.batch:,} is kept"
            room = max(0, terminal.width - len(tail))
            said = f"  {finding.code}{place}  {why}"[:room] + tail
        return [row, terminal.paint(said[: terminal.width], "broken")]


def until(waits: Retrying, now: datetime) -> str:
    """attempt 4 of 10 in 41s"""
    of = f" of {waits.most}" if waits.most else ""
    at = datetime.fromisoformat(waits.at.replace("Z", "+00:00"))
    left = max(0, round(waits.seconds - (now - at).total_seconds()))
    return f"attempt {waits.attempt}{of} in {duration(left)}"


@dataclass(frozen=True)
class _WithBatch:
    table: TableView
    batch: Batch


_WIDTHS = (9, 10, 11, 8, 9, 7, 6)


def watermark_age(batch: Batch, now: datetime) -> str:
    """How far the watermark is behind the clock."""
    if batch.watermark is None:
        return "none"
    at = datetime.fromisoformat(batch.watermark.replace("Z", "+00:00"))
    return duration(max(0, int((now - at).total_seconds())))


def log_line(event: Event, sums: TableView | None = None) -> str | None:
    """One line of `key=value` for an event; a batch is told with the sums since the last line."""
    match event:
        case Batch() as batch:
            rows_in = sums.rows_in if sums else batch.rows_in
            rows_out = sums.rows_out if sums else batch.rows_out
            parts = [f"batch={batch.batch}", f"in={rows_in}"]
            if batch.rows_out is not None:
                parts.append(f"out={rows_out}")
            parts.append(f"took={duration(batch.seconds)}")
            if batch.watermark:
                parts.append(f"watermark={batch.watermark.replace('.000Z', 'Z')}")
            if batch.state_rows:
                parts.append(f"state={batch.state_rows}")
            parts.append(f"late={sums.late if sums else batch.late}")
            if bad := (sums.bad if sums else batch.bad):
                parts.append(f"bad={bad}")
            return f"{_second(batch.at)} info  {batch.table} {' '.join(parts)}"
        case Started():
            return f"{_second(event.at)} info  {event.table} started"
        case Refreshed():
            return f"{_second(event.at)} info  {event.table} has read its statics anew"
        case Retrying():
            finding, of = event.finding, f"/{event.most}" if event.most else ""
            place = f" {finding.place}" if finding.place else ""
            return (
                f"{_second(event.at)} error {event.table} {finding.code}{place} "
                f"attempt={event.attempt}{of} retry_in={event.seconds:g}s"
            )
        case Noticed():
            return f"{_second(event.at)} warn  {event.table} {event.finding.code}"
        case Ended(finding=None):
            return f"{_second(event.at)} info  {event.table} {event.how}"
        case Ended(finding=Finding() as finding):
            place = f" {finding.place}" if finding.place else ""
            return f"{_second(event.at)} error {event.table} {finding.code}{place}"
        case _:
            return None


def event_json(event: Event) -> dict[str, object] | None:
    """One object a line, for machines."""
    match event:
        case Batch() as b:
            return {
                "v": 1, "at": b.at, "event": "batch", "table": b.table, "batch": b.batch,
                "rows_in": b.rows_in, "rows_out": b.rows_out, "ms": b.ms,
                "watermark": b.watermark, "state_rows": b.state_rows, "late": b.late, "bad": b.bad,
            }  # fmt: skip
        case Started():
            return {"v": 1, "at": event.at, "event": "started", "table": event.table}
        case Refreshed():
            return {"v": 1, "at": event.at, "event": "refreshed", "table": event.table}
        case Retrying():
            waits: dict[str, object] = {
                "attempt": event.attempt, "of": event.most, "retry_in": event.seconds,
                "batch": event.batch,
            }  # fmt: skip
            return _told(event.at, "retrying", event.table, event.finding) | waits
        case Noticed():
            return _told(event.at, "noticed", event.table, event.finding)
        case Ended():
            return _told(event.at, event.how, event.table, event.finding)
        case _:
            return None


def _told(at: str, event: str, table: str, finding: Finding | None) -> dict[str, object]:
    result: dict[str, object] = {"v": 1, "at": at, "event": event, "table": table}
    if finding:
        place = finding.place
        result |= {
            "code": finding.code,
            "message": redact(finding.message),
            "file": place.file if place else None,
            "line": place.line if place else None,
        }
    return result


def _second(at: str) -> str:
    return at.partition(".")[0] + "Z"


def _local(at: str) -> str:
    moment = datetime.fromisoformat(at.replace("Z", "+00:00"))
    return moment.astimezone().strftime("%H:%M:%S")


def utc_now() -> datetime:
    return datetime.now(UTC)


def shown_rows(table: str, batch: int, rows: Any) -> list[str]:
    """A batch of a console sink, as a small table."""
    text = io.StringIO()
    shown = Terminal(text)
    shown.line(f"{table}, batch {batch:,}: {plural(rows.num_rows, 'row')}")
    most = rows.slice(0, 20)
    if most.num_rows:
        cells = [[cell(v, thousands=False)[:60] for v in row.values()] for row in most.to_pylist()]
        shown.table(most.column_names, cells, set())
    if rows.num_rows > 20:
        shown.line(f"and {count(rows.num_rows - 20)} more")
    return text.getvalue().splitlines()
