"""The repository on the forge, as git sees it: what it has, and a push that overwrites nobody's work."""

from base64 import b64encode
from pathlib import Path

from resolver.domain import Credentials
from resolver.errors import Forbidden, NotFound, Unauthorized, WorkspaceError
from resolver.git.plumbing import GitFailed, run_git
from runtime.frozen import Frozen

NETWORK_SECONDS = 900.0


async def push(
    git_dir: Path,
    url: str,
    commit: str,
    branch: str,
    credentials: Credentials | None,
    expected: str | None,
    ca_bundle: Path | None = None,
) -> None:
    """Make `branch` at `url` point at `commit`, if it is still at `expected` (None: if it does not exist).

    Nothing happens when it points there already. Raises Forbidden when somebody else has moved the branch or
    the server's rules refuse it, Unauthorized, NotFound, WorkspaceError.
    """
    reference = f"refs/heads/{branch}"

    async def network(*arguments: str) -> bytes:
        return await over_network(
            *arguments, url=url, git_dir=git_dir, credentials=credentials, ca_bundle=ca_bundle
        )

    try:
        await network(
            *("push", "--porcelain", "--no-verify", f"--force-with-lease={reference}:{expected or ''}"),
            *(url, f"{commit}:{reference}"),
        )
    except GitFailed as exc:
        # The answer to an earlier push may have been lost.
        if heads(await network("ls-remote", url, reference)).commits.get(reference) == commit:
            return
        if "stale info" in exc.output:
            raise Forbidden(
                f"The branch {branch} of {url} was moved by somebody else; it is left alone."
            ) from exc
        if "[remote rejected]" in exc.output or "pre-receive" in exc.output:
            raise Forbidden(f"{url} refuses a push to {branch}: {exc.reason}") from exc
        raise


class Heads(Frozen):
    """What a remote repository has."""

    commits: dict[str, str]
    """Commit id per reference, HEAD among them."""
    default: str | None
    """The branch that HEAD means."""


def heads(listed: bytes) -> Heads:
    commits, default = {}, None
    for line in listed.decode(errors="replace").splitlines():
        left, _, name = line.partition("\t")
        if left.startswith("ref: refs/heads/"):
            default = left.removeprefix("ref: refs/heads/")
        else:
            commits[name] = left
    return Heads(commits=commits, default=default)


async def over_network(
    *arguments: str, url: str, git_dir: Path, credentials: Credentials | None, ca_bundle: Path | None
) -> bytes:
    """`run_git` towards `url`, with the token. Raises Unauthorized, Forbidden, NotFound, WorkspaceError."""
    settings = {}
    if credentials:
        # In the environment of git and its transport alone: arguments can be read by every user (`ps`), a
        # URL or a configuration file outlives us. A header rather than a credential helper, because git asks
        # a helper only after a 401: one more round trip each time.
        pair = b64encode(f"x-access-token:{credentials.token}".encode()).decode()
        settings[f"http.{url}.extraHeader"] = f"Authorization: Basic {pair}"
    if ca_bundle:
        settings["http.sslCAInfo"] = str(ca_bundle)
    try:
        return await run_git(
            *arguments,
            git_dir=git_dir,
            settings=settings,
            protocols="https:http",
            seconds=NETWORK_SECONDS,
        )
    except GitFailed as exc:
        raise _explained(exc, url, credentials) from exc


def _explained(exc: GitFailed, url: str, credentials: Credentials | None) -> Exception:
    """What a failure to reach `url` means, and for whom."""
    said = exc.stderr.lower()
    if "error: 401" in said or "could not read username" in said or "authentication failed" in said:
        known = (
            "does not know our token, or it has expired" if credentials else "asks for a token: none is set"
        )
        return Unauthorized(f"{url} {known}.")
    if "error: 403" in said:
        return Forbidden(f"{url} refuses our token: it needs the right to read and write contents.")
    if "error: 404" in said or "not found" in said:
        return NotFound(f"There is no repository {url}, or none that our token may see.")
    if "certificate" in said:
        return WorkspaceError(
            f"{url} shows a certificate that is not trusted here: PATCHWRIGHT_CA_BUNDLE names who is."
        )
    if "could not resolve host" in said or "failed to connect" in said or "couldn't connect" in said:
        return WorkspaceError(f"{url} cannot be reached from here: check the network and its proxy.")
    return exc
