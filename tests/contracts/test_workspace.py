"""The contract of every workspace: on this machine, in Docker, and on a server."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from patchwright import (
    APIRemoteWorkspace,
    BaseWorkspace,
    Conversation,
    DockerWorkspace,
    LocalConversation,
    LocalWorkspace,
    RemoteConversation,
    RemoteWorkspace,
    ServerError,
    Workspace,
    default_agent,
)
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.errors import WorkspaceError
from patchwright.runtime.actions import ReplaceText, RunShell
from patchwright.runtime.docker import sandbox_container
from patchwright.runtime.errors import SandboxError
from tests.contracts.runtime_api import API_KEY, serve_runtime_api
from tests.contracts.workspace_servers import serve_workspaces
from tests.resolver.git_repository import Repository
from tests.sdk.model_endpoint import serve_model

KINDS = [
    "local",
    pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow]),
    pytest.param("remote", marks=[pytest.mark.docker, pytest.mark.slow]),
    pytest.param("provisioned", marks=[pytest.mark.docker, pytest.mark.slow]),
]
BASE_IMAGE = "debian:bookworm-slim"


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHWRIGHT_DATA", str(tmp_path / "data"))


@contextmanager
def open_remote_workspace(kind: str, data: Path) -> Iterator[BaseWorkspace]:
    if kind == "remote":
        with serve_workspaces(data) as (host, key), Workspace(host=host, api_key=key) as workspace:
            yield workspace
    else:
        with serve_runtime_api(data) as (url, _), APIRemoteWorkspace(url, API_KEY) as provisioned:
            yield provisioned


@contextmanager
def open_workspace(kind: str, project: Path) -> Iterator[BaseWorkspace]:
    if kind in {"remote", "provisioned"}:
        with open_remote_workspace(kind, project.parent / "server") as workspace:
            for file in project.iterdir():
                workspace.file_upload(file.name, file.read_bytes())
            yield workspace
        return
    workspaces = {
        "local": lambda: LocalWorkspace(project),
        "docker": lambda: DockerWorkspace(image=BASE_IMAGE, path=project, features=(), network="none"),
    }
    with workspaces[kind]() as workspace:
        yield workspace


@pytest.fixture(params=KINDS)
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseWorkspace]:
    project = tmp_path / "project"
    project.mkdir()
    (project / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    with open_workspace(request.param, project) as workspace:
        yield workspace


def test_a_workspace_runs_commands_and_moves_files(workspace: BaseWorkspace) -> None:
    result = workspace.execute_command("pwd; cat calc.py; echo problem >&2; exit 3")
    assert (result.exit_code, result.stderr, result.ok) == (3, "problem\n", False)
    assert result.stdout == f"{workspace.working_dir}\ndef add(a, b):\n    return a - b\n"
    assert workspace.execute_command("sleep 30", timeout=1).exit_code is None

    content = bytes(range(256)) * 20_000
    workspace.file_upload("new/data.bin", content)
    assert workspace.file_download("new/data.bin") == content
    assert workspace.execute_command("stat -c %s new/data.bin").stdout == f"{len(content)}\n"
    workspace.file_upload("new/data.bin", b"")
    assert workspace.file_download("new/data.bin") == b""
    with pytest.raises(FileNotFoundError):
        workspace.file_download("missing.txt")
    with pytest.raises(TypeError):
        workspace.file_upload("text.txt", "dGV4dA==")  # type: ignore[arg-type]


def test_a_workspace_tells_what_was_changed_since_it_was_opened(workspace: BaseWorkspace) -> None:
    if isinstance(workspace, RemoteWorkspace):
        workspace.execute_command("git add -A && git commit -qm uploaded")
    before = workspace.changed_files()
    assert "new" not in before
    workspace.execute_command(
        "sed -i 's/a - b/a + b/' calc.py; mkdir __pycache__; touch __pycache__/x.pyc; touch new"
    )
    assert "calc.py" in workspace.changed_files()
    assert set(workspace.changed_files()) - set(before) | {"calc.py"} == {"calc.py", "new"}
    assert b"+    return a + b" in workspace.diff()
    assert b"__pycache__" not in workspace.diff()


def test_the_same_conversation_runs_in_every_workspace(workspace: BaseWorkspace) -> None:
    fix = ReplaceText(path="calc.py", old="a - b", new="a + b")
    with (
        serve_model(RecordedTurn("", RunShell(command="cat calc.py"), fix), RecordedTurn("It adds now.")) as (
            llm,
            _,
        ),
        Conversation(default_agent(llm), workspace) as conversation,
    ):
        is_remote = isinstance(workspace, RemoteWorkspace)
        assert isinstance(conversation, RemoteConversation if is_remote else LocalConversation)
        conversation.send_message("Make add() add.")
        state = conversation.run()
        assert (state.status, state.answer, state.steps) == ("finished", "It adds now.", 2)
        kinds = [entry.event.kind for entry in conversation.events if entry.event.kind != "checkpoint"]
        assert kinds == [
            *("system_prompt", "message", "model_reply", "tool_result", "tool_result"),
            *("model_reply", "agent_stopped"),
        ]
        assert conversation.cost > 0
    assert workspace.file_download("calc.py") == b"def add(a, b):\n    return a + b\n"


def test_only_the_host_decides_the_class_of_a_workspace(tmp_path: Path) -> None:
    assert isinstance(Workspace(host="http://127.0.0.1:9"), RemoteWorkspace)
    assert isinstance(Workspace("http://127.0.0.1:9", tmp_path / "project", api_key="key"), RemoteWorkspace)
    assert not (tmp_path / "project").exists()
    with Workspace(working_dir=tmp_path / "project", api_key="key") as workspace:
        assert isinstance(workspace, LocalWorkspace) and (tmp_path / "project").is_dir()


@pytest.mark.parametrize("kind", [str, Path, LocalWorkspace])
def test_a_path_or_a_local_workspace_gives_a_local_conversation(
    kind: Callable[[str], str | Path | LocalWorkspace], tmp_path: Path
) -> None:
    for more in ({}, {"id": "one"}, {"persistence_dir": tmp_path / "logs"}):
        with Conversation(default_agent("fake/model"), kind(str(tmp_path)), **more) as conversation:
            assert isinstance(conversation, LocalConversation)


def test_a_local_workspace_refuses_paths_outside_its_directory(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/link").symlink_to(tmp_path)
    with Workspace(working_dir=tmp_path / "project") as workspace:
        assert isinstance(workspace, LocalWorkspace)
        for path in ("../outside", str(tmp_path / "outside"), "link/outside"):
            with pytest.raises(WorkspaceError):
                workspace.file_upload(path, b"x")
            with pytest.raises(WorkspaceError):
                workspace.file_download(path)


@pytest.mark.slow
@pytest.mark.docker
def test_an_api_provisions_a_runtime_and_deletes_it_when_the_block_ends(tmp_path: Path) -> None:
    with serve_runtime_api(tmp_path / "api") as (url, api):
        with APIRemoteWorkspace(url, API_KEY) as workspace:
            assert [runtime["status"] for runtime in api.runtimes.values()] == ["running"]
            assert workspace.execute_command("echo works").stdout == "works\n"
        assert api.runtimes == {}
        with pytest.raises(ZeroDivisionError), APIRemoteWorkspace(url, API_KEY):
            raise ZeroDivisionError
        assert api.runtimes == {}


@pytest.mark.parametrize(
    ("status", "message"), [("error", "its status is 'error'"), ("starting", "within 2 s")]
)
def test_a_runtime_that_does_not_start_is_deleted(status: str, message: str, tmp_path: Path) -> None:
    with serve_runtime_api(tmp_path, status) as (url, api):
        with pytest.raises(WorkspaceError, match=message), APIRemoteWorkspace(url, API_KEY, start_timeout=2):
            raise AssertionError("The runtime did not start.")
        assert api.runtimes == {} and api.requests[-1][0] == "DELETE"
        with pytest.raises(ServerError, match="No key"), APIRemoteWorkspace(url):
            raise AssertionError("The API rejects requests without a key.")


@pytest.mark.slow
@pytest.mark.docker
def test_changes_in_a_container_are_written_back_when_the_block_ends(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "project")
    repository.commit({"calc.py": "one\n", "old.py": "x\n"})
    (tmp_path / "project/notes.txt").write_text("not committed\n")
    workspace = DockerWorkspace(image=BASE_IMAGE, path=tmp_path / "project", features=(), network="none")
    with pytest.raises(WorkspaceError, match="use it in a block"):
        workspace.execute_command("true")
    with workspace:
        assert workspace.file_download("notes.txt") == b"not committed\n"
        workspace.execute_command(
            "echo two > calc.py; rm old.py; echo more >> notes.txt; ln -s /etc/passwd link"
        )
        assert (tmp_path / "project/calc.py").read_text() == "one\n"
    assert (tmp_path / "project/calc.py").read_text() == "two\n"
    assert (tmp_path / "project/notes.txt").read_text() == "not committed\nmore\n"
    assert not (tmp_path / "project/old.py").exists()


@pytest.mark.slow
@pytest.mark.docker
def test_a_conflict_with_a_change_in_the_directory_loses_neither_side(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    file = tmp_path / "project/calc.py"
    file.write_text("one\n")
    opened = DockerWorkspace(image=BASE_IMAGE, path=tmp_path / "project", features=(), network="none")
    with pytest.raises(WorkspaceError, match="The patch is saved in") as caught, opened as workspace:
        workspace.execute_command("echo two > calc.py")
        file.write_text("three\n")
    assert file.read_text() == "three\n"
    saved = Path(str(caught.value).rpartition("saved in ")[2].rstrip("."))
    assert b"+two" in saved.read_bytes()


def list_containers() -> set[str]:
    names = ("--format", "{{.Names}}", "--filter", "name=patchwright-workspace-")
    return set(subprocess.check_output(["docker", "ps", "--all", *names], text=True).split())


@pytest.mark.slow
@pytest.mark.docker
def test_the_container_is_removed_even_after_an_exception() -> None:
    before = list_containers()
    opened = DockerWorkspace(image=BASE_IMAGE, features=(), network="none")
    with pytest.raises(RuntimeError, match="mine"), opened as workspace:
        assert workspace.execute_command("echo up").stdout == "up\n"
        started = list_containers() - before
        assert started
        raise RuntimeError("mine")
    assert not started & list_containers()


@pytest.mark.slow
@pytest.mark.docker
def test_a_container_whose_server_does_not_start_is_removed_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = list_containers()
    monkeypatch.setattr(sandbox_container, "BOOTSTRAP_CODE", "raise SystemExit('no server')")
    opened = DockerWorkspace(image=BASE_IMAGE, features=(), network="none")
    with pytest.raises(SandboxError, match=r"(?s)the sandbox did not start .*no server"), opened:
        raise AssertionError("The server did not start.")
    assert list_containers() <= before
