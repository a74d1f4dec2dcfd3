"""A crash of a windowed table at one moment, over and over: how it ends."""

from __future__ import annotations

PIPELINE = """
name: p
streams:
  s: {format: json, path: in, schema: "k STRING, at TIMESTAMP",
      watermark: {column: at, delay: 10 minutes}}
tables:
  t: {query: "SELECT window(at, '5 minutes') AS w, k, count(*) AS n FROM s GROUP BY 1, 2"}
"""


def outcomes(pipeline_of, point, times):
    """Each different end: rows, state, watermark, batches."""
    p = pipeline_of(PIPELINE)
    ends = set()
    for _ in range(times):
        p.reset()
        t = p.table("t")
        p.feed("s", [[{"k": "a", "at": "12:01"}, {"k": "b", "at": "12:02"}]])
        p.push("s", [{"k": "z", "at": "12:30"}])
        with p.crash(point):
            p.run_until_idle()
        p.restart()
        p.run_until_idle()
        ends.add(repr((t.rows(), t.state(), t.watermark, t.batches)))
    return ends
