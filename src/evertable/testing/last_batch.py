"""The batch in which time ends: with a watermark that every event is behind, all windows close."""

from __future__ import annotations

import json
from pathlib import Path

from evertable.spark.checkpoint import Checkpoint

_END = 32_503_680_000_000  # the year 3000, in milliseconds


def begin_last_batch(checkpoint: Checkpoint) -> bool:
    """Have the next batch be that one; False where nothing is kept that could end."""
    last = checkpoint.last_commit()
    if last < 0 or not checkpoint.keeps_state():
        return False
    log = Path(checkpoint.folder, "commits")
    version, metadata, *rest = (log / str(last)).read_text().split("\n")
    values = json.loads(metadata) | {"nextBatchWatermarkMs": _END}
    (log / f".{last}.crc").unlink(missing_ok=True)
    (log / str(last)).write_text("\n".join([version, json.dumps(values), *rest]))
    checkpoint.begin_pending_batch()
    return True
