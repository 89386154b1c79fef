"""The layers of one test's repository. Others on the same engine are another test's, perhaps at this very moment."""

import hashlib

from runtime.docker.engine import Engine
from runtime.docker.repository_layer import LAYERS, REPOSITORY_LABEL


async def remove_layers_of(source: str) -> None:
    """Remove what the set-up of this repository left."""
    repository = hashlib.sha256(source.encode()).hexdigest()[:32]
    engine = await Engine.connect()
    for image in await engine.images(LAYERS, f"{REPOSITORY_LABEL}={repository}"):
        for tag in image.tags:
            await engine.remove_image(tag)
    await engine.close()
