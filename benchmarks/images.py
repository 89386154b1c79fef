"""Measures the cost of images: the runtime layer on a base image with Python and git, and a repository's
second issue.

The layer is built from nothing, including bundle and downloads, under another name of the base image. So is
each feature; a sandbox with all of them then starts as fast as one with none. The second issue is the start
of a sandbox from the repository's layer with its dependencies, minus that of an empty one. Peers, measured on
a Debian 12 machine with 2 cores, engine 20.10: swe-rex 1.4.0, OpenHands 1.58.2. No peer keeps a repository's
dependencies.
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
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.preparation.repo_setup import install_dependencies
from patchwright.resolver.settings.settings import RepoConfig
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.build_context import BASE_LABEL, Bundle, FeatureBundle, RuntimeLayer
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.repository_layer import REPOSITORY_LAYERS
from patchwright.runtime.docker.runtime_layer import BUNDLE_SOURCE_IMAGE, BuildSettings
from patchwright.runtime.features import ALL_FEATURES, SandboxFeature
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.sandbox import SandboxSpec

CERTIFICATES = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))
CA_BUNDLE = CERTIFICATES if CERTIFICATES.exists() else None
INDEX = os.environ.get("PATCHWRIGHT_PACKAGE_INDEX")
NAME = f"patchwright-benchmark-base:{os.getpid()}"
STARTS = 7
# Replaces a setup that downloads: only its result matters here, and it needs no network.
SETUP = "mkdir -p ~/dependencies && for i in $(seq 2000); do echo $i > ~/dependencies/$i; done"


def measure() -> list[Result]:
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    engine = await Engine.connect()
    kept_ids = {image.id for image in await engine.list_images(REPOSITORY_LAYERS)}
    try:
        seconds, seconds_again, megabytes, plugins = await _layer(engine)
        warm, cold = await _second_issue()
        none, every = await _starts()
    finally:
        await _clean(engine, kept_ids)
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
    """Returns seconds and 10^6 bytes of the layer from nothing, seconds to add other code of ours, and the
    features.
    """
    client = await asyncio.to_thread(docker.from_env)
    repository, _, tag = NAME.partition(":")
    client.api.tag(BUNDLE_SOURCE_IMAGE, repository, tag)
    base = await engine.find_image(NAME)
    assert base is not None
    trusted = CA_BUNDLE.read_bytes() if CA_BUNDLE else None
    # Another name of the usual image: its bundle is not the stored one, and no step is cached.
    files = Bundle(NAME, f"{base.id} {time.time()}", trusted, INDEX)
    started_at = time.perf_counter()
    await engine.build(files.description, files.files(), files.tags, network=True)
    layer = RuntimeLayer(NAME, base.id, files.tags[0], trusted, INDEX)
    await engine.build(layer.description, layer.files(), layer.tags)
    seconds = time.perf_counter() - started_at
    built = await engine.find_image(layer.content_tag)
    assert built is not None
    other = RuntimeLayer(
        NAME, base.id, files.tags[0], trusted, INDEX, code={**layer.code, "new/app/runtime/x.py": b"# other"}
    )
    started_at = time.perf_counter()
    await engine.build(other.description, other.update_files(built.id, 1), other.tags)
    again = time.perf_counter() - started_at
    plugins = [each for plugin in ALL_FEATURES for each in await _plugin(engine, files, plugin)]
    client.images.remove(files.tags[0])
    client.close()
    return seconds, again, (built.size - base.size) / 1e6, plugins


async def _plugin(engine: Engine, bundle: Bundle, plugin: SandboxFeature) -> tuple[Result, Result]:
    own = FeatureBundle(
        bundle.source, bundle.source_id, bundle.ca_bundle, INDEX, feature=plugin, bundle_tag=bundle.tags[0]
    )
    started_at = time.perf_counter()
    await engine.build(own.description, own.files(), own.tags, network=True)
    seconds = time.perf_counter() - started_at
    image, below = await engine.find_image(own.tags[0]), await engine.find_image(bundle.tags[0])
    assert image is not None and below is not None
    await engine.remove_image(own.tags[0])
    return (
        Result(name=f"plugin_{plugin}_seconds", value=seconds, unit="s", floor=None, target=None),
        Result(
            name=f"plugin_{plugin}_megabytes",
            value=(image.size - below.size) / 1e6,
            unit="MB",
            floor=None,
            target=None,
        ),
    )


async def _starts() -> tuple[float, float]:
    """Returns median seconds from the request for a sandbox to its first shell result: without features, and
    with all.
    """
    kinds = [
        DockerSandboxes(SandboxSpec(), BuildSettings(plugins, CA_BUNDLE, INDEX))
        for plugins in ((), ALL_FEATURES)
    ]
    timings: tuple[list[float], list[float]] = [], []
    for sandboxes in kinds:
        await sandboxes.prepare()
    for _ in range(STARTS):
        for sandboxes, times in zip(kinds, timings, strict=True):
            times.append(await _first_result(sandboxes, "true", time.perf_counter()))
    for sandboxes in kinds:
        await sandboxes.close()
    return statistics.median(timings[0]), statistics.median(timings[1])


async def _second_issue() -> tuple[float, float]:
    """Returns median seconds from the request for a sandbox to its first shell result: with the layer, and
    empty.
    """
    sandboxes = DockerSandboxes(SandboxSpec(), BuildSettings(ca_bundle=CA_BUNDLE, package_index=INDEX))
    await sandboxes.prepare()
    with TemporaryDirectory() as directory:
        path = Path(directory) / "repository"
        git = ["git", "-C", str(path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
        for command in (
            ["git", "init", "-q", str(path)],
            [*git, "commit", "-q", "--allow-empty", "-m", "x"],
        ):
            await asyncio.to_thread(subprocess.run, command, check=True)
        async with WorkspaceFactory(Path(directory) / "cache").local(path) as workspace:

            async def start() -> float:
                started_at = time.perf_counter()
                ready, prepared, _ = await install_dependencies(
                    workspace,
                    RepoConfig(setup=SETUP),
                    sandboxes,
                    name=f"benchmark-{os.getpid()}",
                    source=directory,
                    timeout=600,
                )
                assert prepared is not None and prepared.problem is None, prepared
                return await _first_result(ready, "ls ~/dependencies/2000", started_at)

            await start()
            warm = [await start() for _ in range(STARTS)]
    cold = [await _first_result(sandboxes, "true", time.perf_counter()) for _ in range(STARTS)]
    await sandboxes.close()
    return statistics.median(warm), statistics.median(cold)


async def _first_result(sandboxes: object, command: str, started_at: float) -> float:
    assert isinstance(sandboxes, DockerSandboxes)
    async with sandboxes.open(f"benchmark-{os.getpid()}") as sandbox:
        ran = await sandbox.act(RunShell(command=command))
        assert isinstance(ran, ShellResult) and ran.exit_code == 0, ran
        return time.perf_counter() - started_at


async def _clean(engine: Engine, kept_ids: set[str]) -> None:
    for image in [
        *await engine.list_images(REPOSITORY_LAYERS),
        *await engine.list_images("patchwright-runtime", f"{BASE_LABEL}={NAME}"),
    ]:
        for tag in image.tags if image.id not in kept_ids else ():
            await engine.remove_image(tag)
    await engine.remove_image(NAME)


if __name__ == "__main__":
    report(measure())
