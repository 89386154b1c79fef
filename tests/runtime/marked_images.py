"""Base images that differ from the usual one by a file that names their purpose."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from patchwright.runtime.docker.build_context import BASE_LABEL, LAYER_REPOSITORY
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.runtime_layer import BUNDLE_SOURCE_IMAGE

MARK = "/made_for"


@asynccontextmanager
async def marked_images(*purposes: str) -> AsyncIterator[dict[str, str]]:
    """Build an image for each purpose. They are removed at the end, with the runtime layers on them."""
    engine = await Engine.connect()
    named = {purpose: f"patchwright-test-made-for:{purpose}-{os.getpid()}" for purpose in purposes}
    try:
        for purpose, name in named.items():
            folder = {
                "Dockerfile": f"FROM {BUNDLE_SOURCE_IMAGE}\nCOPY mark {MARK}\n".encode(),
                "mark": purpose.encode(),
            }
            await engine.build(f"the image for {purpose}", folder, (name,))
        yield named
    finally:
        for name in named.values():
            for layer in await engine.list_images(LAYER_REPOSITORY, f"{BASE_LABEL}={name}"):
                for tag in layer.tags:
                    await engine.remove_image(tag)
            await engine.remove_image(name)
        await engine.close()
