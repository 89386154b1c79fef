"""What images cost: the runtime layer on a base image with Python and git, and a repository's second issue.

The layer is built from nothing, bundle and downloads included, under another name of the base image, and so is each
plugin; a sandbox with all of them then starts as soon as one with none. The second issue is the start of a sandbox
from the repository's layer, its dependencies in it, less that of an empty one. Peers, measured on a Debian 12 machine
with 2 cores, engine 20.10: swe-rex 1.4.0, OpenHands 1.58.2. No peer keeps a repository's dependencies.
"""

import asyncio
import os
import statistics
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import docker

from benchmarks.measure import Result, report
from resolver.preparing.setup import with_dependencies
from resolver.settings.settings import RepoConfig
from resolver.workspace import Workspaces
from runtime.actions import RunShell
from runtime.docker.docker import DockerSandboxes
from runtime.docker.engine import Engine
from runtime.docker.image import BASE, Bundle, Layer, PluginBundle
from runtime.docker.layers import SOURCE
from runtime.docker.repository_layer import LAYERS
from runtime.observations import Ran
from runtime.plugins import PLUGINS, Plugin
from runtime.sandbox import SandboxSpec

CERTIFICATES = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))
CA_BUNDLE = CERTIFICATES if CERTIFICATES.exists() else None
INDEX = os.environ.get("PATCHWRIGHT_PACKAGE_INDEX")
NAME = f"patchwright-benchmark-base:{os.getpid()}"
STARTS = 7
# Stands for a set-up that downloads: what it leaves is what counts here, and it needs no network.
SETUP = "mkdir -p ~/dependencies && for i in $(seq 2000); do echo $i > ~/dependencies/$i; done"


def measure() -> list[Result]:
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    engine = await Engine.connect()
    kept = {image.id for image in await engine.images(LAYERS)}
    try:
        seconds, seconds_again, megabytes, plugins = await _layer(engine)
        warm, cold = await _second_issue()
        none, every = await _starts()
    finally:
        await _clean(engine, kept)
        await engine.close()
    return [
        *plugins,
        Result(name="start_with_all_plugins", value=every, unit="s", floor=none, target=0.3),
        Result(
            name="layer_seconds",
            value=seconds,
            unit="s",
            floor=None,
            peers={"swe-rex": 7, "OpenHands": 80},
            target=10,
        ),
        Result(name="layer_update_seconds", value=seconds_again, unit="s", floor=None, target=None),
        Result(
            name="layer_megabytes",
            value=megabytes,
            unit="MB",
            floor=None,
            peers={"swe-rex": 55, "OpenHands": 748},
            target=55,
        ),
        Result(name="second_issue_over_empty", value=warm - cold, unit="s", floor=0, target=2),
        Result(name="second_issue_start", value=warm, unit="s", floor=cold, target=None),
    ]


async def _layer(engine: Engine) -> tuple[float, float, float, list[Result]]:
    """Seconds and 10^6 bytes of the layer from nothing; seconds to put other code of ours on it; the plugins."""
    client = await asyncio.to_thread(docker.from_env)
    repository, _, tag = NAME.partition(":")
    client.api.tag(SOURCE, repository, tag)
    base = await engine.image(NAME)
    assert base is not None
    trusted = CA_BUNDLE.read_bytes() if CA_BUNDLE else None
    # Another name of the usual image: its bundle is not the one that is kept, and no step is in a cache.
    files = Bundle(NAME, f"{base.id} {time.time()}", trusted, INDEX)
    begun = time.perf_counter()
    await engine.build(files.what, files.files(), files.tags, network=True)
    layer = Layer(NAME, base.id, files.tags[0], trusted, INDEX)
    await engine.build(layer.what, layer.files(), layer.tags)
    seconds = time.perf_counter() - begun
    built = await engine.image(layer.exact_tag)
    assert built is not None
    other = Layer(
        NAME, base.id, files.tags[0], trusted, INDEX, code={**layer.code, "new/app/runtime/x.py": b"# other"}
    )
    begun = time.perf_counter()
    await engine.build(other.what, other.update(built.id, 1), other.tags)
    again = time.perf_counter() - begun
    plugins = [each for plugin in PLUGINS for each in await _plugin(engine, files, plugin)]
    client.images.remove(files.tags[0])
    client.close()
    return seconds, again, (built.size - base.size) / 1e6, plugins


