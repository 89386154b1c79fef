"""The latest version tag reaches the sandbox, where builds derive the version from it."""

import pytest

from patchwright.resolver.git.workspaces import WorkspaceFactory
from tests.resolver.git_repository import shell


async def describe_in_sandbox(workspace, sandboxes, name: str = "x") -> str:
    """Returns the version that a build in a sandbox would find."""
    async with sandboxes.open(name) as sandbox:
        await workspace.send_to(sandbox)
        assert await shell(sandbox, "git status --short; git fsck --no-dangling 2>/dev/null") == ""
        version = await shell(sandbox, "git describe --tags --match '*[0-9]*' 2>/dev/null || echo none")
        return version.partition("-g")[0].strip()


@pytest.mark.parametrize("kind", [("tag",), ("tag", "-a", "-m", "Version 1.2")])
async def test_the_latest_version_tag_is_sent_with_the_commits_since(
    workspaces, sandboxes, repository, kind: tuple[str, ...]
) -> None:
    repository.commit({"a.py": "x = 1\n"})
    repository.git(*kind, "v1.1")
    repository.commit({"a.py": "x = 2\n"})
    repository.git(*kind, "v1.2")
    repository.git("tag", "latest", repository.commit({"a.py": "x = 3\n"}))
    repository.commit({"a.py": "x = 4\n"})
    async with workspaces.local(repository.path) as workspace:
        assert await describe_in_sandbox(workspace, sandboxes) == "v1.2-2"


@pytest.mark.slow
async def test_a_version_tag_older_than_the_sent_history_is_sent(workspaces, sandboxes, repository) -> None:
    repository.commit({"a.py": "x = 0\n"})
    repository.git("tag", "release/'1.0'\u00e9;true")
    for number in range(60):
        repository.commit({"a.py": f"x = {number}\n"})
    async with workspaces.local(repository.path) as workspace:
        assert await describe_in_sandbox(workspace, sandboxes) == "release/'1.0'\u00e9;true-49"


async def test_a_version_tag_that_is_not_an_ancestor_is_not_sent(workspaces, sandboxes, repository) -> None:
    old = repository.commit({"a.py": "x = 1\n"})
    repository.commit({"a.py": "x = 2\n"})
    repository.git("tag", "v2")
    async with workspaces.local(repository.path, old) as workspace:
        assert await describe_in_sandbox(workspace, sandboxes) == "none"


@pytest.mark.slow
@pytest.mark.parametrize("tag_name", ["v9", "v1~1", "../heads/v1", "v1"], ids=str)
async def test_an_annotated_tag_with_another_name_is_ignored_or_uses_that_name(
    workspaces, sandboxes, repository, tag_name: str
) -> None:
    """git tells the name that an annotated tag gives itself: here one that is a file's, or no reference."""
    repository.commit({"a.py": "x = 0\n"})
    head = repository.commit({"a.py": "x = 1\n"})
    tag_object = f"object {head}\ntype commit\ntag {tag_name}\ntagger a <a@b> 1 +0000\n\nCrafted\n"
    repository.write("../crafted", tag_object)
    tag = repository.git("hash-object", "-t", "tag", "-w", "--literally", "../crafted")
    repository.git("update-ref", "refs/tags/v1", tag)
    base = repository.commit({"b.py": ""})
    repository.git("tag", "-a", "-m", "A file", f"v9-1-g{base}", f"{head}:a.py")
    async with workspaces.local(repository.path) as workspace:
        assert await describe_in_sandbox(workspace, sandboxes) == ("v1-1" if tag_name == "v1" else "none")


async def test_a_clone_contains_the_tags_of_its_branches(
    workspaces: WorkspaceFactory, sandboxes, repository, fake_github
) -> None:
    repo = fake_github.create_repository("acme/sample", {"a.py": "x = 1\n"})
    url = f"{fake_github.server_url}/acme/sample.git"
    repo.bare.git("tag", "v1", "main")
    for content, version in (("x = 2\n", "v1-1"), ("x = 3\n", "v2")):
        head = repo.commit("main", {"a.py": content})
        if version == "v2":
            repo.bare.git("tag", "v2", head)
        async with workspaces.clone(url, "main", None) as workspace:
            assert await describe_in_sandbox(workspace, sandboxes, version) == version


@pytest.mark.slow
async def test_a_moved_or_replaced_tag_does_not_prevent_a_clone(
    workspaces: WorkspaceFactory, sandboxes, fake_github
) -> None:
    """`v1/rc` can only be where `v1` is not: the mirror has what the forge has, a run what it began with."""
    repo = fake_github.create_repository("acme/sample", {"a.py": "x = 1\n"})
    url = f"{fake_github.server_url}/acme/sample.git"
    async with workspaces.clone(url, "main", None) as started:
        for number, (before, name) in enumerate((("", "v1"), ("", "v1"), ("v1", "v1/rc"), ("v1/rc", "v1"))):
            if before:
                repo.bare.git("tag", "-d", before)
            head = repo.commit("main", {"a.py": f"x = {number}\n"})
            repo.bare.git("tag", "--force", name, head)
            async with workspaces.clone(url, "main", None, config_ref="HEAD") as workspace:
                assert await describe_in_sandbox(workspace, sandboxes, f"run-{number}") == name
            assert (await workspaces.fetch(started, url, head, None)).base == head
