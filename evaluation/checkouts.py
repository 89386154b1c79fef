"""Checks out the repository of an instance, as a repository on this disk whose HEAD is the base commit."""

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from patchwright.evaluation.instances import Instance
from patchwright.evaluation.official_images import configure_setup
from patchwright.resolver.git.git_process import run_git
from patchwright.resolver.git.workspaces import WorkspaceFactory


@contextlib.asynccontextmanager
async def check_out(
    instance: Instance, directory: Path, workspaces: WorkspaceFactory, *, has_official_image: bool = False
) -> AsyncIterator[Path]:
    """Yields the path of a bare repository, and removes it afterwards. It contains no later commit, so the agent
    cannot find the fix in it. If the instance's image is used, HEAD also configures its environment.

    The path is the same in each process: the cache of installed dependencies depends on it. Raises WorkspaceError.
    """
    path = directory / f"{instance.id}.git"
    clone = (
        workspaces.clone(instance.url, instance.base_commit, None)
        if "://" in instance.url
        else workspaces.local(Path(instance.url), instance.base_commit)
    )
    shutil.rmtree(path, ignore_errors=True)  # A killed process may have left it.
    async with clone as workspace:
        head = await configure_setup(workspace) if has_official_image else workspace.base
        shutil.copytree(workspace.git_dir, path)
    await run_git("update-ref", "HEAD", head, git_dir=path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
