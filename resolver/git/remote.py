"""Lists the refs of a remote repository, and pushes to it without overwriting anyone's work."""

from base64 import b64encode
from pathlib import Path

from patchwright.resolver.domain import Credentials
from patchwright.resolver.errors import Forbidden, NotFound, RemoteUnavailable, Unauthorized, WorkspaceError
from patchwright.resolver.git.git_process import GitFailed, GitLimits, run_git
from patchwright.runtime.frozen_model import FrozenModel

NETWORK_TIMEOUT = 900.0


async def push(
    git_dir: Path,
    url: str,
    commit: str,
    branch: str,
    credentials: Credentials | None,
    expected: str | None,
    ca_bundle: Path | None = None,
) -> None:
    """Moves `branch` of the repository at `url` from the commit `expected` to `commit`. If `expected` is
    None, the branch must not exist yet.

    Does nothing if the branch is already at `commit`. Raises Forbidden if someone else moved the branch or if
    the server's rules reject the push. Also raises Unauthorized, NotFound and WorkspaceError.
    """
    reference = f"refs/heads/{branch}"

    async def network(*arguments: str) -> bytes:
        return await run_remote_git(
            *arguments, url=url, git_dir=git_dir, credentials=credentials, ca_bundle=ca_bundle
        )

    try:
        await network(
            *("push", "--porcelain", "--no-verify", f"--force-with-lease={reference}:{expected or ''}"),
            *(url, f"{commit}:{reference}"),
        )
    except (GitFailed, RemoteUnavailable) as exc:
        # An earlier push may have succeeded even if its response was lost.
        if parse_remote_refs(await network("ls-remote", url, reference)).commits.get(reference) == commit:
            return
        if isinstance(exc, RemoteUnavailable):
            raise
        if "stale info" in exc.output:
            raise Forbidden(
                f"Someone else moved the branch {branch} of {url}, so it was not changed."
            ) from exc
        if "[remote rejected]" in exc.output or "pre-receive" in exc.output:
            raise Forbidden(f"{url} rejected the push to {branch}: {exc.reason}") from exc
        raise


class RemoteRefs(FrozenModel):
    """The refs of a remote repository."""

    commits: dict[str, str]
    """Commit IDs by ref, including HEAD."""
    default_branch: str | None
    """The branch that HEAD refers to."""


# How git and curl report a server error or a lost connection.
_OUTAGE_SIGNS = (
    "error: 5",
    "connection reset",
    "connection timed out",
    "empty reply from server",
    "rpc failed; curl",
    "hung up unexpectedly",
)


def parse_remote_refs(output: bytes) -> RemoteRefs:
    commits, default = {}, None
    for line in output.decode(errors="replace").splitlines():
        left, _, name = line.partition("\t")
        if left.startswith("ref: refs/heads/"):
            default = left.removeprefix("ref: refs/heads/")
        else:
            commits[name] = left
    return RemoteRefs(commits=commits, default_branch=default)


async def run_remote_git(
    *arguments: str, url: str, git_dir: Path, credentials: Credentials | None, ca_bundle: Path | None
) -> bytes:
    """Runs git with these credentials and with network access to `url`. Raises Unauthorized, Forbidden, NotFound,
    WorkspaceError.
    """
    settings = {}
    if credentials:
        # The token is passed only in the environment of git and its child processes. It is not an argument,
        # because every user can read arguments with `ps`. It is not in a URL or a configuration file, because
        # these remain on disk. Compared with a credential helper, a header saves a request: git asks the
        # helper only after a 401.
        pair = b64encode(f"x-access-token:{credentials.token}".encode()).decode()
        settings[f"http.{url}.extraHeader"] = f"Authorization: Basic {pair}"
    if ca_bundle:
        settings["http.sslCAInfo"] = str(ca_bundle)
    try:
        return await run_git(
            *arguments,
            git_dir=git_dir,
            config=settings,
            protocols="https:http",
            limits=GitLimits(timeout=NETWORK_TIMEOUT),
        )
    except GitFailed as exc:
        raise _explain_failure(exc, url, credentials) from exc


def _explain_failure(exc: GitFailed, url: str, credentials: Credentials | None) -> Exception:
    """Converts a git failure into an error that says why `url` could not be reached and what to do."""
    stderr = exc.stderr.lower()
    if "error: 401" in stderr or "could not read username" in stderr or "authentication failed" in stderr:
        problem = (
            "rejected the token, which is invalid or expired"
            if credentials
            else "requires a token, but no token is set"
        )
        return Unauthorized(f"{url} {problem}.")
    if "error: 403" in stderr:
        return Forbidden(f"{url} rejected the token: grant it read and write access to contents.")
    if "error: 404" in stderr or "not found" in stderr:
        return NotFound(f"The repository {url} does not exist, or the token has no access to it.")
    if "certificate" in stderr:
        return WorkspaceError(
            f"The certificate of {url} is not trusted. Set PATCHWRIGHT_CA_BUNDLE to your CA certificates."
        )
    if "could not resolve host" in stderr or "failed to connect" in stderr or "couldn't connect" in stderr:
        return RemoteUnavailable(f"{url} cannot be reached. Check the network and the proxy.")
    if exc.exit_code is None or any(sign in stderr for sign in _OUTAGE_SIGNS):
        return RemoteUnavailable(str(exc))
    return exc
