"""The three levels of reuse of a runtime layer, with a fake registry."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from patchwright.runtime.docker.build_context import RuntimeLayer
from patchwright.runtime.docker.engine_models import ImageInfo
from patchwright.runtime.docker.runtime_layer import build_runtime_layer

LAYER = RuntimeLayer("debian:test", "sha256:base", "patchwright-bundle:test")
EARLIER = replace(LAYER, code={**LAYER.code, "new/app/runtime/older.py": b"# an earlier version\n"})
ON_OTHER_BASE = replace(EARLIER, base_id="sha256:another")


@dataclass
class FakeRegistry:
    """Has images instead of an engine. A build only reads the labels and the first image of its Dockerfile."""

    images: dict[str, ImageInfo] = field(default_factory=dict)
    built_from: list[str] = field(default_factory=list)

    async def find_image(self, name: str) -> ImageInfo | None:
        return self.images.get(name)

    async def list_images(self, repository: str, label: str | None = None) -> list[ImageInfo]:
        return []

    async def build(
        self, description: str, files: Mapping[str, bytes], tags: Sequence[str], **options: object
    ) -> None:
        dockerfile = files["Dockerfile"].decode()
        (source, *_) = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
        labels = dict(re.findall(r'(io\.[\w.]+)="([^"]*)"', dockerfile))
        # An image has the labels of the image from which it was built.
        inherited = next((image.labels for image in self.images.values() if image.id == source), {})
        self.built_from.append(source)
        image = ImageInfo(f"sha256:{len(self.built_from)}", tuple(tags), {**inherited, **labels}, 0.0, 0)
        self.images |= dict.fromkeys(tags, image)


@pytest.mark.parametrize(
    ("present", "first", "source"),
    [
        pytest.param((LAYER,), "reused", None, id="the same hash: reuse"),
        pytest.param((EARLIER,), "updated", "sha256:1", id="only the readable tag: rebuild from it"),
        pytest.param(
            (ON_OTHER_BASE,), "built", LAYER.base, id="the readable tag of another base: from scratch"
        ),
        pytest.param((), "built", LAYER.base, id="neither: from scratch"),
    ],
)
async def test_each_state_of_the_registry_has_its_level_and_the_next_call_reuses(
    present: tuple[RuntimeLayer, ...], first: str, source: str | None
) -> None:
    registry: Any = FakeRegistry()
    for layer in present:
        assert await build_runtime_layer(registry, layer) == "built"
    registry.built_from.clear()
    assert await build_runtime_layer(registry, LAYER) == first
    assert registry.built_from[:1] == ([] if source is None else [source])
    assert await build_runtime_layer(registry, LAYER) == "reused"
    assert len(registry.built_from) == (0 if source is None else 1)
