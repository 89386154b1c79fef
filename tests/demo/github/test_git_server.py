"""Clone and push by a real git over HTTP; the fake server lets in whom GitHub would."""

import asyncio
import base64
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from patchwright.demo.github import FakeGitHub, Repository
from patchwright.demo.github.bare_repository import GIT, GIT_ENVIRONMENT

Client = Callable[..., httpx.AsyncClient]


async def git(*arguments: str, token: str | None = None, cwd: Path | None = None) -> tuple[int, str]:
    """Exit code and everything printed by a real git, the token in its environment alone."""
    environment = dict(GIT_ENVIRONMENT)
    if token is not None:
        basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        environment |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "http.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {basic}",
        }
    process = await asyncio.create_subprocess_exec(
        GIT, "-c", "user.name=T", "-c", "user.email=t@t.invalid", *arguments,
        env=environment, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    printed, _ = await asyncio.wait_for(process.communicate(), timeout=60)
    assert process.returncode is not None
    return process.returncode, printed.decode(errors="replace")


async def clone_with_change(fake_github: FakeGitHub, tmp_path: Path, branch: str = "fix") -> Path:
    """A clone of acme/sample with one commit on a new branch."""
    tree = tmp_path / "clone"
    code, printed = await git("clone", "-q", f"{fake_github.server_url}/acme/sample.git", str(tree))
    assert code == 0, printed
    await git("switch", "-qc", branch, cwd=tree)
    (tree / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    code, printed = await git("commit", "-qam", "Add", cwd=tree)
    assert code == 0, printed
    return tree


async def test_a_clone_over_http_has_the_files(
    fake_github: FakeGitHub, repo: Repository, tmp_path: Path
) -> None:
    code, printed = await git("clone", "-q", f"{fake_github.server_url}/acme/sample.git", str(tmp_path / "c"))
    assert code == 0, printed
    assert {
        file.relative_to(tmp_path / "c").as_posix(): file.read_text()
        for file in (tmp_path / "c").rglob("*")
        if file.is_file() and ".git" not in file.relative_to(tmp_path / "c").parts
    } == {"calc.py": repo.read("main", "calc.py"), "docs/Größe und mehr.md": "größer\n"}


async def test_a_push_needs_a_token_with_write_access(
    fake_github: FakeGitHub, repo: Repository, tmp_path: Path
) -> None:
    tree = await clone_with_change(fake_github, tmp_path)
    for token in (
        None,
        "ghp_unknown",
        fake_github.create_token("stranger"),
        fake_github.create_token("triager"),
    ):
        code, printed = await git("push", "-q", "origin", "fix", token=token, cwd=tree)
        assert code != 0, printed
    assert repo.branches == ("main",)

    code, printed = await git(
        "push", "-q", "origin", "fix", token=fake_github.create_token("maintainer"), cwd=tree
    )
    assert code == 0, printed
    assert repo.read("fix", "calc.py").endswith("a + b\n")
    assert [write.login for write in fake_github.writes if write.path.endswith("git-receive-pack")] == [
        "maintainer"
    ]


async def test_a_large_push_arrives_complete(
    fake_github: FakeGitHub, repo: Repository, tmp_path: Path
) -> None:
    """Over 1 MiB git sends chunks, without a length."""
    tree = await clone_with_change(fake_github, tmp_path)
    big = hashlib.shake_256(b"incompressible").digest(3_000_000)
    (tree / "big.bin").write_bytes(big)
    await git("add", ".", cwd=tree)
    await git("commit", "-qm", "Grow", cwd=tree)
    code, printed = await git(
        "push", "-q", "origin", "fix", token=fake_github.create_token("maintainer"), cwd=tree
    )
    assert code == 0, printed
    assert repo.bare.read("refs/heads/fix", "big.bin") == big


async def test_a_private_repository_is_cloned_only_with_read_access(
    fake_github: FakeGitHub, tmp_path: Path
) -> None:
    fake_github.create_repository(
        "acme/secret", {"a.txt": "a\n"}, private=True, permissions={"reader": "read"}
    )
    url = f"{fake_github.server_url}/acme/secret.git"
    assert (await git("clone", "-q", url, str(tmp_path / "a")))[0] != 0
    assert (await git("clone", "-q", url, str(tmp_path / "b"), token=fake_github.create_token("stranger")))[
        0
    ] != 0
    assert (await git("clone", "-q", url, str(tmp_path / "c"), token=fake_github.create_token("reader")))[
        0
    ] == 0


async def test_an_installation_token_pushes_only_to_its_repositories(
    fake_github: FakeGitHub, repo: Repository, tmp_path: Path
) -> None:
    other = fake_github.create_repository("acme/other", {"a.txt": "a\n"})
    app = fake_github.create_app()
    tree = await clone_with_change(fake_github, tmp_path)
    elsewhere = fake_github.create_installation_token(fake_github.install_app(app, other))
    assert (await git("push", "-q", "origin", "fix", token=elsewhere, cwd=tree))[0] != 0
    here = fake_github.create_installation_token(fake_github.install_app(app, repo))
    assert (await git("push", "-q", "origin", "fix", token=here, cwd=tree))[0] == 0
    fake_github.expire_tokens()
    assert (await git("push", "-q", "origin", ":fix", token=here, cwd=tree))[0] != 0


async def test_the_head_of_a_pull_request_follows_pushes(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    first = repo.commit("fix", {"calc.py": "def add(a, b):\n    return a + b\n"})
    async with client(fake_github, fake_github.create_token("maintainer")) as api:
        made = await api.post("/repos/acme/sample/pulls", json={"title": "T", "head": "fix", "base": "main"})
        assert (made.status_code, made.json()["head"]["sha"]) == (201, first)
        second = repo.commit("fix", {"more.py": "1\n"})
        data = (await api.get(f"/repos/acme/sample/pulls/{made.json()['number']}")).json()
        diff = await api.get(
            f"/repos/acme/sample/pulls/{made.json()['number']}",
            headers={"Accept": "application/vnd.github.diff"},
        )
    assert (data["head"]["sha"], data["commits"], data["changed_files"]) == (second, 2, 2)
    assert "+    return a + b" in diff.text
    assert repo.diff(repo.pulls[0]) == diff.text


@pytest.mark.slow
async def test_an_aborted_clone_leaves_no_process() -> None:
    before = open_files()
    async with httpx.AsyncClient() as client:
        async with FakeGitHub() as fake_github:
            repo = fake_github.create_repository("acme/large", {"a.txt": "a"})
            want = f"want {repo.commit('main', {'noise.txt': os.urandom(8 << 20).hex()})}\n"
            body = f"{len(want) + 4:04x}{want}00000009done\n"
            url = f"{fake_github.server_url}/acme/large.git/git-upload-pack"
            kind = {"content-type": "application/x-git-upload-pack-request"}
            asking = client.build_request("POST", url, content=body.encode(), headers=kind)
            answer = await client.send(asking, stream=True)
            assert answer.status_code == 200
        await answer.aclose()
    assert open_files() == before


def open_files() -> set[str]:
    return {os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.exists()}
