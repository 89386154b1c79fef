"""What a workflow step does with its event, and what the runner reads from it."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.action.step import OUTPUTS, escaped, run_action
from bot.webhooks.triggers import Triggers
from resolver.cost import AtLeast
from resolver.domain import Commented, Delivered, Job, Outcome, Refused, Verdict
from resolver.errors import Forbidden, ForgeError, ModelRefused, SettingsError
from resolver.events import Decided, Entry, Trajectory, Usage
from resolver.settings.settings import from_environment
from runtime.errors import EngineUnavailable
from tests.bot.deliveries import COMMENTED, LABELED, SENDER

FIXED = Verdict(kind="fixed", reason="test_add passes now.")
DELIVERED = Delivered(
    url="https://forge.test/acme/sample/pull/8",
    number=8,
    branch="patchwright/issue-7",
    draft=False,
    verdict=FIXED,
)
COMMENT = Commented(
    url="https://forge.test/acme/sample/issues/7#c1",
    branch=None,
    reason="Nothing was changed.",
    verdict=Verdict(kind="empty"),
)
REFUSED = Refused(explanation="Only people who may write here can ask.")


def log_of(usage: Usage) -> Trajectory:
    decided = Decided(thought="", calls=(), usage=usage)
    return Trajectory((Entry(seq=0, at=datetime.now(UTC), event=decided),))


class Step:
    """A workflow step on an event, and what it left behind."""

    def __init__(
        self, directory: Path, event: str = "issues", payload: object = LABELED, **environ: str
    ) -> None:
        self.output, self.summary = directory / "output", directory / "summary"
        (directory / "event.json").write_text(json.dumps(payload))
        self.environ: Mapping[str, str] = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(directory / "event.json"),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
        } | environ
        self.jobs: list[Job] = []
        self.lines: list[str] = []
        self.told: list[str] = []
        self.log = log_of(Usage(model="m", prompt_tokens=900, completion_tokens=100, usd=Decimal("0.12")))

    async def run(self, ending: Outcome | Exception, *, says: str = "") -> int:
        async def resolve(job: Job) -> Outcome:
            self.jobs.append(job)
            if says:
                self.lines.extend(says.splitlines())
            if isinstance(ending, Exception):
                raise ending
            return ending

        async def apologize(job: Job, error: Exception) -> None:
            self.told.append(str(error))

        return await run_action(
            self.environ,
            resolve,
            rules=Triggers(),
            read=lambda job: self.log,
            apologize=apologize,
            secrets=["tok%en", "line one\nline two\n"],
            write=self.lines.append,
        )

    def outputs(self) -> dict[str, str]:
        """Read as the runner does."""
        found = re.findall(r"^(.+?)<<(.+)\n((?s:.*?))\n\2\n", self.output.read_text(), re.MULTILINE)
        return {name: value for name, _, value in found}

    def commands(self) -> list[str]:
        """The lines that the runner obeys."""
        obeyed, stopped = [], ""
        for line in "\n".join(self.lines).split("\n"):
            if stopped:
                stopped = "" if line.strip() == f"::{stopped}::" else stopped
            elif line.lstrip().startswith("::stop-commands::"):
                stopped = line.partition("::stop-commands::")[2]
            elif line.lstrip().startswith("::") or "##[" in line:
                obeyed.append(line)
        assert not stopped, "commands stay off for the steps to come"
        return obeyed


async def test_a_delivered_pull_request_is_in_the_outputs_and_the_summary(tmp_path: Path) -> None:
    step = Step(tmp_path)
    assert await step.run(DELIVERED) == 0
    assert [(str(job.repo), job.number, job.requester and job.requester.id) for job in step.jobs] == [
        ("acme/sample", 7, 5)
    ]
    assert step.outputs() == {
        "outcome": "delivered",
        "pull-request": "https://forge.test/acme/sample/pull/8",
        "branch": "patchwright/issue-7",
        "verdict": "fixed",
        "cost-usd": "0.12",
        "tokens": "1000",
        "run-page": "",
    }
    assert step.summary.read_text().startswith(
        "### acme/sample#7: delivered\n\n| | |\n|---|---|\n"
        "| Pull request | https://forge.test/acme/sample/pull/8 |\n"
        "| Verdict | fixed |\n"
        "| Why | test\\_add passes now\\. |\n"
        "| Branch | patchwright\\/issue\\-7 |\n"
        "| US dollars | 0.12 |\n"
        "| Tokens | 1000 |\n"
    )


@pytest.mark.parametrize(
    ("ending", "code", "outcome"),
    [
        (COMMENT, 3, "commented"),
        (REFUSED, 4, "refused"),
        (SettingsError("PATCHWRIGHT_MODEL is not set."), 2, "error"),
        (ModelRefused("no such model"), 2, "error"),
        (Forbidden("the token may not push"), 2, "error"),
        (ForgeError("502"), 1, "error"),
        (EngineUnavailable("no engine"), 1, "error"),
        (ExceptionGroup("tasks", [ForgeError("502")]), 1, "error"),
    ],
    ids=repr,
)
async def test_every_ending_has_its_exit_code(
    tmp_path: Path, ending: Outcome | Exception, code: int, outcome: str
) -> None:
    step = Step(tmp_path)
    assert await step.run(ending) == code
    assert step.outputs()["outcome"] == outcome
    assert (len(step.told) == 1) is isinstance(ending, Exception)
    assert step.summary.read_text().startswith(f"### acme/sample#7: {outcome}\n")


async def test_a_fault_of_ours_is_not_swallowed_and_commands_are_on_again(tmp_path: Path) -> None:
    step = Step(tmp_path)
    with pytest.raises(ZeroDivisionError):
        await step.run(ZeroDivisionError())
    with pytest.raises(ExceptionGroup):
        await step.run(ExceptionGroup("tasks", [ForgeError("502"), ZeroDivisionError()]))
    step.commands()


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("push", {"ref": "refs/heads/main"}),
        ("issues", LABELED | {"label": {"name": "bug"}}),
        ("issue_comment", COMMENTED),
    ],
)
async def test_an_event_that_asks_for_nothing_ends_well(tmp_path: Path, event: str, payload: object) -> None:
    step = Step(tmp_path, event, payload)
    assert await step.run(DELIVERED) == 0
    assert step.jobs == []
    assert step.lines == ["This event asks for nothing: no label fix-me, no mention of @agent by a person."]
    assert step.outputs() == {"outcome": "ignored"}


async def test_a_mention_carries_its_words(tmp_path: Path) -> None:
    step = Step(tmp_path, "issue_comment", COMMENTED | {"sender": SENDER})
    assert await step.run(DELIVERED) == 0
    assert step.jobs[0].command == "go"


HOSTILE = (
    "\n::set-output name=x::y\n  ::add-path::/tmp\n##[add-mask]a\n::error::x\n::stop-commands::mine\n::mine::"
)


async def test_foreign_text_is_never_a_command_to_the_runner(tmp_path: Path) -> None:
    for ending in (REFUSED, ForgeError(HOSTILE)):
        step = Step(tmp_path)
        await step.run(ending, says=HOSTILE)
        assert sorted(step.commands()) == [
            "::add-mask::line one",
            "::add-mask::line two",
            "::add-mask::tok%25en",
        ]


async def test_without_a_runner_no_secret_is_printed(tmp_path: Path) -> None:
    step = Step(tmp_path, GITHUB_ACTIONS="")
    await step.run(DELIVERED)
    assert "tok" not in "".join(line for line in step.lines if "stop" not in line)
    assert step.commands() == []


async def test_foreign_text_cannot_make_an_output_or_leave_its_cell(tmp_path: Path) -> None:
    step = Step(tmp_path)
    hostile = "x\nEOF\nadmin<<EOF\nyes\nEOF\n| <img src=//e.test> ![a](http://e.test/?q) `@all`"
    ending = DELIVERED.model_copy(
        update={"branch": hostile, "verdict": Verdict(kind="fixed", reason=hostile)}
    )
    await step.run(ending)
    assert step.outputs()["branch"] == hostile
    assert set(step.outputs()) == OURS
    assert [line.count(" | ") for line in step.summary.read_text().splitlines()[4:10]] == [1] * 6
    assert escaped("| <b> ![a](http://e.test) `x`\n") == (
        "\\| \\<b\\> \\!\\[a\\]\\(http\\:\\/\\/e\\.test\\) \\`x\\`"
    )


async def test_a_cost_that_nobody_knows_is_left_out(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.log = log_of(Usage(model="m"))
    await step.run(DELIVERED)
    assert step.outputs()["cost-usd"] == "" and "US dollars" not in step.summary.read_text()


async def test_a_cost_of_which_some_is_known_is_in_the_summary_as_that(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.log = log_of(Usage(model="m", usd=AtLeast(usd=Decimal("0.12"))))
    await step.run(DELIVERED)
    assert step.outputs()["cost-usd"] == ""
    assert "\n| US dollars | at least 0.12 |\n" in step.summary.read_text()


async def test_a_step_without_output_files_still_works(tmp_path: Path) -> None:
    step = Step(tmp_path, GITHUB_OUTPUT="", GITHUB_STEP_SUMMARY="")
    assert await step.run(DELIVERED) == 0


@pytest.mark.parametrize(
    ("environ", "payload", "complaint"),
    [
        ({"GITHUB_EVENT_PATH": ""}, LABELED, "GITHUB_EVENT_PATH or GITHUB_EVENT_NAME is not set"),
        ({"GITHUB_EVENT_NAME": ""}, LABELED, "GITHUB_EVENT_PATH or GITHUB_EVENT_NAME is not set"),
        ({"GITHUB_EVENT_PATH": "/nowhere"}, LABELED, "GITHUB_EVENT_PATH cannot be read"),
        ({}, [], "GITHUB_EVENT_PATH is not the payload of issues"),
        (
            {"GITHUB_REPOSITORY": "acme/other"},
            LABELED,
            "is one of acme/sample, and this is a workflow of acme/other",
        ),
        ({}, "x" * 27 * 2**20, "has more than 27262976 bytes"),
    ],
)
async def test_without_an_event_it_says_what_is_missing(
    tmp_path: Path, environ: dict[str, Any], payload: object, complaint: str
) -> None:
    with pytest.raises(SettingsError, match=complaint):
        await Step(tmp_path, payload=payload, **environ).run(DELIVERED)


ACTION = (Path(__file__).parents[3] / "action.yml").read_text()
OURS = set(OUTPUTS)


def test_action_yml_names_the_outputs_that_are_written() -> None:
    assert set(re.findall(r"steps\.run\.outputs\.([\w-]+)", ACTION)) == OURS


def test_action_yml_sets_no_variable_that_the_settings_do_not_know() -> None:
    environ = dict(re.findall(r"^ +((?:PATCHWRIGHT|GITHUB)_\w+): \$\{\{ (.+) \}\}", ACTION, re.MULTILINE))
    assert set(from_environment(dict.fromkeys(environ, "1"))) >= {
        "model",
        "model_api_key",
        "github_token",
        "app_id",
    }
    assert from_environment(dict.fromkeys(environ, "")) == {}  # an input that is not given


def test_every_input_of_action_yml_is_used_and_none_stands_in_a_script() -> None:
    action = yaml.safe_load(ACTION)
    steps = action["runs"]["steps"]
    used = set(re.findall(r"inputs\.([\w-]+)", json.dumps(steps)))
    assert used == set(action["inputs"])
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) >= 4
    assert not [script for script in scripts if "${{" in script]
