"""What an engine lists: images and containers, as values."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Image:
    """One image of the engine."""

    id: str
    tags: tuple[str, ...]
    labels: Mapping[str, str]
    created: float
    """Seconds since 1970."""
    size: int
    """Bytes, its base included."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container of the engine."""

    id: str
    labels: Mapping[str, str]
    running: bool
    ended: bool = False
    """Whether its first process has; one that is paused neither runs nor has ended."""
