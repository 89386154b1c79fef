"""Prepares the runtime layer of a base image: an image layer with the programs and features of a sandbox.

A layer with the same content is reused. If only our code has changed, the code in the earlier layer is
replaced. Otherwise, a new layer is built from bundles, which contain the programs and features. Only the builds
of the bundles have network access.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from patchwright.runtime.docker.build_context import (
    BASE_LABEL,
    DEPENDENCIES_LABEL,
    FEATURES_LABEL,
    GENERATION_LABEL,
    MAX_GENERATION,
    Bundle,
    FeatureBundle,
    RuntimeLayer,
)
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.errors import ImageUnavailable
from patchwright.runtime.features import ALL_FEATURES, SandboxFeature

log = logging.getLogger(__name__)

BUNDLE_SOURCE_IMAGE = "debian:bookworm-slim"
"""The image on which the bundle (Python, bash and git) is built. If it is missing, the base image is used."""
# seconds for which a replaced layer is kept, because a sandbox may be about to start from it
SUPERSEDED_GRACE = 3600


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What the images of sandboxes contain, and how they are built."""

    features: tuple[SandboxFeature, ...] = ()
    """The optional sandbox features to install. Features that cannot be built are omitted."""
    ca_bundle: Path | None = None
    """Certificates that builds and commands in the sandbox trust."""
    package_index: str | None = None
    """The package index of builds and of commands in the sandbox."""
    proxy: str | None = None
    """The proxy of the operator's network. Only builds that download programs use it."""
    log_dir: Path | None = None
    """A directory for the complete logs of failed builds. Processes that use the same directory do not build
    images at the same time.
    """
    on_notice: Callable[[str], object] = lambda _: None
    """Called when an image is built, and when a feature is built or omitted."""


async def ensure_runtime_layer(
    engine: Engine, base: str, settings: BuildSettings, on_build: Callable[[], object] = lambda: None
) -> tuple[str, tuple[SandboxFeature, ...]]:
    """Return the tag of the runtime layer for a base image, and the features in the layer. If the base image
    is missing, pull it.

    Calls `on_build` before each build. Raises ImageUnavailable.
    """
    certificates = await asyncio.to_thread(settings.ca_bundle.read_bytes) if settings.ca_bundle else None
    base_id = await _pull_if_missing(engine, base)
    builder = _BundleBuilder(engine, settings, on_build)
    bundle = await _ensure_bundle(builder, Bundle(base, base_id, certificates, settings.package_index))
    features = await _ensure_features(builder, bundle)
    layer = RuntimeLayer(base, base_id, bundle.tags[0], certificates, settings.package_index, features)
    await build_runtime_layer(engine, layer, on_build, settings.log_dir)
    return layer.content_tag, tuple(features)


async def build_runtime_layer(
    engine: Engine,
    layer: RuntimeLayer,
    on_build: Callable[[], object] = lambda: None,
    log_dir: Path | None = None,
) -> Literal["reused", "updated", "built"]:
    """Reuse, update or build a runtime layer, and return which of the three was done.

    The base image and the bundle of the layer must exist. Raises ImageUnavailable.
    """
    if await engine.find_image(layer.content_tag) is not None:
        return "reused"
    earlier = await engine.find_image(layer.readable_tag)
    generation = 1 + int(earlier.labels.get(GENERATION_LABEL, "0")) if earlier else 0
    if (
        earlier
        and earlier.labels.get(DEPENDENCIES_LABEL) == layer.dependencies_hash
        and generation <= MAX_GENERATION
    ):
        files = layer.update_files(earlier.id, generation)
    else:
        generation, files = 0, layer.files()
    on_build()
    await engine.build(layer.description, files, layer.tags, log_dir=log_dir)
    await remove_superseded(engine, layer.base, layer.content_tag)
    return "updated" if generation else "built"


async def _pull_if_missing(engine: Engine, name: str) -> str:
    if (image := await engine.find_image(name)) is None:
        await engine.pull(name)
        image = await engine.find_image(name)
    return image.id if image else ""


