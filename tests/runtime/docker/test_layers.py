"""The three levels of reuse and the removal of what they supersede, on a real engine."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import docker
import pytest

from runtime.actions import RunShell
from runtime.docker.docker import DockerSandboxes
from runtime.docker.engine import Engine
from runtime.docker.image import GENERATION, INDEX, OLDEST, WITH, Bundle, Layer
from runtime.docker.layers import SOURCE, make, ready_layer, remove_superseded
from runtime.docker.repository_layer import KEPT_EACH, LAYERS, REPOSITORY_LABEL, remove_old
from runtime.errors import ImageUnavailable
from runtime.observations import Ran
from runtime.sandbox import SandboxSpec
from tests.runtime.conftest import CA_BUNDLE

pytestmark = pytest.mark.docker
USED_CA = CA_BUNDLE if CA_BUNDLE.exists() else None
BASE = f"localhost:5000/patchwright/test-layers:{os.getpid()}"


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = await Engine.connect()
    yield engine
    for image in await engine.images("patchwright-runtime", f"io.patchwright.base={BASE}"):
        for tag in image.tags:
            await engine.remove_image(tag)
    await engine.remove_image(BASE)
    await engine.close()


@pytest.fixture
async def layer(engine: Engine) -> Layer:
    """The layer on a base image that nobody else uses, its bundle made."""
    client = docker.from_env()
    client.api.tag(SOURCE, *BASE.rsplit(":", 1))
    client.close()
    await ready_layer(
        engine,
        SOURCE,
        ca_bundle=USED_CA,
        package_index=os.environ.get("PATCHWRIGHT_PACKAGE_INDEX"),
    )
    (bundle, *_) = await engine.images("patchwright-bundle")
    base = await engine.image(BASE)
    assert base is not None
    return Layer(BASE, base.id, bundle.tags[0])


def with_code(layer: Layer, comment: str) -> Layer:
    code = {**layer.code, "new/app/runtime/comment.py": f"# {comment}\n".encode()}
    return Layer(layer.base, layer.base_id, layer.bundle, code=code)


@pytest.mark.slow
async def test_the_same_folder_is_reused_other_code_updates_and_another_base_is_built(
    engine: Engine, layer: Layer
) -> None:
    assert await make(engine, layer) == "built"
    assert await make(engine, layer) == "reused"

    changed = with_code(layer, "changed")
    assert await make(engine, changed) == "updated"
    assert await make(engine, changed) == "reused"
    first, second = await engine.image(layer.exact_tag), await engine.image(changed.exact_tag)
    generic = await engine.image(layer.generic_tag)
    assert first and second and generic
    assert (second.id, second.labels[GENERATION]) == (generic.id, "1")
    assert second.size - first.size < 3_000_000  # bytes: our code, and nothing of the foundation again

    moved = Layer(layer.base, "sha256:another", layer.bundle)
    assert await make(engine, moved) == "built"


@pytest.mark.slow
async def test_updates_do_not_pile_up_for_ever(engine: Engine, layer: Layer) -> None:
    await make(engine, layer)
    image = await engine.image(layer.exact_tag)
    assert image is not None
    many = f'FROM {image.id}\nLABEL {GENERATION}="{OLDEST}"\n'.encode()
    await engine.build("a layer with many updates", {"Dockerfile": many}, (layer.generic_tag,))
    assert await make(engine, with_code(layer, "one too many")) == "built"


@pytest.mark.slow
async def test_what_is_superseded_is_removed_and_what_is_used_stays(engine: Engine, layer: Layer) -> None:
    await make(engine, layer)
    second = with_code(layer, "second")
    await make(engine, second)
    await remove_superseded(engine, BASE, second.exact_tag)
    assert await engine.image(layer.exact_tag) is not None  # it is young: somebody may be about to use it

    third = Layer(layer.base, "sha256:another", layer.bundle)  # stands on neither of them
    await make(engine, third)
    container = await engine.create(
        f"patchwright-test-{os.getpid()}", image=second.exact_tag, command=["true"], labels={}, host={}
    )
    await remove_superseded(engine, BASE, third.exact_tag, spared=-1)
    assert await engine.image(layer.exact_tag) is None
    assert await engine.image(second.exact_tag) is not None
    await engine.remove(container)
    async with asyncio.timeout(10):  # a busy engine lets go of a container's image a little later
        while await engine.image(second.exact_tag) is not None:
            await remove_superseded(engine, BASE, third.exact_tag, spared=-1)
    assert await engine.image(third.exact_tag) is not None


async def test_a_layer_with_other_plugins_is_not_superseded(engine: Engine, layer: Layer) -> None:
    await make(engine, layer)
    other = Layer(
        layer.base, layer.base_id, layer.bundle, plugins={"kernel": layer.bundle}
    )  # it has no such folder
    await engine.build(
        "a layer that says it has a plugin",
        {"Dockerfile": f'FROM {layer.exact_tag}\nLABEL {WITH}="kernel"\n'.encode()},
        other.tags,
    )
    await remove_superseded(engine, BASE, other.exact_tag, spared=-1)
    assert await engine.image(layer.exact_tag) is not None
    await remove_superseded(engine, BASE, layer.exact_tag, spared=-1)
    assert await engine.image(other.exact_tag) is not None


@pytest.mark.slow
async def test_a_plugin_that_cannot_be_made_is_left_out_and_told(
    engine: Engine, layer: Layer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its build finds no way to the package index: the bundle that it needs is there already, from better days."""
    index = os.environ.get("PATCHWRIGHT_PACKAGE_INDEX", INDEX).rstrip("/") + "//"  # nobody else's name for it
    how = {"ca_bundle": USED_CA, "package_index": index, "logs": tmp_path}
    usual = await ready_layer(engine, BASE, **how)
    told: list[str] = []
    made = await ready_layer(
        engine, BASE, **how, plugins=("kernel",), notice=told.append, proxy="http://127.0.0.1:9"
    )
    assert made == usual == (made[0], ())
    (log,) = tmp_path.iterdir()
    assert told[0] == "Making the sandbox's plugin `kernel`, 1 of 1 (once) ..."
    assert told[1].startswith("NOTICE: the plugin kernel cannot be built: ")
    assert told[1].endswith(f"(the whole log: {log}). The sandbox goes without it.")
    assert "Connection refused" in told[1] and len(told) == 2
    assert "WARNING" not in {record.levelname for record in caplog.records}  # a terminal shows these, too
    source = await engine.image(SOURCE)
    assert source is not None
    trusted = USED_CA.read_bytes() if USED_CA else None
    await engine.remove_image(Bundle(SOURCE, source.id, trusted, index).tags[0])


