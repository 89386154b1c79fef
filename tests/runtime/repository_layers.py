"""Removes the repository layers of one test. Other tests may use the same engine at the same time."""

import hashlib

from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.repository_layer import REPOSITORY_LABEL, REPOSITORY_LAYERS


async def remove_layers_of(source: str) -> None:
    """Remove the layers of this repository."""
    repository = hashlib.sha256(source.encode()).hexdigest()[:32]
    engine = await Engine.connect()
    for image in await engine.list_images(REPOSITORY_LAYERS, f"{REPOSITORY_LABEL}={repository}"):
        for tag in image.tags:
            await engine.remove_image(tag)
    await engine.close()
