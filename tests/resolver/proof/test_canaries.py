"""The canary tests that are added to a test run: their names, and their results in an honest run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from patchwright.resolver.proof.canaries import Canary
from patchwright.resolver.runner_names import RunnerName

pytestmark = pytest.mark.real_start


@pytest.mark.parametrize(
    ("file", "runner", "path", "group"),
    [
        ("tests/test_a.py", "pytest", r"tests/test_zzT\.py", "::test_"),
        ("a_test.py", "unittest", r"zzT_test\.py", "::TestCanary::test_"),
        ("test/test-a.js", "mocha", r"test/test-zzT\.js", "::"),
        ("test/a.js", "node", r"test/zzT\.js", "::"),
        ("src/a.spec.tsx", "jest", r"src/zzT\.spec\.tsx", "::"),
        ("src/a-test.mts", "vitest", r"src/zzT-test\.mts", "::"),
    ],
)
def test_a_canary_is_named_like_the_file_beside_it(
    file: str, runner: RunnerName, path: str, group: str
) -> None:
    canary = Canary.create_for(file, runner)
    assert canary and re.fullmatch(path.replace("T", "[0-9a-f]{16}"), canary.path)
    names = []
    for test in (canary.passing_test, canary.failing_test):
        assert test.startswith(canary.path + group)
        names.append(test.removeprefix(canary.path + group))
        assert re.fullmatch("[0-9a-f]{16}", names[-1]) and names[-1] in canary.text
    assert names[0] != names[1] and "$good" not in canary.text and "$bad" not in canary.text


@pytest.mark.parametrize(("file", "runner"), [("a_test.go", "go"), ("test_a.txt", "pytest"), ("a.js", "tap")])
def test_other_languages_and_runners_have_no_canary(file: str, runner: RunnerName) -> None:
    assert Canary.create_for(file, runner) is None


@pytest.mark.parametrize(
    ("runner", "summary"), [("pytest", "1 failed, 1 passed"), ("unittest", "FAILED (failures=1)")]
)
def test_in_an_honest_run_one_canary_fails_with_its_purpose(
    tmp_path: Path, runner: RunnerName, summary: str
) -> None:
    canary = Canary.create_for("test_a.py", runner)
    assert canary is not None
    (tmp_path / canary.path).write_text(canary.text)
    command = [sys.executable, "-m", runner, canary.path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 1 and summary in output and "Patchwright fails on purpose" in output, output


async def test_the_output_shows_nothing_of_the_canary_tests(open_verifier) -> None:
    canary = Canary.create_for("test_a.py", "pytest")
    assert canary is not None
    async with open_verifier({"test_a.py": "def test_a():\n    assert 1\n"}) as verifier:
        run = canary.check_run(await verifier.run(patch=canary.add_to(await verifier.patch({}))))
    assert run.problem is None
    assert "collected 1 item" in run.output and "= 1 passed in " in run.output
    assert "fail" not in run.output.lower() and canary.path not in run.output
