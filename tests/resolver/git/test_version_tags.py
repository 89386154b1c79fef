"""The tag of the last version reaches a sandbox: builds make a version of it, and of that what they install."""

import pytest

from resolver.workspace import Workspaces
from tests.resolver.repositories import shell


async def described(workspace, sandboxes, name: str = "x") -> str:
    """How a build in a sandbox finds its version."""
    async with sandboxes.open(name) as sandbox:
        await workspace.send(sandbox)
        assert await shell(sandbox, "git status --short; git fsck --no-dangling 2>/dev/null") == ""
        version = await shell(sandbox, "git describe --tags --match '*[0-9]*' 2>/dev/null || echo none")
        return version.partition("-g")[0].strip()


@pytest.mark.parametrize("kind", [("tag",), ("tag", "-a", "-m", "Version 1.2")])
async def test_the_last_version_is_known_with_the_commits_since(
    workspaces, sandboxes, repository, kind: tuple[str, ...]
) -> None:
    repository.commit({"a.py": "x = 1\n"})
    repository.git(*kind, "v1.1")
    repository.commit({"a.py": "x = 2\n"})
    repository.git(*kind, "v1.2")
    repository.git("tag", "latest", repository.commit({"a.py": "x = 3\n"}))
    repository.commit({"a.py": "x = 4\n"})
    async with workspaces.local(repository.path) as workspace:
        assert await described(workspace, sandboxes) == "v1.2-2"


async def test_a_version_older_than_what_is_sent_is_known_all_the_same(
    workspaces, sandboxes, repository
) -> None:
    repository.commit({"a.py": "x = 0\n"})
    repository.git("tag", "release/'1.0'\u00e9;true")
    for number in range(60):
        repository.commit({"a.py": f"x = {number}\n"})
    async with workspaces.local(repository.path) as workspace:
        assert await described(workspace, sandboxes) == "release/'1.0'\u00e9;true-49"


async def test_a_version_that_is_not_before_the_base_is_none_of_its(
    workspaces, sandboxes, repository
) -> None:
    old = repository.commit({"a.py": "x = 1\n"})
    repository.commit({"a.py": "x = 2\n"})
    repository.git("tag", "v2")
    async with workspaces.local(repository.path, old) as workspace:
        assert await described(workspace, sandboxes) == "none"


@pytest.mark.parametrize("called", ["v9", "v1~1", "../heads/v1", "v1"], ids=str)
async def test_a_tag_that_calls_itself_otherwise_is_none_or_what_it_is_called(
    workspaces, sandboxes, repository, called: str
) -> None:
    """git tells the name that an annotated tag gives itself: here one that is a file's, or no reference."""
    repository.commit({"a.py": "x = 0\n"})
    head = repository.commit({"a.py": "x = 1\n"})
    made = f"object {head}\ntype commit\ntag {called}\ntagger a <a@b> 1 +0000\n\nCrafted\n"
    repository.write("../crafted", made)
    tag = repository.git("hash-object", "-t", "tag", "-w", "--literally", "../crafted")
    repository.git("update-ref", "refs/tags/v1", tag)
    base = repository.commit({"b.py": ""})
    repository.git("tag", "-a", "-m", "A file", f"v9-1-g{base}", f"{head}:a.py")
    async with workspaces.local(repository.path) as workspace:
        assert await described(workspace, sandboxes) == ("v1-1" if called == "v1" else "none")


async def test_a_forge_gives_the_tags_of_its_branches(
    workspaces: Workspaces, sandboxes, repository, world
) -> None:
    repo = world.repository("acme/sample", {"a.py": "x = 1\n"})
    url = f"{world.server_url}/acme/sample.git"
    repo.bare.git("tag", "v1", "main")
    for content, version in (("x = 2\n", "v1-1"), ("x = 3\n", "v2")):
        head = repo.commit("main", {"a.py": content})
        if version == "v2":
            repo.bare.git("tag", "v2", head)
        async with workspaces.clone(url, "main", None) as workspace:
            assert await described(workspace, sandboxes, version) == version


async def test_a_tag_that_was_moved_or_stands_where_another_was_keeps_no_commit_out(
    workspaces: Workspaces, sandboxes, world
) -> None:
    """`v1/rc` can only be where `v1` is not: the mirror has what the forge has, a run what it began with."""
    repo = world.repository("acme/sample", {"a.py": "x = 1\n"})
    url = f"{world.server_url}/acme/sample.git"
    async with workspaces.clone(url, "main", None) as begun:
        for number, (before, name) in enumerate((("", "v1"), ("", "v1"), ("v1", "v1/rc"), ("v1/rc", "v1"))):
            if before:
                repo.bare.git("tag", "-d", before)
            head = repo.commit("main", {"a.py": f"x = {number}\n"})
            repo.bare.git("tag", "--force", name, head)
            async with workspaces.clone(url, "main", None, rules="HEAD") as workspace:
                assert await described(workspace, sandboxes, f"run-{number}") == name
            assert (await workspaces.fetch(begun, url, head, None)).base == head
