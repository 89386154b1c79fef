"""A run's log records its settings without secrets."""

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.domain import JobId
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.llm.router import RunModels
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run.effective_settings import (
    UNRECORDED_SETTINGS,
    build_run_configured,
    record_settings,
)
from patchwright.resolver.run_events import RunConfigured
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import RepoConfig, Settings, build_settings
from patchwright.resolver.viewer.replay import replay_run
from patchwright.resolver.viewer.run_html import render_run_html
from patchwright.runtime import VERSION
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from tests.resolver.git_repository import HOST_ENVIRONMENT
from tests.resolver.sample_runs import RUN, full_run, run_of, started
from tests.resolver.scripted_model import ScriptedModel

CANARY = "canary4711canary-canary4711canary"


def build_deps(directory: Path, settings: Mapping[str, Any] | None = None) -> RunDependencies:
    model = ScriptedModel(())
    return RunDependencies(
        settings=build_settings({"data": directory, **(settings or {})}),
        model=model,
        sandboxes=LocalSandboxes(directory / "sandboxes", HOST_ENVIRONMENT),
        workspaces=WorkspaceFactory(directory / "cache"),
        logs=FileLogStore(directory / "runs"),
        secrets=Secrets(),
        purpose_models=RunModels.with_default(model, {}),
    )


def test_every_setting_is_recorded_or_excluded_explicitly(tmp_path: Path) -> None:
    configured = build_run_configured(build_deps(tmp_path), RepoConfig())
    assert set(configured.settings) | UNRECORDED_SETTINGS == set(Settings.model_fields)
    assert set(configured.settings) & UNRECORDED_SETTINGS == set()
    assert set(configured.repository) == set(RepoConfig.model_fields)


def test_automatic_settings_are_recorded_with_their_effective_values(tmp_path: Path) -> None:
    values = {
        "max_steps": 7,
        "max_usd": "0.5",
        "timeout": 60,
        "max_repairs": 3,
        "risk_threshold": "never",
    }
    configured = build_run_configured(build_deps(tmp_path, values), RepoConfig(test_command="make check"))
    assert (configured.version, configured.steps, configured.usd, configured.seconds) == (
        VERSION,
        7,
        Decimal("0.5"),
        60,
    )
    assert configured.models == dict.fromkeys(("act", "condense", "browse", "review", "vision"), "scripted")
    assert configured.settings["sandbox"] == "local"  # not `auto`
    assert (configured.settings["max_repairs"], configured.settings["risk_threshold"]) == (3, "never")
    assert isinstance(configured.settings["max_context_tokens"], int)  # not "what the model takes"
    assert configured.repository["test_command"] == "make check"


@pytest.mark.parametrize(("poll", "link"), [(True, None), (False, "http://127.0.0.1:8000/runs/acme-calc-7")])
def test_pull_requests_of_a_polling_server_do_not_link_to_loopback_urls(
    tmp_path: Path, poll: bool, link: str | None
) -> None:
    deps = build_deps(tmp_path, {"public_url": "http://127.0.0.1:8000", "poll": poll})
    trajectory = run_of(started(), build_run_configured(deps, RepoConfig()))
    assert summarize_run(trajectory).dashboard_url == link


def test_no_credential_is_recorded(tmp_path: Path) -> None:
    url = f"https://user:{CANARY}@host.test:8443/{CANARY}?key={CANARY}"
    secret = [name for name, field in Settings.model_fields.items() if "Secret" in str(field.annotation)]
    values: dict[str, Any] = {name: CANARY for name in secret if name not in ("mcp_servers", "proxy")} | {
        "proxy": f"http://user:{CANARY}@proxy.test",
        "redis_url": url,
        "model_base_url": url,
        "search_provider": f"exa=https://search.test/{CANARY}",
        "package_index": url,
        "mcp_servers": {
            "far": {"url": f"https://far.test/{CANARY}", "headers": {"Authorization": CANARY}},
            "near": {"command": ["near", "--key", CANARY], "env": {"KEY": CANARY}, "tools": ["add"]},
        },
    }
    assert len(secret) >= 6
    configured = build_run_configured(build_deps(tmp_path, values), RepoConfig())
    assert CANARY not in configured.model_dump_json()
    assert configured.settings["mcp_servers"] == {
        "far": {"at": "far.test:443", "tools": None},
        "near": {"at": "near", "tools": ["add"]},
    }
    assert configured.settings["search_provider"] == "exa"
    # The control: these settings do hold it.
    assert CANARY in str(build_deps(tmp_path, values).settings.model_dump(mode="json")["mcp_servers"])


async def test_a_resumed_run_records_its_settings_again(tmp_path: Path) -> None:
    for steps in (5, 5, 9):
        made = build_deps(tmp_path, {"max_steps": steps})
        async with made.logs.open(JobId("run")) as log:
            await record_settings(log, made, RepoConfig())
    trajectory = made.logs.read(JobId("run"))
    assert [event.steps for event in trajectory if isinstance(event, RunConfigured)] == [5, 5, 9]
    assert trajectory.run_configured is not None and trajectory.run_configured.steps == 9


def test_the_run_page_shows_the_settings_and_the_pull_request_the_limits() -> None:
    page = render_run_html(RUN, full_run(), lambda run: None, Secrets())
    assert "Settings of the run" in page and "max_repairs = 2" in page and "model for act: " in page
    story = summarize_run(full_run())
    assert story.configuration is not None and story.configuration.version == "0.1.0"


def test_a_log_without_recorded_settings_is_readable() -> None:
    old = run_of(started())
    assert old.run_configured is None and summarize_run(old).configuration is None
    assert "Settings of the run" not in render_run_html(RUN, old, lambda run: None, Secrets())


PLAYED = sorted((Path(__file__).parents[2] / "golden" / "played").glob("*/events.jsonl"))


@pytest.mark.parametrize("log", PLAYED, ids=lambda log: log.parent.name)
def test_recorded_settings_are_not_sent_to_the_model(log: Path, tmp_path: Path) -> None:
    run = JobId("again")
    lines = log.read_text().splitlines()
    configured = build_run_configured(build_deps(tmp_path), RepoConfig()).model_dump(mode="json")
    entries = [json.loads(line) for line in lines]
    at = next(n for n, entry in enumerate(entries) if entry["event"]["kind"] == "run_started") + 1
    entries.insert(at, {**entries[0], "event": configured})
    (tmp_path / "runs" / run).mkdir(parents=True)
    (tmp_path / "runs" / run / "events.jsonl").write_text(
        "".join(json.dumps({**entry, "seq": n}) + "\n" for n, entry in enumerate(entries))
    )
    trajectory = FileLogStore(tmp_path / "runs").read(run)
    assert trajectory.run_configured is not None
    assert all(step.is_identical for step in replay_run(trajectory))
