"""Base images that differ from the usual one by a file that says what they were made for."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runtime.docker.engine import Engine
from runtime.docker.image import BASE, REPOSITORY
from runtime.docker.layers import SOURCE

MARK = "/made_for"


@asynccontextmanager
async def marked_images(*purposes: str) -> AsyncIterator[dict[str, str]]:
    """An image for each purpose, by purpose; gone in the end, with the runtime layers on them."""
    engine = await Engine.connect()
    named = {purpose: f"patchwright-test-made-for:{purpose}-{os.getpid()}" for purpose in purposes}
    try:
        for purpose, name in named.items():
            folder = {"Dockerfile": f"FROM {SOURCE}\nCOPY mark {MARK}\n".encode(), "mark": purpose.encode()}
            await engine.build(f"the image for {purpose}", folder, (name,))
        yield named
    finally:
        for name in named.values():
            for layer in await engine.images(REPOSITORY, f"{BASE}={name}"):
                for tag in layer.tags:
                    await engine.remove_image(tag)
            await engine.remove_image(name)
        await engine.close()
