"""The jobs of a workflow as separate processes, each with a token of its own permissions."""

import asyncio
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from patchwright.demo.github import Delivery
from tests.end_to_end.conftest import Scenario
from tests.preloaded_command import preloaded_command

ROOT = Path(__file__).parents[2]
READ = {"actions": "read", "contents": "read", "issues": "read", "metadata": "read", "pull_requests": "read"}
WRITE = {
    "checks": "write",
    "contents": "write",
    "issues": "write",
    "metadata": "read",
    "pull_requests": "write",
}
MODEL = ("PATCHWRIGHT_MODEL", "PATCHWRIGHT_MODEL_API_KEY", "PATCHWRIGHT_MODEL_BASE_URL")


@dataclass
class StepResult:
    """The result of a step."""

    code: int
    outputs: dict[str, str]
    summary: str
    output: str


class Workflow:
    """The two jobs for one event, each on its own machine, with the artifact between them."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.artifact = scenario.data / "patchwright-artifact"
        self._tokens = {"resolve": self.create_token(READ), "publish": self.create_token(WRITE)}
        for name in ("PATCHWRIGHT_APP_ID", "PATCHWRIGHT_PRIVATE_KEY", "PATCHWRIGHT_WEBHOOK_SECRET"):
            scenario.environment.pop(name)
        scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")

    def token(self, job: str) -> str:
        return self._tokens[job]

    def create_token(self, permissions: Mapping[str, str]) -> str:
        fake_github = self.scenario.fake_github
        actions = fake_github.create_app("github-actions", permissions)
        return fake_github.create_installation_token(fake_github.install_app(actions, self.scenario.repo))

    async def label(self) -> None:
        self.event(await self.scenario.fake_github.add_label(self.scenario.issue, "fix-me", by="maintainer"))

    async def comment(self, text: str, by: str = "maintainer") -> None:
        self.event(await self.scenario.fake_github.add_comment(self.scenario.issue, text, by=by))

    def event(self, delivery: Delivery) -> None:
        self.event_environment = self.scenario.event(delivery)

    async def run_single_job(self, **environment: str) -> StepResult:
        """Runs everything in one job. With PART in the environment, runs the script of action.yml."""
        given = self.scenario.environment
        model = {name: given[name] for name in MODEL if name in given}
        return await self._job("publish", "", model | environment)

    async def resolve(self, **environment: str) -> StepResult:
        """Runs the first of two jobs. With PART in the environment, runs the script of action.yml, which starts
        the program.
        """
        return await self._job("resolve", "--resolve", environment)

    async def publish(self, **environment: str) -> StepResult:
        return await self._job("publish", "--publish", environment)

    def _step_script(self) -> tuple[str, ...]:
        """Returns the command with which the runner starts the main step of action.yml."""
        steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
        script = self.scenario.data / "step.sh"
        script.write_text(next(step["run"] for step in steps if step.get("id") == "run"))
        program = self.scenario.data / "patchwright" / "bin" / "patchwright"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {shlex.join(preloaded_command())} "$@"\n')
        program.chmod(0o755)
        return ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script))

    async def _job(self, name: str, option: str, environment: Mapping[str, str]) -> StepResult:
        machine = self.scenario.data / name
        machine.mkdir(exist_ok=True)
        given = self.event_environment | {
            "GITHUB_TOKEN": self._tokens[name],
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": "acme/calc",
            "GITHUB_OUTPUT": str(machine / "output"),
            "GITHUB_STEP_SUMMARY": str(machine / "summary.md"),
            "PATCHWRIGHT_DATA": str(machine),
            "HOME": str(machine),
        }
        if name == "publish":
            given |= dict.fromkeys(MODEL, "")
        if "PART" in environment:
            arguments, program, given = (
                (),
                self._step_script(),
                given | {"RUNNER_TEMP": str(self.scenario.data)},
            )
        else:
            arguments = ("action", *((option, str(self.artifact)) if option else ()))
            program = preloaded_command()
        self.process = await self.scenario.cli(*arguments, program=program, environment=given | environment)
        async with asyncio.timeout(120):
            out, error = await self.process.communicate()
        assert self.process.returncode is not None
        summary = machine / "summary.md"
        return StepResult(
            self.process.returncode,
            outputs_in(machine / "output"),
            summary.read_text() if summary.exists() else "",
            (out + error).decode(),
        )


def outputs_in(file: Path) -> dict[str, str]:
    """Parses the output file as the runner does."""
    text = file.read_text() if file.exists() else ""
    found = re.findall(r"^(.+?)<<(.+)\n((?s:.*?))\n\2\n", text, re.MULTILINE)
    return {name: value for name, _, value in found}
