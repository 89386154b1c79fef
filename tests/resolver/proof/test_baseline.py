"""What is known of the tests at base: run once, remembered, and never believed when it is damaged."""

import asyncio
import multiprocessing
import os
from pathlib import Path

import pytest

from resolver.domain import SuiteRun
from resolver.proof.baseline import KEPT, Baselines, Bases
from resolver.suites.suite import Suite
from runtime.local import LocalSandboxes
from tests.resolver.proofs import BUG, FAILING, PYTEST
from tests.resolver.repositories import HOST

KEY = "0" * 64
RUN = SuiteRun(command="c", results={"t.py::a": "passed"}, exit_code=0, seconds=1.0, output="1 passed")


class Named(LocalSandboxes):
    """Sandboxes whose contents have a name, as those of an image have."""

    name: str | None = "image-1"

    async def contents(self) -> str | None:
        return self.name


@pytest.fixture
def sandboxes(tmp_path: Path) -> Named:
    return Named(tmp_path / "sandboxes", HOST)


@pytest.fixture
def baselines(tmp_path: Path) -> Baselines:
    return Baselines(tmp_path / "baselines")


async def test_a_suite_is_run_once_and_remembered_for_the_next_run(
    proven, sandboxes, baselines, tmp_path
) -> None:
    ran = tmp_path / "ran"
    counting = f"open({str(ran)!r}, 'a').write('x')\n"
    async with proven({"calc.py": BUG, "tests/test_calc.py": FAILING, "conftest.py": counting}) as proof:

        async def base(suite: Suite = PYTEST, seconds: int = 60) -> SuiteRun:
            async with Bases(proof.workspace, sandboxes, "run", seconds, baselines) as bases:
                first = await bases.begin(suite)
                assert bases.is_known(suite) and await bases.begin(suite) == first
                return first

        first = await base()
        assert (first.passed, first.failed, ran.read_text()) == (1, 1, "x")
        assert (await base(), ran.read_text()) == (first, "x")
        await base(PYTEST.model_copy(update={"command": "python3 -m pytest -q"}))
        assert ran.read_text() == "xx"  # another command
        await base(seconds=59)
        sandboxes.name = "image-2"
        await base()
        assert ran.read_text() == "xxxx"  # other settings, another set-up
        sandboxes.name = None
        await base()
        await base()
        assert ran.read_text() == "xxxxxx"  # nobody can tell what this machine has now


async def test_what_was_no_test_run_is_not_remembered(proven, sandboxes, baselines, tmp_path) -> None:
    async with (
        proven({"calc.py": BUG}) as proof,
        Bases(proof.workspace, sandboxes, "run", 60, baselines) as bases,
    ):
        assert (await bases.begin(PYTEST)).problem
    assert not (tmp_path / "baselines").exists()


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff" * 9, b'{"key": "x", "run": {}}', b"null"])
async def test_a_damaged_entry_is_as_good_as_none_and_is_written_anew(
    baselines, tmp_path, damage: bytes
) -> None:
    await baselines.keep(KEY, RUN)
    assert await baselines.recall(KEY) == RUN
    (tmp_path / "baselines" / f"{KEY}.json").write_bytes(damage)
    assert await baselines.recall(KEY) is None
    await baselines.keep(KEY, RUN)
    assert await baselines.recall(KEY) == RUN


async def test_an_entry_under_another_name_is_not_taken(baselines, tmp_path) -> None:
    await baselines.keep(KEY, RUN)
    (tmp_path / "baselines" / f"{KEY}.json").rename(tmp_path / "baselines" / f"{'1' * 64}.json")
    assert await baselines.recall("1" * 64) is None


async def test_the_entries_that_were_used_last_are_kept(baselines, tmp_path) -> None:
    for number in range(KEPT + 5):
        await baselines.keep(f"{number:064}", RUN)
        if number == KEPT - 1:
            assert await baselines.recall(f"{0:064}") == RUN  # used again
    assert len(list((tmp_path / "baselines").iterdir())) == KEPT
    assert await baselines.recall(f"{0:064}") == RUN
    assert await baselines.recall(f"{1:064}") is None


async def test_a_disk_that_takes_nothing_costs_nothing_but_the_memory(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    baselines = Baselines(tmp_path / "file" / "baselines")
    await baselines.keep(KEY, RUN)
    assert await baselines.recall(KEY) is None


def write_often(directory: str) -> None:
    async def work() -> None:
        baselines = Baselines(Path(directory))
        for number in range(40):
            await baselines.keep(KEY, RUN)
            assert await baselines.recall(KEY) == RUN, number

    asyncio.run(work())


def test_processes_share_them(tmp_path) -> None:
    several = multiprocessing.get_context("spawn")
    workers = [several.Process(target=write_often, args=(str(tmp_path / "shared"),)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert [path.name for path in (tmp_path / "shared").iterdir()] == [f"{KEY}.json"]


async def test_tests_that_waver_at_base_are_known_where_they_cannot_be_run_alone(
    proven, sandboxes, tmp_path
) -> None:
    moody = (
        f"import os\n\n\ndef test_moody():\n    mark = {str(tmp_path / 'mark')!r}\n"
        "    there = os.path.exists(mark)\n    open(mark, 'w')\n    assert there\n"
    )
    suite = Suite(
        command="(python3 -m pytest)", report="pytest", why=""
    )  # parentheses: nothing can be appended
    files = {"calc.py": BUG, "test_calc.py": FAILING, "test_moody.py": moody}
    async with proven(files) as proof, Bases(proof.workspace, sandboxes, "run", 60) as bases:
        run = await bases.begin(suite)
    assert run.flaky == ("test_moody.py::test_moody",)
    assert run.results["test_calc.py::test_add"] == "failed"


@pytest.mark.docker
async def test_an_image_s_contents_have_a_name_and_what_ran_in_it_is_remembered(
    proven, docker_sandboxes, baselines, tmp_path
) -> None:
    suite = Suite(command="date +%s.%N", report="none", why="")
    name = f"baseline-{os.getpid()}"
    contents, runs, rounds = None, [], 0
    async with proven({"a": ""}) as proof:
        # Another process may build it once more.
        while contents != (contents := await docker_sandboxes.contents()):
            runs, rounds = [], rounds + 1
            for _ in range(2):
                async with Bases(proof.workspace, docker_sandboxes, name, 60, baselines) as bases:
                    runs.append(await bases.begin(suite))
    assert contents is not None
    assert runs[0] == runs[1] and runs[0].exit_code == 0
    kept = [path.suffix for path in (tmp_path / "baselines").iterdir()]
    assert set(kept) == {".json"} and len(kept) <= rounds
