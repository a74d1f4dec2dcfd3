"""Where bounded tables of a plan come from (private API, 4.3)."""

from __future__ import annotations

import hashlib
import re
from typing import Any


def read_from(node: Any) -> str:
    """Where a static table is read from, as a digest."""
    try:
        text = str(node.relation().location().rootPaths().mkString(","))
    except Exception:  # no files: what it is called has to do
        text = re.sub(r"#\d+L?|@[0-9a-f]+|\[.*", "", str(node.simpleString(25)))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
