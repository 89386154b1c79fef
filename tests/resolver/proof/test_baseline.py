"""Baseline runs: executed once, cached, and ignored when damaged."""

import asyncio
import multiprocessing
import os
from pathlib import Path

import pytest

from patchwright.resolver.domain import TestRun
from patchwright.resolver.proof.baseline import MAX_ENTRIES, BaselineCache, BaselineRuns, CachedBaseline
from patchwright.resolver.suites.suite import Suite
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from tests.resolver.git_repository import HOST_ENVIRONMENT
from tests.resolver.patch_verifier import BUG, FAILING, PYTEST

KEY = "0" * 64
RUN = TestRun(command="c", results={"t.py::a": "passed"}, exit_code=0, seconds=1.0, output="1 passed")
ENTRY = CachedBaseline(key=KEY, run=RUN, read_files=("t.py",))


class NamedSandboxes(LocalSandboxes):
    """Sandboxes with a content digest, as those of an image have."""

    name: str | None = "image-1"

    async def content_digest(self) -> str | None:
        return self.name


@pytest.fixture
def sandboxes(tmp_path: Path) -> NamedSandboxes:
    return NamedSandboxes(tmp_path / "sandboxes", HOST_ENVIRONMENT)


@pytest.fixture
def baselines(tmp_path: Path) -> BaselineCache:
    return BaselineCache(tmp_path / "baselines")


@pytest.mark.slow
async def test_a_baseline_runs_once_and_is_cached_for_the_next_run(
    open_verifier, sandboxes, baselines, tmp_path
) -> None:
    ran = tmp_path / "ran"
    counting = f"open({str(ran)!r}, 'a').write('x')\n"
    async with open_verifier(
        {"calc.py": BUG, "tests/test_calc.py": FAILING, "conftest.py": counting}
    ) as verifier:

        async def base(suite: Suite = PYTEST, seconds: int = 60) -> TestRun:
            async with BaselineRuns(verifier.workspace, sandboxes, "run", seconds, baselines) as bases:
                first = await bases.start(suite)
                assert bases.is_done(suite) and await bases.start(suite) == first
                return first

        first = await base()
        assert (first.passed_count, first.failed_count, ran.read_text()) == (1, 1, "x")
        assert (await base(), ran.read_text()) == (first, "x")
        await base(PYTEST.model_copy(update={"command": "python3 -m pytest -q"}))
        assert ran.read_text() == "xx"  # another command
        await base(seconds=59)
        sandboxes.name = "image-2"
        await base()
        assert ran.read_text() == "xxxx"  # another timeout, another setup
        sandboxes.name = None
        await base()
        await base()
        assert ran.read_text() == "xxxxxx"  # the contents of this machine are unknown


async def test_an_invalid_test_run_is_not_cached(open_verifier, sandboxes, baselines, tmp_path) -> None:
    async with (
        open_verifier({"calc.py": BUG}) as verifier,
        BaselineRuns(verifier.workspace, sandboxes, "run", 60, baselines) as bases,
    ):
        assert (await bases.start(PYTEST)).problem
    assert not (tmp_path / "baselines").exists()


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff" * 9, b'{"key": "x", "run": {}}', b"null"])
async def test_a_damaged_cache_entry_is_ignored_and_replaced(baselines, tmp_path, damage: bytes) -> None:
    await baselines.put(ENTRY)
    assert await baselines.get(KEY) == ENTRY
    (tmp_path / "baselines" / f"{KEY}.json").write_bytes(damage)
    assert await baselines.get(KEY) is None
    await baselines.put(ENTRY)
    assert await baselines.get(KEY) == ENTRY


async def test_a_cache_entry_with_another_key_is_ignored(baselines, tmp_path) -> None:
    await baselines.put(ENTRY)
    (tmp_path / "baselines" / f"{KEY}.json").rename(tmp_path / "baselines" / f"{'1' * 64}.json")
    assert await baselines.get("1" * 64) is None


async def test_the_most_recently_used_entries_are_kept(baselines, tmp_path) -> None:
    for number in range(MAX_ENTRIES + 5):
        await baselines.put(ENTRY.model_copy(update={"key": f"{number:064}"}))
        if number == MAX_ENTRIES - 1:
            assert await baselines.get(f"{0:064}")  # used again
    assert len(list((tmp_path / "baselines").iterdir())) == MAX_ENTRIES
    assert await baselines.get(f"{0:064}")
    assert await baselines.get(f"{1:064}") is None


async def test_a_full_disk_only_disables_the_cache(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    baselines = BaselineCache(tmp_path / "file" / "baselines")
    await baselines.put(ENTRY)
    assert await baselines.get(KEY) is None


def write_often(directory: str) -> None:
    async def work() -> None:
        baselines = BaselineCache(Path(directory))
        for number in range(40):
            await baselines.put(ENTRY)
            assert await baselines.get(KEY) == ENTRY, number

    asyncio.run(work())


@pytest.mark.slow
def test_processes_share_the_baseline_cache(tmp_path) -> None:
    several = multiprocessing.get_context("spawn")
    workers = [several.Process(target=write_often, args=(str(tmp_path / "shared"),)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert [path.name for path in (tmp_path / "shared").iterdir()] == [f"{KEY}.json"]


@pytest.mark.slow
async def test_flaky_baseline_tests_are_marked_if_they_cannot_be_selected(
    open_verifier, sandboxes, tmp_path
) -> None:
    moody = (
        f"import os\n\n\ndef test_moody():\n    mark = {str(tmp_path / 'mark')!r}\n"
        "    there = os.path.exists(mark)\n    open(mark, 'w')\n    assert there\n"
    )
    suite = Suite(
        command="(python3 -m pytest)", runner="pytest", command_reason=""
    )  # parentheses, so that nothing can be appended
    files = {"calc.py": BUG, "test_calc.py": FAILING, "test_moody.py": moody}
    async with (
        open_verifier(files) as verifier,
        BaselineRuns(verifier.workspace, sandboxes, "run", 60) as bases,
    ):
        run = await bases.start(suite)
    assert run.flaky == ("test_moody.py::test_moody",)
    assert run.results["test_calc.py::test_add"] == "failed"


@pytest.mark.slow
@pytest.mark.docker
async def test_a_baseline_in_an_image_is_cached_by_its_content_digest(
    open_verifier, docker_sandboxes, baselines, tmp_path
) -> None:
    suite = Suite(command="date +%s.%N", runner="none", command_reason="")
    name = f"baseline-{os.getpid()}"
    contents, runs, rounds = None, [], 0
    async with open_verifier({"a": ""}) as verifier:
        # Another process may rebuild the image.
        while contents != (contents := await docker_sandboxes.content_digest()):
            runs, rounds = [], rounds + 1
            for _ in range(2):
                async with BaselineRuns(verifier.workspace, docker_sandboxes, name, 60, baselines) as bases:
                    runs.append(await bases.start(suite))
    assert contents is not None
    assert runs[0] == runs[1] and runs[0].exit_code == 0
    kept = [path.suffix for path in (tmp_path / "baselines").iterdir()]
    assert set(kept) == {".json"} and len(kept) <= rounds
