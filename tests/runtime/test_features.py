"""Sandbox features: their files, messages for missing ones, and all of them at work in a container."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.runtime import skills
from patchwright.runtime.actions import RunPython, RunShell, SearchCode, UseBrowser, ViewFile, WriteBytes
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.features import ALL_FEATURES, SandboxFeature, SandboxFeatures
from patchwright.runtime.observations import (
    ActionFailure,
    CellResult,
    PageSnapshot,
    ShellResult,
    SnapshotOptions,
    TextResult,
    WriteResult,
)
from patchwright.runtime.sandbox import Sandbox
from tests.runtime import sample_documents
from tests.runtime.base_images import base_image

Make = Callable[..., DockerSandboxes]
SERVE = "/opt/patchwright/python/bin/python3 -m http.server 8765 --bind 127.0.0.1 >/dev/null 2>&1 &"
PAGE = b"<!doctype html><title>T</title><h1>Hello</h1><button>Press me</button>"


def test_a_feature_is_available_if_its_packages_are(tmp_path: Path) -> None:
    plugins = SandboxFeatures(tmp_path)
    (tmp_path / "kernel" / "lib").mkdir(parents=True)
    assert [plugin for plugin in ALL_FEATURES if plugins.has(plugin)] == ["kernel"]
    assert plugins.packages("kernel") == tmp_path / "kernel" / "lib"


def test_each_version_of_python_has_its_own_kernel(tmp_path: Path) -> None:
    (tmp_path / "kernel" / "cp39").mkdir(parents=True)
    assert SandboxFeatures(tmp_path).kernel_packages((3, 9)) == tmp_path / "kernel" / "cp39"
    assert SandboxFeatures(tmp_path).kernel_packages((3, 8)) is None
    assert SandboxFeatures().kernel_packages((3, 9)) is None


def test_chromium_is_the_features_or_the_systems(tmp_path: Path) -> None:
    program = tmp_path / "browser" / "bin" / "chromium"
    assert SandboxFeatures(tmp_path).chromium_program("/usr/bin") is None
    program.parent.mkdir(parents=True)
    program.touch()
    assert SandboxFeatures(tmp_path).chromium_program() == str(program)

    assert SandboxFeatures().chromium_program(str(tmp_path)) is None
    (tmp_path / "google-chrome").touch(0o755)
    assert SandboxFeatures().chromium_program(str(tmp_path)) == str(tmp_path / "google-chrome")


@pytest.mark.parametrize("plugin", ALL_FEATURES)
def test_a_missing_feature_is_reported_with_its_setting(plugin: str, tmp_path: Path) -> None:
    assert f"pip install patchwright[{plugin}]" in SandboxFeatures().missing_message(plugin)
    assert "setting `sandbox_features`" in SandboxFeatures(tmp_path).missing_message(plugin)


async def sh(sandbox: Sandbox, command: str) -> str:
    ran = await sandbox.act(RunShell(command=command, timeout=60))
    assert isinstance(ran, ShellResult) and ran.exit_code == 0, ran
    return ran.output


async def all_work(sandbox: Sandbox, version: str, place: Path) -> None:
    """Use a cell, a document, an outline and a page. `version`: of the Python that runs the cell."""
    cell = "import sys; kept = 6 * 7; print(*sys.version_info[:2], sep='.')"
    ran = await sandbox.act(RunPython(code=cell))
    assert isinstance(ran, CellResult) and (ran.output, ran.ok) == (f"{version}\n", True), ran
    again = await sandbox.act(RunPython(code="import ssl, sqlite3; kept"))
    assert isinstance(again, CellResult) and "42" in again.output and again.ok, again

    for name, content in (
        ("paper.pdf", sample_documents.pdf(place / "paper.pdf", "Hello from a page").read_bytes()),
        ("index.html", PAGE),
    ):
        assert isinstance(await sandbox.act(WriteBytes(path=name, content=content)), WriteResult)
    result = await sandbox.act(ViewFile(path="paper.pdf"))
    assert isinstance(result, TextResult) and "Hello from a page" in result.text, result

    for name, source, outlined in (
        ("a.rs", b"impl Cart {\n    fn total() {}\n}\n", "rust]\n1-3: impl Cart {\n2:   fn total() {}"),
        (
            "a.cpp",
            b"namespace n {\nint f() { return 1; }\n}\n",
            "cpp]\n1-3: namespace n {\n2:   int f() { return 1; }",
        ),
    ):
        assert isinstance(await sandbox.act(WriteBytes(path=name, content=source)), WriteResult)
        output = await sandbox.act(SearchCode(what="outline", path=name))
        assert isinstance(output, TextResult) and output.text == f"[{name}, 3 lines; {outlined}", output

    await sh(sandbox, SERVE)
    look = SnapshotOptions(screenshot=True)
    page = await sandbox.act(
        UseBrowser(code="goto('http://localhost:8765/')", allowed_calls=("goto",), snapshot=look)
    )
    assert isinstance(page, PageSnapshot) and page.error is None, page
    assert "button 'Press me'" in page.tree
    assert page.screenshot is not None


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(600)  # seconds; the first run builds each feature
async def test_every_feature_works_in_a_sandbox(docker_sandboxes: Make, tmp_path: Path) -> None:
    sandboxes = docker_sandboxes(memory_mb=2048, plugins=ALL_FEATURES)
    async with sandboxes.open(f"plugins-{os.getpid()}") as sandbox:
        assert sandboxes.features == ALL_FEATURES
        await all_work(sandbox, "3.11", tmp_path)
    await sandboxes.close()


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("base", "version"), [("trixie", "3.13"), ("bullseye", "3.9"), ("bare", "3.11"), ("musl", "3.11")]
)
async def test_every_feature_works_on_any_base_image(
    base: str, version: str, docker_sandboxes: Make, tmp_path: Path
) -> None:
    sandboxes = docker_sandboxes(image=base_image(base), memory_mb=2048, plugins=ALL_FEATURES)
    async with sandboxes.open(f"plugins-{base}-{os.getpid()}") as sandbox:
        await all_work(sandbox, version, tmp_path)
    await sandboxes.close()


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("plugins", "importable"), [(("kernel",), False), (("kernel", "documents"), True)])
async def test_the_configured_features_decide_which_skills_can_be_imported(
    plugins: tuple[SandboxFeature, ...], importable: bool, docker_sandboxes: Make
) -> None:
    sandboxes = docker_sandboxes(memory_mb=2048, plugins=plugins)
    async with sandboxes.open(f"skills-{len(plugins)}-{os.getpid()}") as sandbox:
        for name in skills.__all__:
            imported = await sandbox.act(RunPython(code=f"from agentskills import {name}"))
            assert isinstance(imported, CellResult)
            assert imported.ok == (importable or name not in skills.NEED_DOCUMENTS), imported.output
    await sandboxes.close()


@pytest.mark.docker
async def test_a_sandbox_without_features_names_the_setting(docker_sandboxes: Make) -> None:
    sandboxes = docker_sandboxes()
    async with sandboxes.open(f"none-{os.getpid()}") as sandbox:
        for action in (
            RunPython(code="1"),
            UseBrowser(code="noop()", allowed_calls=("noop",)),
        ):
            result = await sandbox.act(action)
            assert isinstance(result, ActionFailure) and result.reason == "missing"
            assert "the operator's setting `sandbox_features`" in result.message
        source = b"class Cart:\n    async def total(self):\n        return 1\n"
        assert isinstance(await sandbox.act(WriteBytes(path="a.py", content=source)), WriteResult)
        output = await sandbox.act(SearchCode(query="total", what="definitions"))
        assert isinstance(output, TextResult) and output.text == (
            "a.py:2: async def total(self):\n\n[1 definition in 1 file]\n"
            "[there is no parser for .py files, so some results may be wrong or missing]"
        )
    await sandboxes.close()
