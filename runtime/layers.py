"""The runtime layer of a base image, made ready: reused, updated, or built from scratch, whichever is least.

(a) the same build folder was built before: its image is used as it is; (b) an earlier layer of this base stands on
the same foundation: our code is replaced on it; (c) neither: everything is built. Nothing but the bundle's build
ever has a network.
"""

import asyncio
import time
from pathlib import Path
from typing import Literal

from runtime.engine import Engine, Progress
from runtime.errors import ImageUnavailable
from runtime.image import BASE, FOUNDATION, GENERATION, OLDEST, Bundle, Layer

SOURCE = "debian:bookworm-slim"
"""The image from which the bundle is made, unless only the base image itself is at hand."""
SPARED = 3600  # seconds that a superseded layer stays: somebody may be about to start a sandbox on it


async def ready_layer(
    engine: Engine,
    base: str,
    *,
    ca_bundle: Path | None = None,
    package_index: str | None = None,
    progress: Progress | None = None,
    logs: Path | None = None,
    proxy: str | None = None,
) -> str:
    """The tag of the runtime layer on a base image, which is pulled if it is not here.

    `logs` is a directory for the whole logs of builds that fail, `proxy` the way out of the operator's network.
    Raises ImageUnavailable.
    """
    trusted = await asyncio.to_thread(ca_bundle.read_bytes) if ca_bundle else None
    base_id = await _local(engine, base)
    bundle = await _bundle(engine, Bundle(base, base_id, trusted, package_index), progress, logs, proxy)
    layer = Layer(base, base_id, bundle, trusted, package_index)
    await make(engine, layer, progress, logs)
    return layer.exact_tag


async def make(
    engine: Engine, layer: Layer, progress: Progress | None = None, logs: Path | None = None
) -> Literal["reused", "updated", "built"]:
    """Make sure of a layer, whose base image and bundle are here; what it took. Raises ImageUnavailable."""
    if await engine.image(layer.exact_tag) is not None:
        return "reused"
    earlier = await engine.image(layer.generic_tag)
    generation = 1 + int(earlier.labels.get(GENERATION, "0")) if earlier else 0
    if earlier and earlier.labels.get(FOUNDATION) == layer.foundation and generation <= OLDEST:
        files = layer.update(earlier.id, generation)
    else:
        generation, files = 0, layer.files()
    await engine.build(layer.what, files, layer.tags, progress=progress, logs=logs)
    await remove_superseded(engine, layer.base, layer.exact_tag)
    return "updated" if generation else "built"


async def _local(engine: Engine, name: str) -> str:
    if (image := await engine.image(name)) is None:
        await engine.pull(name)
        image = await engine.image(name)
    return image.id if image else ""


async def _bundle(
    engine: Engine, own: Bundle, progress: Progress | None, logs: Path | None, proxy: str | None
) -> str:
    """The tag of the bundle, made if need be: from the usual image if that is here, else from the base image
    itself, else from the usual image, pulled."""
    usual = await engine.image(SOURCE)
    if usual is None and own.source != SOURCE:
        (tag,) = own.tags
        if await engine.image(tag) is not None:
            return tag
        try:
            await _build_bundle(engine, own, progress, logs, proxy)
        except ImageUnavailable as reason:
            try:
                await engine.pull(SOURCE)
            except ImageUnavailable:
                raise reason from None
            usual = await engine.image(SOURCE)
        else:
            return tag
    bundle = Bundle(SOURCE, usual.id if usual else "", own.ca_bundle, own.package_index)
    (tag,) = bundle.tags
    if await engine.image(tag) is None:
        await _build_bundle(engine, bundle, progress, logs, proxy)
    return tag


async def _build_bundle(
    engine: Engine, bundle: Bundle, progress: Progress | None, logs: Path | None, proxy: str | None
) -> None:
    # The engine knows these names: it leaves their values out of the image's history.
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    await engine.build(
        bundle.what,
        bundle.files(),
        bundle.tags,
        network=True,
        arguments=dict.fromkeys(names, proxy) if proxy else {},
        progress=progress,
        logs=logs,
    )
    await remove_superseded(engine, bundle.source, bundle.tags[0])


async def remove_superseded(engine: Engine, base: str, newest: str, spared: float = SPARED) -> None:
    """Remove what was made of the same base before `newest`, and nothing uses, if it is older than `spared` seconds.

    The same for layers, and for bundles and their source.
    """
    kept = await engine.image(newest)
    for image in await engine.images(newest.partition(":")[0], f"{BASE}={base}"):
        if kept is not None and image.id != kept.id and time.time() - image.created > spared:
            for tag in image.tags:
                await engine.remove_image(tag)
