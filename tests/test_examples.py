"""The programs of `examples/` and of docs/library.md run as they are shown."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedCall, RecordedTurn
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import ReplaceText, RunShell
from tests.contracts.workspace_servers import (
    TOKEN,
    run_redis,
    serve_workspaces,
    start_server,
    wait_until_ready,
)
from tests.preloaded_command import preloaded_python
from tests.resolver.git_repository import Repository
from tests.sdk.model_endpoint import KEY, serve_model

ROOT = Path(__file__).parents[1]
FIX = RecordedTurn("", ReplaceText(path="calc.py", old="a - b", new="a + b"))
DONE = RecordedTurn("", Finish(cause="It subtracted.", change="It adds.", testing="pytest"))
CODE = "def add(a, b):\n    return a - b\n"
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHWRIGHT_DATA", str(tmp_path / "data"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    Repository(path).commit({"calc.py": CODE, "test_calc.py": TEST})
    return path


def model_variables(url: str) -> dict[str, str]:
    return {"MODEL": "openai/recorded", "OPENAI_API_KEY": KEY, "BASE_URL": url}


def run(program: str | Path, *arguments: str | Path, url: str, **variables: str) -> str:
    environment = {**os.environ, **model_variables(url), "SANDBOX": "local", **variables}
    command = [*preloaded_python(), str(program), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_agent_in_five_lines_changes_a_directory(project: Path) -> None:
    with serve_model(FIX, DONE) as (_, endpoint):
        output = run(ROOT / "examples/five_lines.py", project, "Make add() add.", url=endpoint.base_url)
    assert output.startswith("It subtracted.")
    assert "+    return a + b" in output
    assert (project / "calc.py").read_text() == CODE.replace("a - b", "a + b")


@pytest.mark.slow
def test_a_function_is_a_tool(project: Path) -> None:
    ask = RecordedTurn("", calls=(RecordedCall(name="look_up_price", arguments={"product": "tea"}),))
    with serve_model(ask, RecordedTurn("Tea costs 3 dollars.")) as (_, endpoint):
        output = run(ROOT / "examples/custom_tool.py", project, "Price of tea?", url=endpoint.base_url)
    assert output == "Tea costs 3 dollars.\n"
    assert "tea: 3" in endpoint.requests[1]["messages"][-1]["content"]


@pytest.mark.slow
def test_a_router_changes_the_model(project: Path) -> None:
    looks = [RecordedTurn("", RunShell(command=f"echo {number}")) for number in range(3)]
    with serve_model(*looks, RecordedTurn("Done.")) as (_, endpoint):
        output = run(
            *(ROOT / "examples/router.py", project, "Look."),
            url=endpoint.base_url,
            LARGE_MODEL="openai/large",
        )
    models = [line.split()[1] for line in output.splitlines()[1:]]
    assert models == ["openai/recorded"] * 3 + ["openai/large"]


def test_events_are_followed_and_the_run_pauses(project: Path) -> None:
    with serve_model(FIX, DONE) as (_, endpoint):
        output = run(ROOT / "examples/follow_events.py", project, "Make add() add.", url=endpoint.base_url)
    assert output.splitlines()[:3] == ["2 edit calc.py", "paused", "5 finish"]


@pytest.mark.slow
def test_an_issue_is_resolved_with_proof(project: Path, tmp_path: Path) -> None:
    (tmp_path / "bug.md").write_text("add() subtracts\n\nIt should add.\n")
    with serve_model(FIX, RecordedTurn("", RunShell(command="python3 -m pytest -q")), DONE) as (_, endpoint):
        output = run(ROOT / "examples/resolve_issue.py", project, tmp_path / "bug.md", url=endpoint.base_url)
    assert output.startswith("fixed, ")
    assert "+    return a + b" in output
    assert (project / "calc.py").read_text() == CODE


@pytest.mark.slow
def test_an_issue_is_resolved_in_many_repositories(project: Path, tmp_path: Path) -> None:
    Repository(tmp_path / "second").commit({"calc.py": CODE, "test_calc.py": TEST})
    (tmp_path / "bug.md").write_text("add() subtracts\n\nIt should add.\n")
    with serve_model(FIX, RecordedTurn("", RunShell(command="python3 -m pytest -q")), DONE) as (_, endpoint):
        output = run(
            *(ROOT / "examples/many_repositories.py", tmp_path / "bug.md", project, tmp_path / "second"),
            url=endpoint.base_url,
        )
    assert sorted(line.partition(",")[0] for line in output.splitlines()) == [
        "project: fixed",
        "second: fixed",
    ]


@pytest.mark.slow
@pytest.mark.docker
def test_an_agent_works_on_a_server(project: Path, tmp_path: Path) -> None:
    with (
        serve_model(FIX, DONE) as (_, endpoint),
        serve_workspaces(tmp_path / "server") as (host, _),
    ):
        output = run(
            *(ROOT / "examples/remote_conversation.py", host, project / "calc.py", "Make add() add."),
            url=endpoint.base_url,
            API_KEY=TOKEN,
        )
    assert output.startswith("It subtracted.")
    assert output.endswith("return a + b\n\n")


@pytest.mark.slow
@pytest.mark.docker
def test_a_client_in_another_language_goes_on_after_the_server_was_killed(tmp_path: Path) -> None:
    node = [shutil.which("node") or "false", "--experimental-websocket"]  # Node.js 22 needs no option.
    if subprocess.run([*node, "-e", ""], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs Node.js 20 or later")
    with (
        serve_model(RecordedTurn("", RunShell(command="sleep 4")), RecordedTurn("I looked.")) as (
            _,
            endpoint,
        ),
        run_redis(tmp_path / "redis") as redis_url,
    ):
        server, host = start_server(tmp_path / "server", REDIS_URL=redis_url)
        wait_until_ready(host)
        client = subprocess.Popen(
            [*node, ROOT / "examples/remote_conversation.mjs", host, "Look."],
            env=os.environ | {"API_KEY": TOKEN, **model_variables(endpoint.base_url)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout is not None
        before = [client.stdout.readline() for _ in range(2)]
        server.kill()
        server.wait()
        time.sleep(3)  # The client tries to connect, and fails.
        server, _ = start_server(tmp_path / "server", host.rpartition(":")[2], REDIS_URL=redis_url)
        wait_until_ready(host)
        after, _ = client.communicate("\n", timeout=90)
        server.terminate()
        server.wait(30)
    assert before == ["run_shell\n", "Paused. Press Enter.\n"]
    assert after == "finished: I looked.\n"


@contextmanager
def image_named(name: str) -> Iterator[None]:
    """Gives the base image of the tests another name, unless there is an image of this name."""
    if subprocess.run(["docker", "image", "inspect", name], capture_output=True).returncode == 0:
        yield
        return
    subprocess.run(["docker", "tag", "debian:bookworm-slim", name], check=True)
    try:
        yield
    finally:
        subprocess.run(["docker", "rmi", name], check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.docker
def test_the_program_of_the_readme_runs_word_for_word(project: Path, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert program in (ROOT / "docs/library.md").read_text()
    (tmp_path / "five.py").write_text(program)
    with image_named("python:3.12-slim"), serve_model(FIX, DONE) as (_, endpoint):
        subprocess.run(
            [*preloaded_python(), "five.py"],
            cwd=tmp_path,
            env={
                **os.environ,
                "ANTHROPIC_API_KEY": KEY,
                "ANTHROPIC_BASE_URL": endpoint.base_url.removesuffix("/v1"),
            },
            check=True,
            timeout=280,
        )
    assert (project / "calc.py").read_text() == CODE.replace("a - b", "a + b")
    assert len(endpoint.requests) == 2


def test_the_five_lines_need_only_another_workspace_without_docker(project: Path, tmp_path: Path) -> None:
    (program, *_) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/library.md").read_text(), re.DOTALL)
    local = program.replace(
        'DockerWorkspace(image="python:3.12-slim", path="./project")', 'LocalWorkspace("./project")'
    )
    local = local.replace("DockerWorkspace", "LocalWorkspace")
    changed = [
        pair for pair in zip(program.splitlines(), local.splitlines(), strict=True) if len(set(pair)) == 2
    ]
    assert len(changed) == 2 and all(
        "LocalWorkspace" in line for _, line in changed
    )  # the import, and the use
    (tmp_path / "five.py").write_text(local)
    with serve_model(FIX, DONE) as (_, endpoint):
        url = endpoint.base_url.removesuffix("/v1")
        environment = {**os.environ, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url}
        subprocess.run(
            [*preloaded_python(), "five.py"], cwd=tmp_path, env=environment, check=True, timeout=200
        )
    assert (project / "calc.py").read_text() == CODE.replace("a - b", "a + b")
