"""The settings of a run stand in its log, and what is secret among them does not."""

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from resolver.circumstances import Configured
from resolver.domain import JobId
from resolver.kit import Kit
from resolver.llm.router import Models
from resolver.log import FileLogs
from resolver.replay import replay
from resolver.secrets import Secrets
from resolver.settings.configuration import LEFT_OUT, configured, own_version, record
from resolver.settings.settings import RepoConfig, Settings, build
from resolver.summary import summarize
from resolver.viewer.viewer import view
from resolver.workspace import Workspaces
from runtime.local import LocalSandboxes
from tests.resolver.repositories import HOST
from tests.resolver.scripted import Scripted
from tests.resolver.seen_runs import RUN, run_of, started, whole_run

CANARY = "canary4711canary"


def kit(place: Path, settings: Mapping[str, Any] | None = None) -> Kit:
    model = Scripted(())
    return Kit(
        settings=build({"data": place, **(settings or {})}, "the test"),
        model=model,
        sandboxes=LocalSandboxes(place / "sandboxes", HOST),
        workspaces=Workspaces(place / "cache"),
        logs=FileLogs(place / "runs"),
        secrets=Secrets(),
        purposes=Models.of(model, {}),
    )


def test_every_setting_is_recorded_or_left_out_for_a_reason(tmp_path: Path) -> None:
    told = configured(kit(tmp_path), RepoConfig())
    assert set(told.settings) | LEFT_OUT == set(Settings.model_fields)
    assert set(told.settings) & LEFT_OUT == set()
    assert set(told.repository) == set(RepoConfig.model_fields)


def test_what_was_left_open_is_recorded_as_it_holds(tmp_path: Path) -> None:
    given = {"max_steps": 7, "max_usd": "0.5", "timeout": 60, "plan_every": 3, "refuse_risk": "never"}
    told = configured(kit(tmp_path, given), RepoConfig(test_command="make check"))
    assert (told.version, told.steps, told.usd, told.seconds) == (own_version(), 7, Decimal("0.5"), 60)
    assert told.models == dict.fromkeys(("act", "condense", "browse", "judge", "senses"), "scripted")
    assert told.settings["sandbox"] == "local"  # not `auto`
    assert (told.settings["plan_every"], told.settings["refuse_risk"]) == (3, "never")
    assert isinstance(told.settings["context_tokens"], int)  # not "what the model takes"
    assert told.repository["test_command"] == "make check"


def test_no_credential_is_recorded_wherever_an_operator_may_write_one(tmp_path: Path) -> None:
    url = f"https://user:{CANARY}@host.test:8443/{CANARY}?key={CANARY}"
    secret = [name for name, field in Settings.model_fields.items() if "Secret" in str(field.annotation)]
    given: dict[str, Any] = {name: CANARY for name in secret if name not in ("mcp_servers", "proxy")} | {
        "proxy": f"http://user:{CANARY}@proxy.test",
        "redis_url": url,
        "model_base_url": url,
        "search_base_url": f"https://search.test/{CANARY}",
        "package_index": url,
        "mcp_servers": {
            "far": {"url": f"https://far.test/{CANARY}", "headers": {"Authorization": CANARY}},
            "near": {"command": ["near", "--key", CANARY], "env": {"KEY": CANARY}, "tools": ["add"]},
        },
    }
    assert len(secret) >= 6
    told = configured(kit(tmp_path, given), RepoConfig())
    assert CANARY not in told.model_dump_json()
    assert told.settings["mcp_servers"] == {
        "far": {"at": "far.test:443", "tools": None},
        "near": {"at": "near", "tools": ["add"]},
    }
    assert told.settings["search_base_url"] == "search.test:443"
    # The control: these settings do hold it.
    assert CANARY in str(kit(tmp_path, given).settings.model_dump(mode="json")["mcp_servers"])


async def test_a_run_that_goes_on_says_so_only_where_settings_have_changed(tmp_path: Path) -> None:
    for steps in (5, 5, 9):
        made = kit(tmp_path, {"max_steps": steps})
        async with made.logs.open(JobId("run")) as log:
            await record(log, made, RepoConfig())
    trajectory = made.logs.read(JobId("run"))
    assert [event.steps for event in trajectory if isinstance(event, Configured)] == [5, 9]
    assert trajectory.configured is not None and trajectory.configured.steps == 9


def test_a_reader_sees_them_in_the_page_and_a_reviewer_the_limits() -> None:
    page = view(RUN, whole_run(), lambda run: None, Secrets())
    assert "The settings of the run" in page and "plan_every = 10" in page and "model to act: " in page
    story = summarize(whole_run())
    assert story.under is not None and story.under.version == "0.1.0"


def test_a_log_of_an_older_version_has_none_and_is_read_and_shown_all_the_same() -> None:
    old = run_of(started())
    assert old.configured is None and summarize(old).under is None
    assert "The settings of the run" not in view(RUN, old, lambda run: None, Secrets())


PLAYED = sorted((Path(__file__).parents[2] / "golden" / "played").glob("*/events.jsonl"))


@pytest.mark.parametrize("log", PLAYED, ids=lambda log: log.parent.name)
def test_settings_in_a_log_are_no_part_of_what_the_model_is_sent(log: Path, tmp_path: Path) -> None:
    run = JobId("again")
    lines = log.read_text().splitlines()
    told = configured(kit(tmp_path), RepoConfig()).model_dump(mode="json")
    entries = [json.loads(line) for line in lines]
    at = next(n for n, entry in enumerate(entries) if entry["event"]["kind"] == "started") + 1
    entries.insert(at, {**entries[0], "event": told})
    (tmp_path / "runs" / run).mkdir(parents=True)
    (tmp_path / "runs" / run / "events.jsonl").write_text(
        "".join(json.dumps({**entry, "seq": n}) + "\n" for n, entry in enumerate(entries))
    )
    trajectory = FileLogs(tmp_path / "runs").read(run)
    assert trajectory.configured is not None
    assert all(step.same for step in replay(trajectory))