async def test_a_repositorys_newest_layers_stay_and_so_does_what_was_just_made(engine: Engine) -> None:
    repository = f"test-{os.getpid()}"
    tags = [f"{LAYERS}:test-{os.getpid()}-{each}" for each in range(KEPT_EACH + 3)]
    for tag in tags:  # all within the same seconds, which is all that the engine tells of their order
        text = f'FROM {SOURCE}\nLABEL {REPOSITORY_LABEL}="{repository}" one="{tag}"\n'
        await engine.build(tag, {"Dockerfile": text.encode()}, (tag,))

    async def left() -> set[str]:
        return {tag for tag in tags if await engine.image(tag) is not None}

    await remove_old(engine, repository, tags[0])
    assert await left() == set(tags)  # all are young: somebody may be about to use them
    await remove_old(engine, repository, tags[0], spared=-1)
    assert tags[0] in await left() and KEPT_EACH <= len(await left()) <= KEPT_EACH + 1
    for tag in await left():
        await engine.remove_image(tag)


async def test_a_build_that_fails_says_why_and_where_its_log_is(engine: Engine, tmp_path: Path) -> None:
    folder = {
        "Dockerfile": f'FROM {SOURCE}\nRUN printf "\\033[91mE: no such thing\\033[0m\\n" && false\n'.encode()
    }
    with pytest.raises(ImageUnavailable) as failed:
        await engine.build("the thing", folder, (f"{BASE}-none",), logs=tmp_path / "builds")
    (log,) = (tmp_path / "builds").iterdir()
    assert str(failed.value) == f"the thing cannot be built: E: no such thing (the whole log: {log})"
    assert "Step 2/2" in log.read_text()


@pytest.mark.slow
async def test_a_layer_that_another_process_has_removed_is_made_again(engine: Engine, layer: Layer) -> None:
    sandboxes = DockerSandboxes(SandboxSpec(image=BASE, memory_mb=256), ca_bundle=USED_CA)
    _, image = await sandboxes.prepare()
    for tag in (image, layer.generic_tag):
        await engine.remove_image(tag)
    assert await engine.image(image) is None
    async with sandboxes.open(f"again-{os.getpid()}") as sandbox:
        ran = await sandbox.act(RunShell(command="echo here"))
    assert isinstance(ran, Ran) and ran.output == "here\n"
    await sandboxes.close()
