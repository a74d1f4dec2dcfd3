"""Where a stream's rows come from: one module a family, its capability record in it."""

from evertable.sources.registry import SOURCES

__all__ = ["SOURCES"]
