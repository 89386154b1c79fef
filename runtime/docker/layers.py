"""The runtime layer of a base image, made ready: reused, updated, or built from scratch, whichever is least.

(a) the same build folder was built before: its image is used as it is; (b) an earlier layer of this base stands on
the same foundation: our code is replaced on it; (c) neither: everything is built. Nothing but the builds of bundles
ever has a network.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from runtime.docker.engine import Engine, Progress
from runtime.docker.image import BASE, FOUNDATION, GENERATION, OLDEST, WITH, Bundle, Layer, PluginBundle
from runtime.errors import ImageUnavailable
from runtime.plugins import PLUGINS, Plugin

log = logging.getLogger(__name__)

SOURCE = "debian:bookworm-slim"
"""The image from which the bundle is made, unless only the base image itself is at hand."""
SPARED = 3600  # seconds that a superseded layer stays: somebody may be about to start a sandbox on it


async def ready_layer(
    engine: Engine,
    base: str,
    *,
    ca_bundle: Path | None = None,
    package_index: str | None = None,
    plugins: Iterable[Plugin] = (),
    progress: Progress | None = None,
    notice: Callable[[str], object] | None = None,
    logs: Path | None = None,
    proxy: str | None = None,
) -> tuple[str, tuple[Plugin, ...]]:
    """The tag of the runtime layer on a base image, which is pulled if it is not here; and the plugins that it has.

    `progress` hears each line of a build, `notice` that a plugin is made, or cannot be: the layer then goes without.
    `logs` is a directory for the whole logs of builds that fail, `proxy` the way out of the operator's network.
    Raises ImageUnavailable.
    """
    trusted = await asyncio.to_thread(ca_bundle.read_bytes) if ca_bundle else None
    base_id = await _local(engine, base)
    online = _Online(engine, progress, logs, proxy)
    bundle = await _bundle(online, Bundle(base, base_id, trusted, package_index))
    made = await _plugins(online, bundle, plugins, notice)
    layer = Layer(base, base_id, bundle.tags[0], trusted, package_index, made)
    await make(engine, layer, progress, logs)
    return layer.exact_tag, tuple(made)


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


@dataclass(frozen=True, slots=True)
class _Online:
    """Builds with a network: those of bundles."""

    engine: Engine
    progress: Progress | None
    logs: Path | None
    proxy: str | None

    async def build(self, bundle: Bundle) -> None:
        # The engine knows these names: it leaves their values out of the image's history.
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
        await self.engine.build(
            bundle.what,
            bundle.files(),
            bundle.tags,
            network=True,
            arguments=dict.fromkeys(names, self.proxy) if self.proxy else {},
            progress=self.progress,
            logs=self.logs,
        )
        await remove_superseded(self.engine, bundle.source, bundle.tags[0])


async def _bundle(online: _Online, own: Bundle) -> Bundle:
    """The bundle, made if need be: from the usual image if that is here, else from the base image itself, else from
    the usual image, pulled."""
    engine = online.engine
    usual = await engine.image(SOURCE)
    if usual is None and own.source != SOURCE:
        if await engine.image(own.tags[0]) is not None:
            return own
        try:
            await online.build(own)
        except ImageUnavailable as reason:
            try:
                await engine.pull(SOURCE)
            except ImageUnavailable:
                raise reason from None
            usual = await engine.image(SOURCE)
        else:
            return own
    bundle = Bundle(SOURCE, usual.id if usual else "", own.ca_bundle, own.package_index)
    if await engine.image(bundle.tags[0]) is None:
        await online.build(bundle)
    return bundle


async def _plugins(
    online: _Online, bundle: Bundle, wanted: Iterable[Plugin], notice: Callable[[str], object] | None
) -> dict[Plugin, str]:
    """The tags of the plugins' bundles, made if need be. One that cannot be made is left out, and told."""
    bundles = [
        PluginBundle(
            **{each.name: getattr(bundle, each.name) for each in fields(bundle)},
            plugin=plugin,
            bundle=bundle.tags[0],
        )
        for plugin in sorted(wanted, key=PLUGINS.index)
    ]
    missing = [each for each in bundles if await online.engine.image(each.tags[0]) is None]
    left_out = set[Plugin]()
    for number, each in enumerate(missing, 1):
        if notice is not None:
            notice(f"Making the sandbox's plugin `{each.plugin}`, {number} of {len(missing)} (once) ...")
        try:
            await online.build(each)
        except ImageUnavailable as failed:
            log.info("plugin left out", extra={"plugin": each.plugin, "error": str(failed)})
            left_out.add(each.plugin)
            if notice is not None:
                notice(f"NOTICE: {failed}. The sandbox goes without it.")
    return {each.plugin: each.tags[0] for each in bundles if each.plugin not in left_out}


async def remove_superseded(engine: Engine, base: str, newest: str, spared: float = SPARED) -> None:
    """Remove what was made of the same base before `newest`, and nothing uses, if it is older than `spared` seconds.

    The same for layers, of which those with other plugins stay, and for bundles and their source.
    """
    if (kept := await engine.image(newest)) is None:
        return
    for image in await engine.images(newest.partition(":")[0], f"{BASE}={base}"):
        same = image.id != kept.id and image.labels.get(WITH) == kept.labels.get(WITH)
        if same and time.time() - image.created > spared:
            for tag in image.tags:
                await engine.remove_image(tag)
