"""Every mistake yields one clear sentence and the right exit code, and leaves nothing half done."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.runtime.actions import RunShell
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, NEW_TEST, TESTS, Scenario
from tests.resolver.git_repository import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = Repository(tmp_path / "calc")
    made.commit({"calc.py": CODE, "tests/test_calc.py": TESTS})
    return made.path


@pytest.fixture
def issue(tmp_path: Path) -> Path:
    path = tmp_path / "issue.md"
    path.write_text("# add() subtracts\n\nIt should add.\n")
    return path


async def run_rejected(scenario: Scenario, *arguments: str, code: int = 2) -> str:
    """Returns the one-sentence error of `patchwright ARGUMENTS`."""
    left, out, error = await scenario.command(*arguments)
    assert (left, out) == (code, ""), error
    assert "Traceback" not in error
    *_, last = error.strip().splitlines()
    assert last.startswith("patchwright: ")
    return last


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "shown"),
    [("foo", ""), ("acme/calc", ""), ("acme/calc#0", ""), ("a b/calc#1", ""), ("https://[foo", ""),
     ("https://me:hunter2@github.com/acme/calc/issues/1", "https://github.com/acme/calc/issues/1"),
     ("{server}/acme/calc", ""), ("{server}/acme/calc/pulls/1", ""), ("{server}/acme/calc/issues/0", "")],
)  # fmt: skip
async def test_a_reference_to_no_issue_of_this_forge_is_rejected(
    scenario: Scenario, typed: str, shown: str
) -> None:
    server = scenario.fake_github.server_url
    typed = typed.format(server=server)
    sentence = await run_rejected(scenario, "resolve", typed)
    assert (
        f"'{shown or typed}' is not an issue. Pass the URL of an issue, such as {server}/OWNER/REPO/issues/7"
        in sentence
    )
    assert ("GITHUB_SERVER_URL" in sentence) == ("github.com" in typed)


async def test_an_unwritable_patch_file_is_reported_before_the_run(
    scenario: Scenario, repository: Path, issue: Path
) -> None:
    await scenario.script_model(*FIX_TURNS)
    start = ("resolve", "--repo", str(repository), "--issue", str(issue), "--out", "nowhere/fix.diff")
    assert "Cannot write the patch to nowhere/fix.diff: No such file" in await run_rejected(scenario, *start)
    assert scenario.endpoint.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["PATCHWRIGHT_WEBHOOK_SECRET", "PATCHWRIGHT_PRIVATE_KEY"])
async def test_a_missing_secret_is_reported_before_the_engine_is_contacted(
    scenario: Scenario, missing: str
) -> None:
    scenario.environment.pop(missing, None)
    scenario.environment |= {"DOCKER_HOST": "tcp://127.0.0.1:9", "PATCHWRIGHT_SANDBOX": "docker"}
    sentence = await run_rejected(scenario, "serve", "--port", "0", "--sandbox", "docker")
    assert missing in sentence


@pytest.mark.slow
@pytest.mark.parametrize("command", ["resolve", "serve", "demo"])
async def test_an_unwritable_data_directory_is_reported_before_the_run(
    scenario: Scenario, repository: Path, issue: Path, command: str
) -> None:
    await scenario.script_model(*FIX_TURNS)
    place = issue / "data"  # below a file
    scenario.environment["PATCHWRIGHT_DATA"] = str(place)
    more = {"resolve": ("--repo", str(repository), "--issue", str(issue)), "serve": ("--port", "0")}
    sentence = await run_rejected(scenario, command, *more.get(command, ()))
    assert f"patchwright: Cannot write to {place}" in sentence and "PATCHWRIGHT_DATA" in sentence
    assert scenario.endpoint.requests == []
    assert "--keep" in await run_rejected(scenario, "demo", "--keep", str(place))


async def test_a_binary_issue_file_is_rejected(scenario: Scenario, repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "issue.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    sentence = await run_rejected(scenario, "resolve", "--repo", str(repository), "--issue", str(path))
    assert "is not a text file" in sentence


async def test_an_issue_of_only_control_characters_is_empty(
    scenario: Scenario, repository: Path, tmp_path: Path
) -> None:
    path = tmp_path / "issue.md"
    path.write_text("# \n\n##\n")
    sentence = await run_rejected(scenario, "resolve", "--repo", str(repository), "--issue", str(path))
    assert "is empty. Describe the problem in it" in sentence


@pytest.mark.slow
async def test_a_missing_repository_or_issue_is_reported(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    for path in ("acme/nothing/issues/1", "acme/calc/issues/99"):
        sentence = await run_rejected(scenario, "resolve", f"{scenario.fake_github.server_url}/{path}")
        assert path.split("/issues")[0] in sentence
    assert scenario.fake_github.writes == scenario.runs == ()


@pytest.mark.slow
async def test_an_unreachable_github_is_reported_with_advice(scenario: Scenario) -> None:
    scenario.environment["GITHUB_SERVER_URL"] = "http://127.0.0.1:9"
    sentence = await run_rejected(scenario, "resolve", "http://127.0.0.1:9/acme/calc/issues/1", code=2)
    assert sentence.endswith("(connection refused). Check the network and GITHUB_SERVER_URL.")
    assert scenario.runs == ()


@pytest.mark.slow
async def test_a_token_without_permissions_starts_no_run(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    del scenario.environment["PATCHWRIGHT_APP_ID"], scenario.environment["PATCHWRIGHT_PRIVATE_KEY"]
    url = f"{scenario.fake_github.server_url}/acme/calc/issues/1"
    assert "GITHUB_TOKEN is not set" in await run_rejected(scenario, "resolve", url)
    scenario.environment["GITHUB_TOKEN"] = "ghp_unknown"
    assert "GITHUB_TOKEN" in await run_rejected(scenario, "resolve", url)
    scenario.environment["GITHUB_TOKEN"] = scenario.fake_github.create_token("stranger")
    sentence = await run_rejected(scenario, "resolve", url)
    assert "lacks `contents: write` and `pull_requests: write`" in sentence
    assert "pass --dry-run to see the result without publishing it" in sentence
    assert (scenario.repo.branches, scenario.repo.pulls, scenario.comments) == (("main",), (), [])
    assert not scenario.endpoint.requests


async def test_a_password_in_a_url_is_not_printed(scenario: Scenario) -> None:
    url = scenario.fake_github.server_url.replace("://", "://me:hunter2@") + "/acme/calc/issues/1"
    assert "hunter2" not in await run_rejected(scenario, "resolve", url)


@pytest.mark.slow
async def test_a_server_with_unknown_credentials_reports_it_at_start(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    scenario.environment["PATCHWRIGHT_APP_ID"] = "999999"
    advice = "Check GITHUB_TOKEN, or PATCHWRIGHT_APP_ID and its private key."
    assert advice in await run_rejected(scenario, "serve", "--port", "0")
    del scenario.environment["PATCHWRIGHT_APP_ID"], scenario.environment["PATCHWRIGHT_PRIVATE_KEY"]
    scenario.environment["GITHUB_TOKEN"] = "ghp_unknown"
    assert "Check GITHUB_TOKEN" in await run_rejected(scenario, "serve", "--port", "0")


@pytest.mark.slow
async def test_an_unnamed_unknown_or_unpaid_model_is_reported_before_anything_is_written(
    scenario: Scenario, repository: Path, issue: Path
) -> None:
    await scenario.script_model(*FIX_TURNS)
    start = ("resolve", "--repo", str(repository), "--issue", str(issue))
    scenario.environment["PATCHWRIGHT_MODEL_API_KEY"] = "sk-wrong-wrong"
    assert "PATCHWRIGHT_MODEL_API_KEY" in await run_rejected(scenario, *start)
    assert "no-such-provider" in await run_rejected(scenario, *start, "--model", "no-such-provider/model")
    del scenario.environment["PATCHWRIGHT_MODEL"]
    assert "PATCHWRIGHT_MODEL is not set" in await run_rejected(scenario, *start)


@pytest.mark.slow
async def test_a_missing_model_ends_the_command_with_an_error(
    scenario: Scenario, repository: Path, issue: Path
) -> None:
    scenario.environment["PATCHWRIGHT_MODEL_BASE_URL"] = "http://127.0.0.1:9/v1"
    start = ("resolve", "--repo", str(repository), "--issue", str(issue))
    code, out, error = await scenario.command(*start, "--json", "--quiet")
    notice = json.loads(out)["error"]
    assert code == 2
    assert notice == (
        "The model's endpoint 127.0.0.1:9 cannot be reached (connection refused). "
        "Check PATCHWRIGHT_MODEL_BASE_URL, and check that the endpoint is running."
    )
    assert error == f"patchwright: {notice}\n"
    assert scenario.runs == ()
    # A fallback may reply instead, so the endpoint is only reported when all models failed.
    scenario.environment["PATCHWRIGHT_MODEL_FALLBACKS"] = "openai/other"
    code, out, _ = await scenario.command(*start, "--json", "--quiet")
    assert code == 2 and "Cannot connect to 127.0.0.1:9 for openai/other (connection refused)" in out


@pytest.mark.slow
async def test_a_missing_key_is_named_before_the_repository_is_read(
    scenario: Scenario, repository: Path, issue: Path
) -> None:
    del scenario.environment["PATCHWRIGHT_MODEL_API_KEY"]
    start = ("resolve", "--repo", str(repository), "--issue", str(issue))
    assert "ANTHROPIC_API_KEY is not set" in await run_rejected(
        scenario, *start, "--model", "anthropic/claude"
    )
    assert "OPENAI_API_KEY is not set" in await run_rejected(scenario, *start)
    assert "OPENAI_API_KEY is not set" in await run_rejected(scenario, "serve", "--port", "0")
    assert scenario.runs == ()


@pytest.mark.slow
async def test_an_unreachable_engine_is_named(scenario: Scenario, repository: Path, issue: Path) -> None:
    await scenario.script_model(*FIX_TURNS)
    scenario.environment["DOCKER_HOST"] = "tcp://127.0.0.1:9"
    start = ("resolve", "--repo", str(repository), "--issue", str(issue), "--sandbox", "docker")
    sentence = await run_rejected(scenario, *start)
    assert "no Docker engine responds at tcp://127.0.0.1:9 (" in sentence


@pytest.mark.slow
async def test_without_an_engine_untrusted_issues_do_not_run_on_the_host(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    scenario.environment["DOCKER_HOST"] = "unix:///nowhere/docker.sock"
    scenario.environment["PATCHWRIGHT_SANDBOX"] = "auto"
    sentence = await run_rejected(
        scenario, "resolve", f"{scenario.fake_github.server_url}/acme/calc/issues/1"
    )
    assert "--sandbox local" in sentence
    assert scenario.fake_github.writes == ()


@pytest.mark.slow
async def test_without_an_engine_a_local_run_does_not_use_the_local_sandbox_unasked(
    scenario: Scenario, repository: Path, issue: Path
) -> None:
    await scenario.script_model(*FIX_TURNS)
    scenario.environment |= {"DOCKER_HOST": "unix:///nowhere/docker.sock", "PATCHWRIGHT_SANDBOX": "auto"}
    start = ("resolve", "--repo", str(repository), "--issue", str(issue))
    sentence = await run_rejected(scenario, *start)
    assert "responds at unix:///nowhere/docker.sock (No such file or directory)" in sentence
    assert "use --sandbox local" in sentence
    assert "use --sandbox local" not in await run_rejected(scenario, *start, "--image", "no/such:image")
    assert scenario.endpoint.requests == []


@pytest.mark.docker
async def test_a_missing_base_image_is_named(scenario: Scenario, repository: Path, issue: Path) -> None:
    start = ("resolve", "--repo", str(repository), "--issue", str(issue), "--sandbox", "docker")
    sentence = await run_rejected(scenario, *start, "--image", "no-such-image:here")
    assert "no-such-image:here" in sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("resolve",), "Pass the URL of an issue, or --repo PATH with --issue FILE"),
        (("resolve", "--repo", "{repository}"), "--repo also needs --issue FILE"),
        (("resolve", "--issue", "{issue}"), "--issue also needs --repo PATH"),
        (("resolve", "--repo", "/nowhere", "--issue", "{issue}"), "/nowhere"),
        (
            ("resolve", "--repo", "{repository}", "--issue", "/nowhere.md"),
            "Cannot read the issue file /nowhere.md",
        ),
        (("resolve", "--continue", "no-such-run"), "no-such-run"),
        (("resolve", "--continue", "../../etc"), "is not the name of a run"),
        (("runs", "--config", "no.toml"), "The settings file no.toml does not exist. Check --config"),
        (("resolve", "--answer", "yes"), "--answer needs --continue RUN"),
        (("resolve", "acme/calc#1", "--include-changes"), "--include-changes works only with --repo"),
        (("resolve", "--continue", "last", "--repo", "{repository}"), "Do not pass another issue"),
        (("resolve", "--continue", "last", "acme/calc#1"), "Do not pass another issue"),
        (
            ("resolve", "--repo", "{repository}", "--issue", "{issue}", "--max-usd", "much"),
            "--max-usd: 'much' is",
        ),
        (("serve",), "PATCHWRIGHT_WEBHOOK_SECRET"),
    ],
)
async def test_a_usage_error_is_explained(
    scenario: Scenario, repository: Path, issue: Path, arguments: tuple[str, ...], expected: str
) -> None:
    scenario.environment.pop("PATCHWRIGHT_WEBHOOK_SECRET")
    filled = (argument.format(repository=repository, issue=issue) for argument in arguments)
    assert expected in await run_rejected(scenario, *filled)


async def test_a_directory_without_a_commit_is_reported(
    scenario: Scenario, issue: Path, tmp_path: Path
) -> None:
    await scenario.script_model(*FIX_TURNS)
    empty = Repository(tmp_path / "empty").path
    assert "has no commit" in await run_rejected(
        scenario, "resolve", "--repo", str(empty), "--issue", str(issue), code=2
    )
    (tmp_path / "plain").mkdir()
    sentence = await run_rejected(
        scenario, "resolve", "--repo", str(tmp_path / "plain"), "--issue", str(issue), code=2
    )
    assert "is not a git repository" in sentence
    assert scenario.runs == ()  # rejected runs are not listed


async def test_an_empty_repository_on_the_forge_is_reported(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files={})
    await scenario.script_model(*FIX_TURNS)
    sentence = await run_rejected(
        scenario, "resolve", f"{scenario.fake_github.server_url}/acme/calc/issues/1", code=2
    )
    assert "no commit" in sentence
    assert scenario.fake_github.writes == ()


async def test_a_huge_issue_and_one_without_a_body_are_resolved(
    scenario: Scenario, repository: Path, tmp_path: Path
) -> None:
    issue = tmp_path / "long.md"
    issue.write_text("add() subtracts\n\n" + "word " * 200_000)
    await scenario.script_model(*FIX_TURNS)
    start = ("resolve", "--repo", str(repository), "--issue", str(issue), "--json")
    code, out, error = await scenario.command(*start)
    assert (code, json.loads(out)["verdict"]) == (0, "fixed"), error
    assert len(scenario.endpoint.requests[0]["messages"][1]["content"]) < 40_000
    issue.write_text("add() subtracts")
    await scenario.script_model(*FIX_TURNS)
    code, out, error = await scenario.command(*start)
    assert (code, json.loads(out)["verdict"]) == (0, "fixed"), error


async def test_hanging_tests_are_stopped_and_reported(
    scenario: Scenario, tmp_path: Path, issue: Path
) -> None:
    made = Repository(tmp_path / "hanging")
    made.commit(
        {"calc.py": CODE, "tests/test_hang.py": "import time\ndef test_hang():\n    time.sleep(600)\n"}
    )
    scenario.environment["PATCHWRIGHT_TEST_TIMEOUT"] = "2"
    await scenario.script_model(RecordedTurn("Fix.", FIX), RecordedTurn("Done.", DONE))
    code, out, error = await scenario.command(
        "resolve", "--repo", str(made.path), "--issue", str(issue), "--json"
    )
    result = json.loads(out)
    assert (code, result["verdict"]) == (5, "untested"), error
    assert "2 s" in result["reason"]


async def test_json_is_the_only_thing_on_standard_output(
    scenario: Scenario, repository: Path, issue: Path, tmp_path: Path
) -> None:
    await scenario.script_model(RecordedTurn("Fix.", FIX), RecordedTurn("Done.", DONE))
    start = ("resolve", "--repo", str(repository), "--issue", str(issue), "--json")
    code, out, _ = await scenario.command(*start, "--out", str(tmp_path / "fix.diff"))
    result = json.loads(out)
    assert (code, result["verdict"], result["steps"], result["cost_usd"]) == (
        5,
        "unproven",
        4,
        None,
    )  # its finish is rejected once
    assert result["patch"] == (tmp_path / "fix.diff").read_text()
    code, out, _ = await scenario.command("resolve", "--json")
    assert (code, json.loads(out)["outcome"]) == (2, "error")


async def test_a_server_whose_worker_cannot_start_reports_it_as_json_too(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    del scenario.environment["PATCHWRIGHT_MODEL"]
    code, out, error = await scenario.command("serve", "--port", "0", "--json")
    result = json.loads(out)
    assert (code, result["outcome"], result["exit_code"]) == (2, "error", 2)
    assert error.splitlines()[-1].startswith("patchwright: PATCHWRIGHT_MODEL is not set")


async def test_a_dry_run_shows_the_pull_request_and_writes_nothing(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    url = f"{scenario.fake_github.server_url}/acme/calc/issues/1"
    code, out, error = await scenario.command("resolve", "--dry-run", url)
    assert code == 0, error
    assert "pull request: Fix: add(2, 3) gives -1\n" in out
    assert "**Fixed:**" in out
    assert "pull request: none (dry run)\n" in out
    assert scenario.fake_github.writes == ()


async def test_model_output_cannot_control_the_terminal(
    scenario: Scenario, repository: Path, issue: Path
) -> None:
    evil = RunShell(command=r"printf '\033]0;owned\007\033[2Jgone'")
    await scenario.script_model(
        RecordedTurn("\x1b[2JLook.", evil), RecordedTurn("Fix.", FIX, NEW_TEST), RecordedTurn("Done.", DONE)
    )
    code, out, error = await scenario.command("resolve", "--repo", str(repository), "--issue", str(issue))
    assert code == 0
    assert "\x1b" not in out + error


async def test_without_an_engine_the_server_and_the_image_build_exit_at_once(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    scenario.environment["DOCKER_HOST"] = "unix:///nowhere/docker.sock"
    for command in (("serve", "--poll", "--port", "0"), ("prepare",)):
        assert "no Docker engine responds" in await run_rejected(scenario, *command, "--sandbox", "docker")
