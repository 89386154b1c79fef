"""Creates workspaces from a repository on a server, such as GitHub, or on this disk. A repository on a server is
first copied to a local mirror.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from patchwright.resolver.domain import Credentials
from patchwright.resolver.errors import BranchNotFound, RepositoryUnusable, WorkspaceError
from patchwright.resolver.git.git_process import GitFailed, GitLimits, run_git
from patchwright.resolver.git.local_repository import copy_ignore_patterns, inspect_repository
from patchwright.resolver.git.remote import NETWORK_TIMEOUT, parse_remote_refs, push, run_remote_git
from patchwright.resolver.git.repository import (
    ABSENT,
    GITLINK,
    SYMLINK,
    FileChange,
    Workspace,
    resolve_revision,
)

__all__ = ["ABSENT", "GITLINK", "SYMLINK", "FileChange", "Workspace", "WorkspaceFactory", "push"]

# The refspec for tags is explicit. Otherwise, git would fetch new tags, but would never update or delete a
# tag that was moved or deleted on the forge.
ALL_REFS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")


class WorkspaceFactory:
    """Creates workspaces and keeps a mirror of each repository below `cache`."""

    def __init__(self, cache: Path, ca_bundle: Path | None = None) -> None:
        self._cache = cache.absolute()
        self._ca_bundle = ca_bundle.absolute() if ca_bundle else None

    @contextlib.asynccontextmanager
    async def clone(
        self, url: str, ref: str, credentials: Credentials | None, config_ref: str | None = None
    ) -> AsyncIterator[Workspace]:
        """Clones the repository at `url`. `ref` is a branch, a full reference, a commit id, or "HEAD".

        The settings and instructions are read from the revision `config_ref`, or from `ref` if `config_ref` is
        None (see `Workspace.config_source`). Raises Unauthorized, Forbidden or NotFound, depending on the server's
        response. Raises WorkspaceError for an empty repository, an unknown reference or an unreachable
        server.
        """
        mirror = self._mirror(url)
        with self._temporary_directory() as git_dir:
            async with _lock(mirror / "patchwright.lock"):
                branch, commit = await self._update_mirror(mirror, url, ref, credentials)
                await _init_bare(git_dir)
                await _fetch(git_dir, mirror, commit)
                config_source = None
                if config_ref is not None:
                    config_branch, config_commit = await self._update_mirror(
                        mirror, url, config_ref, credentials
                    )
                    await _fetch(git_dir, mirror, config_commit, name="rules")
                    config_source = Workspace(git_dir=git_dir, base=config_commit, base_branch=config_branch)
            yield Workspace(git_dir=git_dir, base=commit, base_branch=branch, config_source=config_source)

    async def fetch(
        self, workspace: Workspace, url: str, commit: str, credentials: Credentials | None
    ) -> Workspace:
        """Fetches another commit, and returns the workspace with that commit as its base. Raises the same
        errors as `clone`.
        """
        mirror = self._mirror(url)
        async with _lock(mirror / "patchwright.lock"):
            await self._update_mirror(mirror, url, commit, credentials)
            await _fetch(workspace.git_dir, mirror, commit, name="fetched")
        return workspace.with_base(commit)

    def _mirror(self, url: str) -> Path:
        mirror = self._cache / "mirrors" / hashlib.sha256(url.encode()).hexdigest()[:32]
        mirror.mkdir(parents=True, exist_ok=True)
        return mirror

    async def _update_mirror(
        self, mirror: Path, url: str, ref: str, credentials: Credentials | None
    ) -> tuple[str | None, str]:
        """Updates the mirror. Returns the branch and the commit to which `ref` refers. The branch is None if
        `ref` is a commit id.
        """

        async def network(*arguments: str) -> bytes:
            return await run_remote_git(
                *arguments, url=url, git_dir=mirror, credentials=credentials, ca_bundle=self._ca_bundle
            )

        if not (mirror / "HEAD").exists():
            await _init_bare(mirror)
        remote = parse_remote_refs(await network("ls-remote", "--symref", url, "HEAD", "refs/heads/*"))
        if not any(name.startswith("refs/heads/") for name in remote.commits):
            raise RepositoryUnusable(
                f"{url} is an empty repository: it has no commit yet. Push a commit first."
            )
        remote_ref = next((name for name in (f"refs/heads/{ref}", ref) if name in remote.commits), None)
        if remote_ref is None and not ref.startswith("refs/") and not _is_commit_id(ref):
            raise BranchNotFound(f"{url} has no branch {ref!r}.", ref)
        commit = remote.commits[remote_ref] if remote_ref else ref
        if not await _has_commit(mirror, commit):
            await network("fetch", "--quiet", "--prune", url, *ALL_REFS)
        if not await _has_commit(mirror, commit):
            # The commit is on no branch, or the reference is one like refs/pull/7/head.
            try:
                await network("fetch", "--quiet", "--no-tags", url, f"+{commit}:refs/patchwright/wanted")
            except GitFailed as exc:
                raise WorkspaceError(f"{url} has no {ref!r}; it may have been deleted.") from exc
            commit = await resolve_revision(mirror, "refs/patchwright/wanted")
        branch = (
            remote.default_branch if ref == "HEAD" else remote_ref and remote_ref.removeprefix("refs/heads/")
        )
        return branch, commit

    @contextlib.asynccontextmanager
    async def local(self, path: Path, ref: str = "HEAD") -> AsyncIterator[Workspace]:
        """Creates a workspace from the commits of a repository on this disk. The work tree of that repository
        is not used. Files that its owner excludes from git, for example in `.git/info/exclude`, are excluded from
        patches, too.

        Raises WorkspaceError if `path` is not a repository, is empty, or does not contain `ref`.
        """
        source = await asyncio.to_thread(inspect_repository, path)
        with self._temporary_directory() as git_dir:
            await _init_bare(git_dir)
            await asyncio.to_thread(copy_ignore_patterns, source, git_dir / "info/exclude")
            try:
                await _fetch(git_dir, source.git_dir, ref)
            except GitFailed as exc:
                if source.empty:
                    raise RepositoryUnusable(
                        f"{path} is an empty repository: it has no commit yet. Create a commit first."
                    ) from exc
                raise WorkspaceError(f"{path} has no {ref!r}: {exc}") from exc
            base = await resolve_revision(git_dir, "refs/heads/base")
            branch = source.branch if ref == "HEAD" else None if _is_commit_id(ref) else ref
            yield Workspace(git_dir=git_dir, base=base, base_branch=branch)

    @contextlib.contextmanager
    def _temporary_directory(self) -> Iterator[Path]:
        """Yields a directory for one run. Also removes the directories that killed processes have left
        behind.
        """
        runs = self._cache / "workspaces"
        runs.mkdir(parents=True, exist_ok=True)
        for abandoned in runs.glob("*.lock"):
            with contextlib.suppress(OSError), abandoned.open("rb") as lock:
                # Raises OSError while the process that owns the directory is running.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(abandoned.with_suffix(""), ignore_errors=True)
                abandoned.unlink()
        directory = runs / secrets.token_hex(8)
        with directory.with_suffix(".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            directory.mkdir(mode=0o700)
            try:
                yield directory
            finally:
                shutil.rmtree(directory, ignore_errors=True)
                directory.with_suffix(".lock").unlink(missing_ok=True)


async def _init_bare(git_dir: Path) -> None:
    """Creates a bare repository; does nothing if it exists."""
    await run_git("init", "--quiet", "--bare", "--template=", "--initial-branch=base", str(git_dir))


async def _fetch(git_dir: Path, source: Path, ref: str, name: str = "base") -> None:
    """Fetches `ref` from a repository on this disk into the bare repository `git_dir`. Raises GitFailed.

    The fetch named `base` comes first and includes the tags up to `ref`. Later fetches include no tags,
    because tags could conflict.

    git also reads the configuration of the repository `source`. This is safe, because no setting that git uses
    during a fetch can start a program. `safe.directory=*` makes git accept a repository of any owner, because the
    operator chose the repository.
    """
    serve = "git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack"
    await run_git(
        *("fetch", "--quiet", "--update-shallow", "--upload-pack", serve),
        *(() if name == "base" else ("--no-tags",)),
        *(str(source), f"+{ref}:refs/heads/{name}"),
        git_dir=git_dir,
        protocols="file",
        limits=GitLimits(timeout=NETWORK_TIMEOUT),
    )


async def _has_commit(git_dir: Path, commit: str) -> bool:
    try:
        await run_git("cat-file", "-e", f"{commit}^{{commit}}", git_dir=git_dir)
    except GitFailed:
        return False
    return True


@contextlib.asynccontextmanager
async def _lock(path: Path) -> AsyncIterator[None]:
    """Holds an exclusive lock, which no other process can hold at the same time. Raises WorkspaceError if the
    lock is not available within NETWORK_TIMEOUT seconds.
    """
    with path.open("wb") as lock:
        try:
            async with asyncio.timeout(NETWORK_TIMEOUT):
                while True:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.05)
        except TimeoutError:
            raise WorkspaceError(f"Another process has held {path} for {NETWORK_TIMEOUT:.0f} s.") from None
        yield


def _is_commit_id(ref: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", ref) is not None
