"""The images of SWE-bench: their names, and that runs and hidden tests use their environment."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from patchwright.evaluation.official_images import configure_setup, get_official_image
from patchwright.evaluation.swe_bench import read_row
from patchwright.resolver.git.workspaces import WorkspaceFactory
from tests.evaluation.evaluation_scenario import ADD, EvaluationScenario

# The layout of SWE-bench's images: conda's environment has what the tests need, and no other Python has it.
DOCKERFILE = """\
FROM debian:bookworm-slim
RUN python3 -m venv /opt/miniconda3/envs/testbed && \\
    echo 'ANSWER = 5' >$(echo /opt/miniconda3/envs/testbed/lib/python3*/site-packages)/only_there.py
"""
SETUP = "from setuptools import setup\n\nsetup(name='calc', version='1', py_modules=['calc'])\n"
HIDDEN = """\
import unittest

import calc
import only_there


class HiddenTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(calc.add(2, 3), only_there.ANSWER)
"""


def test_an_image_has_the_name_that_swe_bench_gives_it() -> None:
    # Source: swebench 5.0.2, image_builder/image_spec.py
    name = "swebench/sweb.eval.x86_64.sympy_1776_sympy-20590:latest"
    assert get_official_image("sympy__sympy-20590") == name


def test_only_rows_of_swe_bench_itself_have_its_images(evaluation: EvaluationScenario) -> None:
    row = evaluation.make_row(ADD)
    official = {**row, "environment_setup_commit": "1a2b3c"}
    assert read_row(row, None).image == ""
    assert read_row(official, None).image == get_official_image(ADD.id)
    assert read_row({**official, "docker_image": "acme/calc:1"}, None).image == "acme/calc:1"


async def test_the_configuration_of_the_environment_is_the_same_commit_in_each_process(
    evaluation: EvaluationScenario, tmp_path: Path
) -> None:
    workspaces = WorkspaceFactory(tmp_path / "cache")
    async with workspaces.local(evaluation.repository.path) as workspace:
        commit = await configure_setup(workspace)
        assert commit != workspace.base
        await asyncio.sleep(1.1)  # git stores seconds
        assert await configure_setup(workspace) == commit


@pytest.mark.slow
@pytest.mark.docker
async def test_the_environment_of_the_instances_image_is_used(evaluation: EvaluationScenario) -> None:
    image = "patchwright-test-swe-bench:calc"
    subprocess.run(["docker", "build", "-q", "-t", image, "-"], input=DOCKERFILE.encode(), check=True)
    evaluation.base = evaluation.repository.commit({"setup.py": SETUP, "tests/__init__.py": ""})
    hidden = {
        "test_patch": evaluation.diff({"tests/test_hidden.py": HIDDEN}),
        "FAIL_TO_PASS": '["test_add (tests.test_hidden.HiddenTest)"]',
        "test_command": "python3 -m unittest",
    }
    evaluation.write_rows(evaluation.make_row(ADD, docker_image=image, **hidden))
    assert await evaluation.evaluate("--model", "gold", sandbox="docker") == 0
    controls, attempts = evaluation.read_results()
    assert (controls[ADD.id].image, controls[ADD.id].problem) == (image, "")
    (gold,) = attempts.values()
    assert gold.score.resolved
    assert gold.changed_files == (
        "calc.py",
        "tests/test_hidden.py",
    )  # not the configuration of the environment


@pytest.mark.slow
@pytest.mark.docker
async def test_an_image_that_cannot_be_pulled_is_replaced(evaluation: EvaluationScenario) -> None:
    evaluation.write_rows(evaluation.make_row(ADD, docker_image="registry.invalid/calc:1"))
    assert await evaluation.evaluate("--model", "gold", sandbox="docker") == 0
    controls, attempts = evaluation.read_results()
    assert (controls[ADD.id].image, controls[ADD.id].problem) == ("", "")
    assert [attempt.score.resolved for attempt in attempts.values()] == [True]
