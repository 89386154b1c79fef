"""The three levels of reuse and the removal of superseded images, on a real engine."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.build_context import (
    DEFAULT_PACKAGE_INDEX,
    FEATURES_LABEL,
    GENERATION_LABEL,
    MAX_GENERATION,
    Bundle,
    RuntimeLayer,
)
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.repository_layer import (
    MAX_LAYERS_PER_REPOSITORY,
    REPOSITORY_LABEL,
    REPOSITORY_LAYERS,
    remove_old_layers,
)
from patchwright.runtime.docker.runtime_layer import (
    BUNDLE_SOURCE_IMAGE,
    BuildSettings,
    build_runtime_layer,
    ensure_runtime_layer,
    remove_superseded,
)
from patchwright.runtime.errors import ImageUnavailable
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.sandbox import SandboxSpec
from tests.runtime.conftest import CA_BUNDLE

pytestmark = pytest.mark.docker
USED_CA = CA_BUNDLE if CA_BUNDLE.exists() else None
BASE = f"localhost:5000/patchwright/test-layers:{os.getpid()}"


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = await Engine.connect()
    yield engine
    for image in await engine.list_images("patchwright-runtime", f"io.patchwright.base={BASE}"):
        for tag in image.tags:
            await engine.remove_image(tag)
    await engine.remove_image(BASE)
    await engine.close()


@pytest.fixture
async def layer(engine: Engine) -> RuntimeLayer:
    """The layer on a base image of its own, with its bundle built."""
    client = docker.from_env()
    client.api.tag(BUNDLE_SOURCE_IMAGE, *BASE.rsplit(":", 1))
    client.close()
    settings = BuildSettings(ca_bundle=USED_CA, package_index=os.environ.get("PATCHWRIGHT_PACKAGE_INDEX"))
    await ensure_runtime_layer(engine, BUNDLE_SOURCE_IMAGE, settings)
    (bundle, *_) = await engine.list_images("patchwright-bundle")
    base = await engine.find_image(BASE)
    assert base is not None
    return RuntimeLayer(BASE, base.id, bundle.tags[0])


def with_code(layer: RuntimeLayer, comment: str) -> RuntimeLayer:
    code = {**layer.code, "new/app/runtime/comment.py": f"# {comment}\n".encode()}
    return RuntimeLayer(layer.base, layer.base_id, layer.bundle_tag, code=code)


@pytest.mark.slow
async def test_the_same_folder_is_reused_other_code_updates_and_another_base_is_built(
    engine: Engine, layer: RuntimeLayer
) -> None:
    assert await build_runtime_layer(engine, layer) == "built"
    assert await build_runtime_layer(engine, layer) == "reused"

    changed = with_code(layer, "changed")
    assert await build_runtime_layer(engine, changed) == "updated"
    assert await build_runtime_layer(engine, changed) == "reused"
    first, second = await engine.find_image(layer.content_tag), await engine.find_image(changed.content_tag)
    generic = await engine.find_image(layer.readable_tag)
    assert first and second and generic
    assert (second.id, second.labels[GENERATION_LABEL]) == (generic.id, "1")
    assert second.size - first.size < 3_000_000  # bytes: our code, without the dependencies

    moved = RuntimeLayer(layer.base, "sha256:another", layer.bundle_tag)
    assert await build_runtime_layer(engine, moved) == "built"


@pytest.mark.slow
async def test_updates_have_a_maximum_depth(engine: Engine, layer: RuntimeLayer) -> None:
    await build_runtime_layer(engine, layer)
    image = await engine.find_image(layer.content_tag)
    assert image is not None
    many = f'FROM {image.id}\nLABEL {GENERATION_LABEL}="{MAX_GENERATION}"\n'.encode()
    await engine.build("a layer with many updates", {"Dockerfile": many}, (layer.readable_tag,))
    assert await build_runtime_layer(engine, with_code(layer, "one too many")) == "built"


@pytest.mark.slow
async def test_superseded_images_are_removed_unless_in_use(engine: Engine, layer: RuntimeLayer) -> None:
    await build_runtime_layer(engine, layer)
    second = with_code(layer, "second")
    await build_runtime_layer(engine, second)
    await remove_superseded(engine, BASE, second.content_tag)
    assert (
        await engine.find_image(layer.content_tag) is not None
    )  # it is recent: a sandbox may be about to start on it

    third = RuntimeLayer(layer.base, "sha256:another", layer.bundle_tag)  # depends on neither of them
    await build_runtime_layer(engine, third)
    container = await engine.create(
        f"patchwright-test-{os.getpid()}", image=second.content_tag, command=["true"], labels={}, host={}
    )
    await remove_superseded(engine, BASE, third.content_tag, grace=-1)
    assert await engine.find_image(layer.content_tag) is None
    assert await engine.find_image(second.content_tag) is not None
    await engine.remove(container)
    async with asyncio.timeout(60):  # a busy engine releases a container's image a little later
        while await engine.find_image(second.content_tag) is not None:
            await remove_superseded(engine, BASE, third.content_tag, grace=-1)
    assert await engine.find_image(third.content_tag) is not None


@pytest.mark.slow
async def test_a_layer_with_other_features_is_not_superseded(engine: Engine, layer: RuntimeLayer) -> None:
    await build_runtime_layer(engine, layer)
    other = RuntimeLayer(
        layer.base, layer.base_id, layer.bundle_tag, features={"kernel": layer.bundle_tag}
    )  # it has no such directory
    await engine.build(
        "a layer that says it has a plugin",
        {"Dockerfile": f'FROM {layer.content_tag}\nLABEL {FEATURES_LABEL}="kernel"\n'.encode()},
        other.tags,
    )
    await remove_superseded(engine, BASE, other.content_tag, grace=-1)
    assert await engine.find_image(layer.content_tag) is not None
    await remove_superseded(engine, BASE, layer.content_tag, grace=-1)
    assert await engine.find_image(other.content_tag) is not None


@pytest.mark.slow
async def test_a_feature_that_cannot_be_built_is_omitted_with_a_notice(
    engine: Engine, layer: RuntimeLayer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its build cannot reach the package index; the bundle that it needs exists already."""
    index = (
        os.environ.get("PATCHWRIGHT_PACKAGE_INDEX", DEFAULT_PACKAGE_INDEX).rstrip("/") + "//"
    )  # a separate tag
    settings = BuildSettings(ca_bundle=USED_CA, package_index=index, log_dir=tmp_path)
    usual = await ensure_runtime_layer(engine, BASE, settings)
    received: list[str] = []
    unreachable = replace(
        settings, features=("kernel",), on_notice=received.append, proxy="http://127.0.0.1:9"
    )
    made = await ensure_runtime_layer(engine, BASE, unreachable)
    assert made == usual == (made[0], ())
    (log,) = tmp_path.iterdir()
    assert received[0] == "Building the sandbox feature `kernel`, 1 of 1 (once) ..."
    assert received[1].startswith("NOTICE: the sandbox feature `kernel` cannot be built: ")
    assert received[1].endswith(f"(complete log: {log}). The sandbox runs without this feature.")
    assert "Connection refused" in received[1] and len(received) == 2
    assert "WARNING" not in {record.levelname for record in caplog.records}  # a terminal shows these, too
    source = await engine.find_image(BUNDLE_SOURCE_IMAGE)
    assert source is not None
    trusted = USED_CA.read_bytes() if USED_CA else None
    await engine.remove_image(Bundle(BUNDLE_SOURCE_IMAGE, source.id, trusted, index).tags[0])


