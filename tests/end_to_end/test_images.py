"""The operator's image for a language is used by agent, setup, and verification."""

import json
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Published
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.build_context import BASE_LABEL
from tests.end_to_end.conftest import CODE, DONE, FIX, NEW_TEST, TESTS, Scenario
from tests.resolver.git_repository import Repository
from tests.runtime.marked_images import MARK, marked_images

pytestmark = pytest.mark.docker

KEPT = "/opt/setup-saw"
FILES = {
    "calc.py": CODE,
    "tests/test_calc.py": TESTS
    + f"\n\ndef test_the_image():\n    assert open('{MARK}').read() == open('{KEPT}').read() == 'python'\n",
    ".github/patchwright.toml": f'setup = "cp {MARK} {KEPT}"\n',
}


@pytest.mark.slow
async def test_agent_setup_and_verification_use_the_image_for_the_language(
    make_scenario: Callable[..., Scenario], sources: list[str]
) -> None:
    scenario = make_scenario(files=FILES)
    look = RecordedTurn("Where am I?", RunShell(command=f"echo made for $(cat {MARK})"))
    await scenario.script_model(look, RecordedTurn("Fix it.", FIX, NEW_TEST), RecordedTurn("Done.", DONE))
    async with marked_images("python", "go") as images:
        scenario.environment |= {
            "PATCHWRIGHT_SANDBOX": "docker",
            "PATCHWRIGHT_LANGUAGE_IMAGES": json.dumps(images),
        }
        outcome = await scenario.resolve()
        sources.append(scenario.trajectory().run_started.source)
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed", outcome
    before, after = outcome.verdict.before, outcome.verdict.after
    assert before and after
    assert [run.results["tests/test_calc.py::test_the_image"] for run in (before, after)] == ["passed"] * 2
    assert "made for python" in str(scenario.endpoint.requests[1]["messages"])
    prepared = scenario.trajectory().environment_prepared
    assert prepared and prepared.problem is None
    assert prepared.base_image and (prepared.base_image.language, prepared.base_image.image) == (
        "python",
        images["python"],
    )
    assert f"docker sandbox on `{images['python']}`" in str(scenario.pull.body)


@pytest.mark.slow
async def test_an_unavailable_image_is_reported_once_on_the_command_line(
    scenario: Scenario, tmp_path: Path
) -> None:
    absent = "localhost:1/no/such:image"
    scenario.environment["PATCHWRIGHT_LANGUAGE_IMAGES"] = json.dumps({"python": absent})
    await scenario.script_model(RecordedTurn("Fix it.", FIX), RecordedTurn("Done.", DONE))
    made = Repository(tmp_path / "calc")
    made.commit({"calc.py": CODE, "tests/test_calc.py": TESTS})
    (tmp_path / "issue.md").write_text("add() subtracts\n\nIt should add.")
    where = ("--repo", str(made.path), "--issue", str(tmp_path / "issue.md"))
    _, _, error = await scenario.command("resolve", *where, "--sandbox", "docker")
    assert error.count("no image for python; using the default image") == 1
    assert error.count(absent) == 1 and "image unavailable" not in error, error


@pytest.mark.slow
async def test_the_images_are_built_before_a_worker_starts(scenario: Scenario) -> None:
    code, out, error = await scenario.command("prepare", "--sandbox", "docker", "--json")
    client = docker.from_env()
    assert code == 0, error
    assert client.images.get(json.loads(out)["image"])
    client.close()
    code, out, error = await scenario.command("prepare", "--sandbox", "docker")
    assert (code, error) == (0, "") and out.startswith("Sandbox images are ready: patchwright-runtime:")


@pytest.mark.slow
async def test_the_images_for_languages_are_built_and_each_is_reported(scenario: Scenario) -> None:
    prepare, absent = ("prepare", "--sandbox", "docker"), "localhost:1/no/such:image"
    async with marked_images("go") as images:
        scenario.environment["PATCHWRIGHT_LANGUAGE_IMAGES"] = json.dumps({**images, "python": absent})
        code, out, error = await scenario.command(*prepare)
        assert code == 0, error
        expected = (
            f"Building the sandbox image on {images['go']} (once) ...\n"
            f"NOTICE: the base image {absent} is not available"
        )
        assert expected in error and error.endswith(" Tests in python use the default image.\n")
        first, go, python = out.splitlines()
        assert go.startswith(f"for go, on {images['go']}: patchwright-runtime:")
        assert python == f"for python, on {absent}: none"
        code, out, error = await scenario.command(*prepare, "--json")
        again = json.loads(out)
        assert (code, "Building" in error) == (0, False)
        assert again["images"] == {"go": go.split(": ")[1], "python": None} and first.endswith(again["image"])
        client = docker.from_env()
        assert client.images.get(again["images"]["go"]).labels[BASE_LABEL] == images["go"]
        client.close()


@pytest.mark.slow
async def test_an_unavailable_image_is_reported_and_replaced_by_the_default(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario()
    absent = {"python": "localhost:1/no/such:image"}
    scenario.environment |= {
        "PATCHWRIGHT_SANDBOX": "docker",
        "PATCHWRIGHT_LANGUAGE_IMAGES": json.dumps(absent),
    }
    await scenario.script_model(RecordedTurn("Fix it.", FIX, NEW_TEST), RecordedTurn("Done.", DONE))
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed", outcome
    body = " ".join(str(scenario.pull.body).split())
    assert "The image for python is not available. The default image was used instead" in body
    assert "such:image is not available and cannot be pulled" in body
    assert "sandbox on" not in body
    assert "setup has run" not in str(scenario.endpoint.requests[0]["messages"][1]["content"])
