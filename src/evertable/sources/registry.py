"""All kinds of source, by the name of their format."""

from __future__ import annotations

from evertable.model.capabilities import Formats, SourceCapabilities
from evertable.sources import files, generated, kafka, named

_KNOWN = (*files.SOURCES, *generated.SOURCES, kafka.KAFKA, *named.SOURCES)

SOURCES: Formats[SourceCapabilities] = Formats(
    {format: source for source in _KNOWN for format in source.formats}, named.stranger
)
