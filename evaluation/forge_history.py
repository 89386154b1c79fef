"""Makes instances of the history of a repository on GitHub, with the text of its issues."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from patchwright.evaluation.history import find_instances, find_issue_number
from patchwright.evaluation.instances import Instance
from patchwright.resolver.domain import Job, JobId, PullRequest, Repo
from patchwright.resolver.errors import NotFound
from patchwright.resolver.forge import Forge
from patchwright.resolver.git.workspaces import WorkspaceFactory


async def load_history(
    repo: Repo, forge: Forge, workspaces: WorkspaceFactory, directory: Path, limit: int | None
) -> Sequence[Instance]:
    """Clones the repository, and returns its instances. Their problem is the text of the issue that a commit fixes. If
    there is only a pull request, the commit's message stays the problem, because the pull request describes the fix.

    Comments are never read: they may contain the fix. Raises ForgeError and WorkspaceError.
    """
    facts = await forge.get_repo_facts(repo)
    credentials = await forge.get_credentials(repo)
    path = directory / f"{repo.owner}__{repo.name}.git"
    shutil.rmtree(path, ignore_errors=True)
    async with workspaces.clone(facts.clone_url, "HEAD", credentials) as workspace:
        shutil.copytree(workspace.git_dir, path)
    instances = []
    async for instance in find_instances(path, limit):
        problem = await _read_issue(repo, instance.issue_number, forge)
        name = instance.id.removeprefix(f"{path.name}-")
        changes = {"id": f"{repo.owner}__{repo.name}-{name}", "repo": str(repo)}
        instances.append(instance.model_copy(update={**changes, "problem": problem or instance.problem}))
    return instances


async def _read_issue(repo: Repo, number: int | None, forge: Forge) -> str | None:
    """Returns the title and the text of the issue. For a pull request, this is the issue that it closes. Returns None
    if there is no issue.
    """
    if number is None:
        return None
    try:
        thread = await forge.get_thread(Job(id=JobId("history"), repo=repo, number=number, requester=None))
        if isinstance(thread, PullRequest):
            closed = find_issue_number(thread.body)
            return await _read_issue(repo, closed, forge) if closed not in (None, number) else None
    except NotFound:
        return None
    return f"{thread.title}\n\n{thread.body}".strip()