async def _plugin(engine: Engine, bundle: Bundle, plugin: Plugin) -> tuple[Result, Result]:
    own = PluginBundle(
        bundle.source, bundle.source_id, bundle.ca_bundle, INDEX, plugin=plugin, bundle=bundle.tags[0]
    )
    begun = time.perf_counter()
    await engine.build(own.what, own.files(), own.tags, network=True)
    seconds = time.perf_counter() - begun
    made, below = await engine.image(own.tags[0]), await engine.image(bundle.tags[0])
    assert made is not None and below is not None
    await engine.remove_image(own.tags[0])
    return (
        Result(name=f"plugin_{plugin}_seconds", value=seconds, unit="s", floor=None, target=None),
        Result(
            name=f"plugin_{plugin}_megabytes",
            value=(made.size - below.size) / 1e6,
            unit="MB",
            floor=None,
            target=None,
        ),
    )


async def _starts() -> tuple[float, float]:
    """Median seconds from asking for a sandbox to its first shell result: without plugins, and with all."""
    kinds = [
        DockerSandboxes(SandboxSpec(), ca_bundle=CA_BUNDLE, package_index=INDEX, plugins=plugins)
        for plugins in ((), PLUGINS)
    ]
    taken: tuple[list[float], list[float]] = [], []
    for sandboxes in kinds:
        await sandboxes.prepare()
    for _ in range(STARTS):
        for sandboxes, times in zip(kinds, taken, strict=True):
            times.append(await _first_result(sandboxes, "true", time.perf_counter()))
    for sandboxes in kinds:
        await sandboxes.close()
    return statistics.median(taken[0]), statistics.median(taken[1])


async def _second_issue() -> tuple[float, float]:
    """Median seconds from asking for a sandbox to its first shell result: with the layer, and empty."""
    sandboxes = DockerSandboxes(SandboxSpec(), ca_bundle=CA_BUNDLE, package_index=INDEX)
    await sandboxes.prepare()
    with TemporaryDirectory() as place:
        path = Path(place) / "repository"
        git = ["git", "-C", str(path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
        for command in (
            ["git", "init", "-q", str(path)],
            [*git, "commit", "-q", "--allow-empty", "-m", "x"],
        ):
            await asyncio.to_thread(subprocess.run, command, check=True)
        async with Workspaces(Path(place) / "cache").local(path) as workspace:

            async def start() -> float:
                begun = time.perf_counter()
                ready, prepared, _ = await with_dependencies(
                    workspace,
                    RepoConfig(setup=SETUP),
                    sandboxes,
                    name=f"benchmark-{os.getpid()}",
                    source=place,
                    seconds=600,
                )
                assert prepared is not None and prepared.problem is None, prepared
                return await _first_result(ready, "ls ~/dependencies/2000", begun)

            await start()
            warm = [await start() for _ in range(STARTS)]
    cold = [await _first_result(sandboxes, "true", time.perf_counter()) for _ in range(STARTS)]
    await sandboxes.close()
    return statistics.median(warm), statistics.median(cold)


async def _first_result(sandboxes: object, command: str, begun: float) -> float:
    assert isinstance(sandboxes, DockerSandboxes)
    async with sandboxes.open(f"benchmark-{os.getpid()}") as sandbox:
        ran = await sandbox.act(RunShell(command=command))
        assert isinstance(ran, Ran) and ran.exit_code == 0, ran
        return time.perf_counter() - begun


async def _clean(engine: Engine, kept: set[str]) -> None:
    for image in [
        *await engine.images(LAYERS),
        *await engine.images("patchwright-runtime", f"{BASE}={NAME}"),
    ]:
        for tag in image.tags if image.id not in kept else ():
            await engine.remove_image(tag)
    await engine.remove_image(NAME)


if __name__ == "__main__":
    report(measure())
