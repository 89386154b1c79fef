"""the fake server's GraphQL half does what GitHub's schema has, on real repositories, and takes nothing else."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from patchwright.demo.github import FakeGitHub, Repository, SpecViolation

Client = Callable[..., httpx.AsyncClient]

COMMIT = """mutation Commit($input: CreateCommitOnBranchInput!) {
  createCommitOnBranch(input: $input) { commit { oid } }
}"""


@pytest.fixture
def ask(fake_github: FakeGitHub, client: Client) -> Callable[..., Any]:
    async def send_query(
        query: str, variables: dict[str, Any], *, by: str = "maintainer", token: str = ""
    ) -> Any:
        async with client(fake_github, token or fake_github.create_token(by)) as api:
            answer = await api.post(fake_github.graphql_url, json={"query": query, "variables": variables})
        assert answer.status_code == 200, answer.text
        return answer.json()

    return send_query


def change(
    repo: Repository, additions: dict[str, bytes], deletions: tuple[str, ...] = (), expected: str = ""
) -> dict[str, Any]:
    added = [
        {"path": path, "contents": base64.b64encode(content).decode()} for path, content in additions.items()
    ]
    return {
        "input": {
            "branch": {"repositoryNameWithOwner": repo.full_name, "branchName": "main"},
            "expectedHeadOid": expected or repo.bare.branch_sha("main"),
            "message": {"headline": "Change", "body": "Because.\n\nIssue: #1"},
            "fileChanges": {"additions": added, "deletions": [{"path": path} for path in deletions]},
        }
    }


async def test_a_commit_over_the_api_is_signed_and_on_the_branch(
    fake_github: FakeGitHub, repo: Repository, client: Client, ask: Callable[..., Any]
) -> None:
    before = repo.bare.branch_sha("main")
    done = await ask(COMMIT, change(repo, {"new/a.bin": b"\x00\xff\r\n"}, ("calc.py",)))
    sha = done["data"]["createCommitOnBranch"]["commit"]["oid"]
    assert repo.bare.branch_sha("main") == sha
    assert repo.bare.read("main", "new/a.bin") == b"\x00\xff\r\n"
    assert repo.bare.read("main", "calc.py") is None
    async with client(fake_github, fake_github.create_token("maintainer")) as api:
        data = (await api.get(f"/repos/acme/sample/git/commits/{sha}")).json()
        first = (await api.get(f"/repos/acme/sample/git/commits/{before}")).json()
    assert [parent["sha"] for parent in data["parents"]] == [before]
    assert data["author"]["name"] == "maintainer"
    assert data["message"] == "Change\n\nBecause.\n\nIssue: #1"
    assert (data["verification"]["verified"], first["verification"]["verified"]) == (True, False)


async def test_an_invalid_commit_is_rejected_as_on_github(
    fake_github: FakeGitHub, repo: Repository, ask: Callable[..., Any]
) -> None:
    main = repo.bare.branch_sha("main")
    app = fake_github.create_app()
    token = fake_github.create_installation_token(fake_github.install_app(app, repo))
    stale = await ask(COMMIT, change(repo, {"a": b""}, expected="1" * 40))
    stranger = await ask(COMMIT, change(repo, {"a": b""}), by="stranger")
    absent = await ask(COMMIT, change(repo, {}, ("absent.txt",)))
    twice = await ask(COMMIT, change(repo, {"calc.py": b""}, ("calc.py",)))
    workflow = await ask(COMMIT, change(repo, {".github/workflows/ci.yml": b""}), token=token)
    repo.protect("ma*", "Changes must be made through a pull request.")
    protected = await ask(COMMIT, change(repo, {"a": b""}))
    answers = (stale, stranger, absent, twice, workflow, protected)
    assert [answer["data"] for answer in answers] == [{"createCommitOnBranch": None}] * 6
    assert [answer["errors"][0]["type"] for answer in answers] == [
        "STALE_DATA",
        "FORBIDDEN",
        "UNPROCESSABLE",
        "UNPROCESSABLE",
        "FORBIDDEN",
        "BRANCH_PROTECTION_RULE_VIOLATION",
    ]
    assert "`.github/workflows/ci.yml` without `workflows` permission" in workflow["errors"][0]["message"]
    assert repo.bare.branch_sha("main") == main


async def test_the_viewer_query_names_users_and_installations(
    fake_github: FakeGitHub, repo: Repository, ask: Callable[..., Any]
) -> None:
    tokens = [
        fake_github.create_installation_token(fake_github.install_app(fake_github.create_app(name), repo))
        for name in ("one", "two")
    ]
    tokens.append(fake_github.create_token("maintainer"))
    answers = [await ask("query { viewer { login } }", {}, token=token) for token in tokens]
    assert [answer["data"]["viewer"]["login"] for answer in answers] == ["one[bot]", "two[bot]", "maintainer"]


@pytest.mark.parametrize(
    ("query", "variables", "fault"),
    [
        (COMMIT.replace("commit { oid }", "commit { color }"), {}, "Cannot query field 'color'"),
        (COMMIT, {"input": {"branch": {}}}, "expectedHeadOid"),
        ("mutation {", {}, "Syntax Error"),
        (
            "query Q($id: ID!) { node(id: $id) { id } }",
            {"id": "x"},
            "the fake server does not support this request",
        ),
    ],
)
async def test_a_query_that_violates_the_schema_is_rejected_and_recorded(
    client: Client, query: str, variables: dict[str, Any], fault: str
) -> None:
    with pytest.raises(SpecViolation) as caught:
        async with FakeGitHub() as fake_github:
            repo = fake_github.create_repository(
                "acme/sample", {"a": "1"}, permissions={"maintainer": "write"}
            )
            before = repo.bare.branch_sha("main")
            async with client(fake_github, fake_github.create_token("maintainer")) as api:
                body = {"query": query, "variables": variables or change(repo, {"b": b"2"})}
                await api.post(fake_github.graphql_url, json=body)
            assert repo.bare.branch_sha("main") == before
    assert str(caught.value).startswith("POST /graphql: ")
    assert fault in str(caught.value)


async def test_a_ref_is_created_once_and_only_for_existing_commits(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    sha = repo.bare.branch_sha("main")
    wanted = {"ref": "refs/heads/patchwright/issue-1", "sha": sha}
    repo.protect("release/*", "No.")
    async with client(fake_github, fake_github.create_token("maintainer")) as api:
        made = [
            (await api.post("/repos/acme/sample/git/refs", json=wanted | change)).status_code
            for change in (
                {},
                {},
                {"ref": "refs/heads/other", "sha": "1" * 40},
                {"ref": "refs/heads/release/1"},
                {"ref": "refs/heads/a..b"},
            )
        ]
    assert made == [201, 422, 422, 422, 422]
    assert repo.branches == ("main", "patchwright/issue-1")


@pytest.mark.slow
def test_without_graphql_core_requests_are_answered_without_validation() -> None:
    program = (
        "import json, sys; sys.modules['graphql'] = None\n"
        "from patchwright.demo.github.graphql_schema import execute_query, validate_query\n"
        "root = {'a': {'b': [1], 'nested': lambda info: 2}}\n"
        "print(json.dumps([validate_query('nonsense', {}), execute_query('nonsense', {}, root)]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], [{"a": {"b": [1]}}, []]]
