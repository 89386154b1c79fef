"""The three tiers of tests: with a scripted model, with a real model, and the whole evaluation."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.integration.test_real_models import MAX_USD, TASKS

ROOT = Path(__file__).parent.parent
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/model-tests.yml").read_text())
TIERS = ("unit", "llm", "bench")


def test_every_test_belongs_to_one_tier(request: pytest.FixtureRequest) -> None:
    tiers = {
        item.nodeid: [tier for tier in TIERS if item.get_closest_marker(tier)]
        for item in request.session.items
    }
    assert {name: found for name, found in tiers.items() if len(found) != 1} == {}


def test_each_tier_has_a_marker_and_a_script() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    markers = {line.partition(":")[0] for line in settings["tool"]["pytest"]["ini_options"]["markers"]}
    assert set(TIERS) <= markers
    selected = {
        name: re.findall(r"pytest -m ('[^']+'|\w+)", (ROOT / "script" / name).read_text())
        for name in ("test", "test-models", "test-evaluation")
    }
    assert selected == {"test": ["'unit and not slow'"], "test-models": ["llm"], "test-evaluation": ["bench"]}


def test_the_tests_with_a_real_model_have_a_budget() -> None:
    assert float(MAX_USD) * len(TASKS) <= 3
    assert WORKFLOW["jobs"]["test-models"]["timeout-minutes"] <= 30


def test_ci_runs_the_quick_tests_without_a_network_and_within_a_time() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    last_steps = {name: jobs[name]["steps"][-1]["run"] for name in ("test", "bare-test")}
    assert last_steps == {"test": "script/test", "bare-test": "script/test-bare"}
    assert (jobs["test"]["timeout-minutes"], jobs["bare-test"]["timeout-minutes"]) == (40, 60)


def test_the_tests_with_a_real_model_run_every_day_and_on_demand() -> None:
    triggers = WORKFLOW[True]  # YAML 1.1 reads the key `on` as true.
    assert set(triggers) == {"schedule", "workflow_dispatch", "pull_request"}
    assert re.fullmatch(r"\d+ \d+ \* \* \*", triggers["schedule"][0]["cron"])
    first, *others = WORKFLOW["jobs"]["test-models"]["steps"]
    assert others[-1]["run"] == "script/test-models"
    assert {step["if"] for step in others} == {f"steps.{first['id']}.outputs.configured == 'true'"}


@pytest.mark.parametrize(("key", "model"), [("", "a/b"), ("sk", ""), ("sk", "a/b")])
def test_the_workflow_is_skipped_with_a_reason_if_no_model_is_configured(
    tmp_path: Path, key: str, model: str
) -> None:
    output = tmp_path / "output"
    output.touch()
    script = WORKFLOW["jobs"]["test-models"]["steps"][0]["run"]
    environment = {"KEY": key, "PATCHWRIGHT_MODEL": model, "GITHUB_OUTPUT": str(output)}
    result = subprocess.run(
        ["sh", "-e", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    is_configured = bool(key and model)
    assert output.read_text() == ("configured=true\n" if is_configured else "")
    assert ("skipped::Set the secrets PATCHWRIGHT_MODEL" in result.stdout) == (not is_configured)


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "1"])
def test_where_no_skip_is_allowed_a_skipped_test_fails(processes: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "tests/evaluation/test_real_model.py"]
    environment = os.environ | {"PATCHWRIGHT_NO_SKIP": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "skipped, where PATCHWRIGHT_NO_SKIP allows no skip" in done.stdout


@pytest.mark.slow
def test_after_the_deadline_no_test_starts() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "tests/evaluation/test_real_model.py"]
    environment = os.environ | {"PATCHWRIGHT_NO_SKIP": "1", "PATCHWRIGHT_TEST_DEADLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "the time of PATCHWRIGHT_TEST_DEADLINE has passed" in done.stdout
