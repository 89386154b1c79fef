"""What an engine lists: images and containers, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


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


def one_image(found: Mapping[str, Any]) -> Image:
    """An image that was asked for by itself, from the engine's answer."""
    # Its date has more digits of a second than Python reads.
    created = datetime.fromisoformat(found["Created"][:19]).replace(tzinfo=UTC).timestamp()
    return _image(found, found["Config"]["Labels"], created)


def listed_image(found: Mapping[str, Any]) -> Image:
    """An image of the engine's list."""
    return _image(found, found["Labels"], float(found["Created"]))


def listed_container(found: Mapping[str, Any]) -> Container:
    """A container of the engine's list."""
    return Container(
        id=str(found["Id"]),
        labels=dict(found["Labels"]),
        running=found["State"] == "running",
        ended=found["State"] in ("exited", "dead"),
    )


def _image(found: Mapping[str, Any], labels: Mapping[str, str] | None, created: float) -> Image:
    tags = tuple(found.get("RepoTags") or ())
    return Image(str(found["Id"]), tags, dict(labels or {}), created, int(found["Size"]))
