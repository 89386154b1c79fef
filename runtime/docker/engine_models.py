"""Data classes for the images and the containers of an engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from patchwright.runtime.monitored_sandbox import ContainerUsage


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """One image of the engine."""

    id: str
    tags: tuple[str, ...]
    labels: Mapping[str, str]
    created: float
    """Seconds since 1970."""
    size: int
    """Bytes of the image, including its base image."""


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """One container of the engine."""

    id: str
    labels: Mapping[str, str]
    is_running: bool
    has_exited: bool = False
    """True if the first process of the container has ended. A paused container is neither running nor exited.
    """


def parse_inspected_image(inspected: Mapping[str, Any]) -> ImageInfo:
    """Parse the engine's response for one image."""
    # The timestamp has more digits than Python parses.
    created = datetime.fromisoformat(inspected["Created"][:19]).replace(tzinfo=UTC).timestamp()
    return _make_image(inspected, inspected["Config"]["Labels"], created)


def parse_listed_image(listed: Mapping[str, Any]) -> ImageInfo:
    """Parse an entry of the engine's list of images."""
    return _make_image(listed, listed["Labels"], float(listed["Created"]))


def parse_listed_container(listed: Mapping[str, Any]) -> ContainerInfo:
    """Parse an entry of the engine's list of containers."""
    return ContainerInfo(
        id=str(listed["Id"]),
        labels=dict(listed["Labels"]),
        is_running=listed["State"] == "running",
        has_exited=listed["State"] in ("exited", "dead"),
    )


def parse_usage(listed: Mapping[str, Any]) -> ContainerUsage:
    """Parse an entry of the engine's list of containers. The list must have been requested with `size`."""
    return ContainerUsage(int(listed.get("SizeRw") or 0), is_paused=listed.get("State") == "paused")


def _make_image(listed: Mapping[str, Any], labels: Mapping[str, str] | None, created: float) -> ImageInfo:
    tags = tuple(listed.get("RepoTags") or ())
    return ImageInfo(str(listed["Id"]), tags, dict(labels or {}), created, int(listed["Size"]))