@dataclass(frozen=True, slots=True)
class _BundleBuilder:
    """Builds bundles of sandbox programs. Only these image builds have network access."""

    engine: Engine
    settings: BuildSettings
    on_build: Callable[[], object]

    async def build(self, bundle: Bundle) -> None:
        self.on_build()
        # The engine does not write the values of these build arguments into the image's history.
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
        proxy = self.settings.proxy
        await self.engine.build(
            bundle.description,
            bundle.files(),
            bundle.tags,
            network=True,
            build_args=dict.fromkeys(names, proxy) if proxy else {},
            log_dir=self.settings.log_dir,
        )
        await remove_superseded(self.engine, bundle.source, bundle.tags[0])


async def _ensure_bundle(builder: _BundleBuilder, base_bundle: Bundle) -> Bundle:
    """Return the bundle. If it is missing, build it.

    The bundle is made from BUNDLE_SOURCE_IMAGE if that image is available, otherwise from the base image. If
    the base image is not suitable, BUNDLE_SOURCE_IMAGE is pulled.
    """
    engine = builder.engine
    usual_image = await engine.find_image(BUNDLE_SOURCE_IMAGE)
    if usual_image is None and base_bundle.source != BUNDLE_SOURCE_IMAGE:
        if await engine.find_image(base_bundle.tags[0]) is not None:
            return base_bundle
        try:
            await builder.build(base_bundle)
        except ImageUnavailable as error:
            try:
                await engine.pull(BUNDLE_SOURCE_IMAGE)
            except ImageUnavailable:
                raise error from None
            usual_image = await engine.find_image(BUNDLE_SOURCE_IMAGE)
        else:
            return base_bundle
    bundle = Bundle(
        BUNDLE_SOURCE_IMAGE,
        usual_image.id if usual_image else "",
        base_bundle.ca_bundle,
        base_bundle.package_index,
    )
    if await engine.find_image(bundle.tags[0]) is None:
        await builder.build(bundle)
    return bundle


async def _ensure_features(builder: _BundleBuilder, bundle: Bundle) -> dict[SandboxFeature, str]:
    """Return the tags of the feature bundles. Build those that are missing, and omit features that cannot be
    built.
    """
    bundles = [
        FeatureBundle(**asdict(bundle), feature=feature, bundle_tag=bundle.tags[0])
        for feature in sorted(builder.settings.features, key=ALL_FEATURES.index)
    ]
    missing = [
        feature_bundle
        for feature_bundle in bundles
        if await builder.engine.find_image(feature_bundle.tags[0]) is None
    ]
    omitted = set[SandboxFeature]()
    for number, feature_bundle in enumerate(missing, 1):
        builder.settings.on_notice(
            f"Building the sandbox feature `{feature_bundle.feature}`, {number} of {len(missing)} (once) ..."
        )
        try:
            await builder.build(feature_bundle)
        except ImageUnavailable as error:
            log.info("feature omitted", extra={"feature": feature_bundle.feature, "error": str(error)})
            omitted.add(feature_bundle.feature)
            builder.settings.on_notice(f"NOTICE: {error}. The sandbox runs without this feature.")
    return {
        feature_bundle.feature: feature_bundle.tags[0]
        for feature_bundle in bundles
        if feature_bundle.feature not in omitted
    }


async def remove_superseded(engine: Engine, base: str, newest: str, grace: float = SUPERSEDED_GRACE) -> None:
    """Remove images that are unused, older than `grace` seconds, and replaced by `newest`.

    `base` is the base image of a layer, or the source image of a bundle. Layers with other features are kept.
    """
    if (newest_image := await engine.find_image(newest)) is None:
        return
    for image in await engine.list_images(newest.partition(":")[0], f"{BASE_LABEL}={base}"):
        is_superseded = image.id != newest_image.id and image.labels.get(
            FEATURES_LABEL
        ) == newest_image.labels.get(FEATURES_LABEL)
        if is_superseded and time.time() - image.created > grace:
            for tag in image.tags:
                await engine.remove_image(tag)