@pytest.mark.slow
async def test_the_newest_layers_of_a_repository_and_recent_ones_stay(engine: Engine) -> None:
    repository = f"test-{os.getpid()}"
    tags = [f"{REPOSITORY_LAYERS}:test-{os.getpid()}-{each}" for each in range(MAX_LAYERS_PER_REPOSITORY + 3)]
    for tag in tags:  # all within the same second, the resolution of the engine's timestamps
        text = f'FROM {BUNDLE_SOURCE_IMAGE}\nLABEL {REPOSITORY_LABEL}="{repository}" one="{tag}"\n'
        await engine.build(tag, {"Dockerfile": text.encode()}, (tag,))

    async def left() -> set[str]:
        return {tag for tag in tags if await engine.find_image(tag) is not None}

    await remove_old_layers(engine, repository, tags[0])
    assert await left() == set(tags)  # all are recent: sandboxes may be about to start on them
    await remove_old_layers(engine, repository, tags[0], grace=-1)
    assert (
        tags[0] in await left()
        and MAX_LAYERS_PER_REPOSITORY <= len(await left()) <= MAX_LAYERS_PER_REPOSITORY + 1
    )
    for tag in await left():
        await engine.remove_image(tag)


async def test_a_build_that_fails_says_why_and_where_its_log_is(engine: Engine, tmp_path: Path) -> None:
    folder = {
        "Dockerfile": (
            f'FROM {BUNDLE_SOURCE_IMAGE}\nRUN printf "\\033[91mE: no such thing\\033[0m\\n" && false\n'
        ).encode()
    }
    with pytest.raises(ImageUnavailable) as failed:
        await engine.build("the thing", folder, (f"{BASE}-none",), log_dir=tmp_path / "builds")
    (log,) = (tmp_path / "builds").iterdir()
    assert str(failed.value) == f"the thing cannot be built: E: no such thing (complete log: {log})"
    assert "Step 2/2" in log.read_text()


@pytest.mark.slow
async def test_a_layer_removed_by_another_process_is_rebuilt(engine: Engine, layer: RuntimeLayer) -> None:
    sandboxes = DockerSandboxes(SandboxSpec(image=BASE, memory_mb=256), BuildSettings(ca_bundle=USED_CA))
    _, image = await sandboxes.prepare()
    for tag in (image, layer.readable_tag):
        await engine.remove_image(tag)
    assert await engine.find_image(image) is None
    async with sandboxes.open(f"again-{os.getpid()}") as sandbox:
        ran = await sandbox.act(RunShell(command="echo here"))
    assert isinstance(ran, ShellResult) and ran.output == "here\n"
    await sandboxes.close()
