"""`evertable doctor --warm`: runs a small pipeline once and keeps the classes that it loaded."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from evertable.cli.terminal import Terminal

_PIPELINE = """
name: warm
spark: {master: "local[2]"}
streams:
  s: {format: json, path: in, schema: "k STRING, at TIMESTAMP, n INT",
      watermark: {column: at, delay: 1 minute}}
  r: {format: rate}
tables:
  counted:
    query: SELECT window(at, '1 minute') AS w, k, sum(n) AS n FROM s GROUP BY 1, 2
    trigger: available_now
  joined:
    query: SELECT a.k, b.n FROM s a JOIN s b ON a.k = b.k AND a.at = b.at
    trigger: available_now
  kept: {query: SELECT * FROM s, trigger: available_now, sink: {format: parquet, path: out}}
  ticked: {query: SELECT * FROM r, trigger: once, sink: console}
"""


def warm(terminal: Terminal) -> None:
    """Make the archive, if it is not there."""
    from evertable.spark import classes
    from evertable.spark.java import find_java

    file = classes.archive(find_java())
    if file.is_file() or classes.makes_none(file):
        return
    begun = time.monotonic()
    terminal.line("making the class archive, once for this installation…")
    draft = file.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="evertable-warm-") as folder:
        _run(folder, classes.make_flags(draft))
    if draft.is_file():
        draft.replace(file)
        terminal.with_time(f"{terminal.mark('fine')} {file}", time.monotonic() - begun)
    else:
        classes.note_that_it_makes_none(file)
        terminal.line(f"{terminal.mark('look')} this Java makes none; nothing else changes")


def _run(folder: str, flags: str) -> None:
    from evertable.model.storage import Storage
    from evertable.project import open_pipeline
    from evertable.run.opening import open_spark
    from evertable.run.runner import Runner
    from evertable.spark import session

    file = Path(folder, "warm.yaml")
    file.write_text(_PIPELINE)
    Path(folder, "in").mkdir()
    Path(folder, "in/1").write_text('{"k":"a","at":"2026-01-01T00:00:00Z","n":1}\n')
    pipeline = open_pipeline(str(file))
    spark = open_spark(pipeline, logs=Storage.of(pipeline).logs, jvm_flags=flags)
    runner = Runner(pipeline, spark=spark)
    runner.start()
    runner.wait()
    session.end()
