"""Where a run's repository comes from: a forge, through a mirror that is kept, or this disk."""

import asyncio
import contextlib
import fcntl
import hashlib
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from resolver.domain import Credentials
from resolver.errors import NoSuchBranch, RepositoryUnusable, WorkspaceError
from resolver.git.plumbing import GitFailed, run_git
from resolver.git.remote import NETWORK_SECONDS, heads, over_network, push
from resolver.git.repository import ABSENT, GITLINK, SYMLINK, Change, Workspace, resolved
from runtime.frozen import Frozen

__all__ = ["ABSENT", "GITLINK", "SYMLINK", "Change", "Workspace", "Workspaces", "push"]

# Tags that git follows by itself would stay as they were when the forge moves or deletes them.
EVERYTHING = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")


class Workspaces:
    """Makes workspaces, keeping a mirror of each repository below `cache`."""

    def __init__(self, cache: Path, ca_bundle: Path | None = None) -> None:
        self._cache = cache.absolute()
        self._ca_bundle = ca_bundle.absolute() if ca_bundle else None

    @contextlib.asynccontextmanager
    async def clone(
        self, url: str, ref: str, credentials: Credentials | None, rules: str | None = None
    ) -> AsyncIterator[Workspace]:
        """The repository at `url` at a branch, a full reference, a commit id, or "HEAD".

        `rules`: where its settings and instructions come from, if that is another place (see `Workspace.rules`).
        Raises Unauthorized, Forbidden or NotFound as the server says, and WorkspaceError for an empty
        repository, an unknown reference or a server that cannot be reached.
        """
        mirror = self._mirror(url)
        with self._temporary() as place:
            async with _locked(mirror / "patchwright.lock"):
                branch, commit = await self._refresh(mirror, url, ref, credentials)
                await _bare(place)
                await _fetch(place, mirror, commit)
                beside = None
                if rules is not None:
                    named, other = await self._refresh(mirror, url, rules, credentials)
                    await _fetch(place, mirror, other, name="rules")
                    beside = Workspace(git_dir=place, base=other, base_branch=named)
            yield Workspace(git_dir=place, base=commit, base_branch=branch, rules=beside)

    async def fetch(
        self, workspace: Workspace, url: str, commit: str, credentials: Credentials | None
    ) -> Workspace:
        """The same workspace with another commit of the repository as its base. Raises as `clone` does."""
        mirror = self._mirror(url)
        async with _locked(mirror / "patchwright.lock"):
            await self._refresh(mirror, url, commit, credentials)
            await _fetch(workspace.git_dir, mirror, commit, name="fetched")
        return workspace.at_commit(commit)

    def _mirror(self, url: str) -> Path:
        mirror = self._cache / "mirrors" / hashlib.sha256(url.encode()).hexdigest()[:32]
        mirror.mkdir(parents=True, exist_ok=True)
        return mirror

    async def _refresh(
        self, mirror: Path, url: str, ref: str, credentials: Credentials | None
    ) -> tuple[str | None, str]:
        """Bring the mirror up to date; the branch (None for a commit id) and commit that `ref` means."""

        async def network(*arguments: str) -> bytes:
            return await over_network(
                *arguments, url=url, git_dir=mirror, credentials=credentials, ca_bundle=self._ca_bundle
            )

        if not (mirror / "HEAD").exists():
            await _bare(mirror)
        remote = heads(await network("ls-remote", "--symref", url, "HEAD", "refs/heads/*"))
        if not any(name.startswith("refs/heads/") for name in remote.commits):
            raise RepositoryUnusable(f"{url} is an empty repository: it has no commit yet. Push one first.")
        wanted = next((name for name in (f"refs/heads/{ref}", ref) if name in remote.commits), None)
        if wanted is None and not ref.startswith("refs/") and not _is_commit_id(ref):
            raise NoSuchBranch(f"{url} has no branch {ref!r}.", ref)
        commit = remote.commits[wanted] if wanted else ref
        if not await _has_commit(mirror, commit):
            await network("fetch", "--quiet", "--prune", url, *EVERYTHING)
        if not await _has_commit(mirror, commit):
            # A commit that no branch holds any more, or a reference such as refs/pull/7/head.
            try:
                await network("fetch", "--quiet", "--no-tags", url, f"+{commit}:refs/patchwright/wanted")
            except GitFailed as exc:
                raise WorkspaceError(f"{url} has no {ref!r}, or no longer.") from exc
            commit = await resolved(mirror, "refs/patchwright/wanted")
        branch = remote.default if ref == "HEAD" else wanted and wanted.removeprefix("refs/heads/")
        return branch, commit

    @contextlib.asynccontextmanager
    async def local(self, path: Path, ref: str = "HEAD") -> AsyncIterator[Workspace]:
        """The repository on this disk at `path`, as committed; its work tree is neither read nor changed.

        Raises WorkspaceError when `path` is no repository, is empty, or does not know `ref`.
        """
        source = await asyncio.to_thread(_inspect, path)
        with self._temporary() as place:
            await _bare(place)
            try:
                await _fetch(place, source.git_dir, ref)
            except GitFailed as exc:
                if source.empty:
                    raise RepositoryUnusable(
                        f"{path} is an empty repository: it has no commit yet. Make one first."
                    ) from exc
                raise WorkspaceError(f"{path} has no {ref!r}: {exc}") from exc
            base = await resolved(place, "refs/heads/base")
            branch = source.branch if ref == "HEAD" else None if _is_commit_id(ref) else ref
            yield Workspace(git_dir=place, base=base, base_branch=branch)

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[Path]:
        """A directory for one run; what a killed process left is removed on the way."""
        runs = self._cache / "workspaces"
        runs.mkdir(parents=True, exist_ok=True)
        for abandoned in runs.glob("*.lock"):
            with contextlib.suppress(OSError), abandoned.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its owner lives: OSError
                shutil.rmtree(abandoned.with_suffix(""), ignore_errors=True)
                abandoned.unlink()
        place = runs / secrets.token_hex(8)
        with place.with_suffix(".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            place.mkdir(mode=0o700)
            try:
                yield place
            finally:
                shutil.rmtree(place, ignore_errors=True)
                place.with_suffix(".lock").unlink(missing_ok=True)


class _Source(Frozen):
    """A repository on this disk."""

    git_dir: Path
    branch: str | None
    """None: HEAD is detached."""
    empty: bool


def _inspect(path: Path) -> _Source:
    """What GitPython reads from the files of a repository; no git process starts in it."""
    import git  # 120 ms, and only a run on a local repository needs it

    try:
        with git.Repo(path, expand_vars=False) as repo:
            empty = False
            try:
                git.SymbolicReference.dereference_recursive(repo, "HEAD")
            except ValueError:  # the branch that HEAD names is not born yet
                empty = True
            return _Source(
                git_dir=Path(repo.git_dir).absolute(),
                branch=None if repo.head.is_detached else repo.head.reference.name,
                empty=empty,
            )
    except git.exc.NoSuchPathError as exc:
        raise RepositoryUnusable(f"There is no directory {path}.") from exc
    except (git.exc.InvalidGitRepositoryError, ValueError, OSError) as exc:
        raise RepositoryUnusable(
            f"{path} is not a git repository: name the directory that holds its .git."
        ) from exc


async def _bare(place: Path) -> None:
    """Make `place` a bare repository; harmless when it is one."""
    await run_git("init", "--quiet", "--bare", "--template=", "--initial-branch=base", str(place))


async def _fetch(place: Path, source: Path, ref: str, name: str = "base") -> None:
    """Put `ref` of a repository on this disk into the bare repository `place`. Raises GitFailed.

    The first one, `base`, comes with the tags before it; later ones may be in their way.

    The other side runs with the configuration of `source`, of which git heeds nothing that starts a program
    when it serves a fetch. Whoever owns the directory, it is the one that the operator named.
    """
    serve = "git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack"
    await run_git(
        *("fetch", "--quiet", "--update-shallow", "--upload-pack", serve),
        *(() if name == "base" else ("--no-tags",)),
        *(str(source), f"+{ref}:refs/heads/{name}"),
        git_dir=place,
        protocols="file",
        seconds=NETWORK_SECONDS,
    )


async def _has_commit(git_dir: Path, commit: str) -> bool:
    try:
        await run_git("cat-file", "-e", f"{commit}^{{commit}}", git_dir=git_dir)
    except GitFailed:
        return False
    return True


@contextlib.asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """Alone with what `path` guards, among all processes. Raises WorkspaceError after NETWORK_SECONDS."""
    with path.open("wb") as lock:
        try:
            async with asyncio.timeout(NETWORK_SECONDS):
                while True:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.05)
        except TimeoutError:
            raise WorkspaceError(f"Another process has held {path} for {NETWORK_SECONDS:.0f} s.") from None
        yield


def _is_commit_id(ref: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", ref) is not None
