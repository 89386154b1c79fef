"""The API for branches and commits: creates references, returns commits, and creates commits that GitHub
signs.
"""

import base64
import binascii
import tempfile
import time
from fnmatch import fnmatchcase
from subprocess import CalledProcessError
from typing import NoReturn

from patchwright.demo.github.auth import ApiError
from patchwright.demo.github.bare_repository import GIT_ENVIRONMENT
from patchwright.demo.github.graphql_api import (
    Arguments,
    GraphQLFailure,
    register_field,
    require_visible_access,
)
from patchwright.demo.github.operations import PUSH_ACCESS, REPO_PATH, operation
from patchwright.demo.github.request_context import RequestContext, RestResponse, require_found
from patchwright.demo.github.serializers import Json
from patchwright.demo.github.state import Repository, Token

WORKFLOWS_DIR = ".github/workflows/"
RULES_MESSAGE = "Repository rule violations found"


@operation("POST", f"{REPO_PATH}/git/refs")
def create_reference(call: RequestContext) -> RestResponse:
    call.require_access(PUSH_ACCESS)
    repo, name, sha = call.repo, str(call.body["ref"]), str(call.body["sha"])
    branch = name.removeprefix("refs/heads/")
    if branch == name or not _is_branch_name(repo, branch):
        raise ApiError(422, f"{name} is not a valid ref name.")
    if repo.bare.resolve(sha) != sha:
        raise ApiError(422, "Object does not exist")
    if repo.bare.branch_sha(branch) is not None:
        raise ApiError(422, "Reference already exists")
    if why := protection_reason(repo, branch):
        raise ApiError(422, f"{RULES_MESSAGE}\n\nCannot create ref due to creations being restricted. {why}")
    repo.bare.git("update-ref", name, sha, "0" * 40)
    return RestResponse(call.serializer.ref(repo, name, sha), 201)


@operation("DELETE", f"{REPO_PATH}/git/refs/{{ref}}")
def delete_reference(call: RequestContext) -> RestResponse:
    call.require_access(PUSH_ACCESS)
    name = f"refs/{call.path['ref']}"
    if call.repo.bare.resolve(name) is None:
        raise ApiError(422, "Reference does not exist")
    call.repo.bare.git("update-ref", "-d", name)
    return RestResponse(None, 204)


@operation("GET", f"{REPO_PATH}/git/commits/{{commit_sha}}")
def get_git_commit(call: RequestContext) -> RestResponse:
    repo, sha = call.repo, call.path["commit_sha"]
    if repo.bare.resolve(sha) != sha:
        raise ApiError(404, "Not Found")
    whole = call.serializer.commit(repo, sha)
    inner, parents = whole["commit"], whole["parents"]
    assert isinstance(inner, dict) and isinstance(parents, list)
    page = str(whole["html_url"])
    shape: Json = {
        **{name: inner[name] for name in ("author", "committer", "message", "tree", "url")},
        "sha": sha,
        "node_id": whole["node_id"],
        "html_url": page,
        "parents": [{**parent, "html_url": page.replace(sha, parent["sha"])} for parent in parents],
        "verification": _verification_json(sha in repo.signed),
    }
    return RestResponse(shape)


@operation("GET", f"{REPO_PATH}/compare/{{basehead}}")
def compare_commits(call: RequestContext) -> RestResponse:
    repo = call.repo
    ends = call.path["basehead"].split("...")
    base, head = (require_found(repo.bare.resolve_ref(end)) for end in ends)
    if not repo.bare.has_merge_base(base, head):
        raise ApiError(404, f"No common ancestor between {ends[0]} and {ends[1]}.")
    ahead, behind = repo.bare.count_commits(base, head), repo.bare.count_commits(head, base)
    status = {(False, False): "identical", (True, False): "ahead", (False, True): "behind"}
    merge_base = repo.bare.git("merge-base", base, head).decode().strip()
    url, page = (
        f"{call.serializer.api_url}{call.request.path}",
        f"{call.serializer.web_url}/{repo.full_name}/compare",
    )
    shape: Json = {
        "url": url, "html_url": page, "permalink_url": page, "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch", "base_commit": _commit_json(call, base),
        "merge_base_commit": _commit_json(call, merge_base),
        "status": status.get((bool(ahead), bool(behind)), "diverged"), "ahead_by": ahead, "behind_by": behind,
        "total_commits": ahead, "commits": [], "files": [],
    }  # fmt: skip
    return RestResponse(shape)


@register_field("createCommitOnBranch")
def create_commit(call: RequestContext, arguments: Arguments) -> Json:
    """Creates a commit with the caller as its author. The commit counts as signed by GitHub.

    As on GitHub, all files that the commit adds or changes become regular files with mode 644.
    """
    given = arguments["input"]
    owner, _, name = str(given["branch"].get("repositoryNameWithOwner")).partition("/")
    repo = call.state.find_repository(owner, name)
    if repo is None:
        raise GraphQLFailure(
            "NOT_FOUND", f"Could not resolve to a Repository with the name '{owner}/{name}'."
        )
    actor = require_visible_access(call, repo, PUSH_ACCESS)
    branch = str(given["branch"].get("branchName")).removeprefix("refs/heads/")
    tip, expected = repo.bare.branch_sha(branch), str(given["expectedHeadOid"])
    if tip is None:
        raise GraphQLFailure("NOT_FOUND", f'Could not resolve to a branch named "{branch}".')
    if tip != expected:
        said = f'Expected branch to point to "{expected}" but it did not.  Pull and try again.'
        raise GraphQLFailure("STALE_DATA", said)
    if why := protection_reason(repo, branch):
        raise GraphQLFailure("BRANCH_PROTECTION_RULE_VIOLATION", f"{RULES_MESSAGE}\n\n{why}")
    changes = _parse_changes(given.get("fileChanges") or {})
    for path in changes:
        if path.startswith(WORKFLOWS_DIR) and not can_change_workflows(actor):
            _reject_workflow(path)
    tree = _write_tree(repo, expected, changes)
    if repo.injected_path:  # the test asked for a commit whose content differs from the request
        tree = _write_tree(repo, expected, changes | {repo.injected_path: b"spoiled\n"})
    message = given["message"]["headline"] + (f"\n\n{body}" if (body := given["message"].get("body")) else "")
    sha = _write_commit(repo, actor, tree, expected, message)
    repo.bare.git("update-ref", f"refs/heads/{branch}", sha, expected)
    repo.signed.add(sha)
    url = f"{call.serializer.web_url}/{repo.full_name}/commit/{sha}"
    return {"commit": {"id": f"C_{sha}", "oid": sha, "url": url, "message": message}}


def protection_reason(repo: Repository, branch: str) -> str:
    """Returns the reason why the branch is protected from all writes, or "" if it is not protected."""
    return next((why for pattern, why in repo.protected.items() if fnmatchcase(branch, pattern)), "")


def can_change_workflows(actor: Token) -> bool:
    return actor.permissions is None or actor.permissions.get("workflows") == "write"


def _reject_workflow(path: str) -> NoReturn:
    said = (
        f"refusing to allow a GitHub App to create or update workflow `{path}` without `workflows` permission"
    )
    raise GraphQLFailure("FORBIDDEN", said)


def _parse_changes(given: Json) -> dict[str, bytes | None]:
    """Returns the new content of each changed file by path; None means that the file is deleted."""
    additions, deletions = given.get("additions") or [], given.get("deletions") or []
    assert isinstance(additions, list) and isinstance(deletions, list)
    changes: dict[str, bytes | None] = {one["path"]: None for one in deletions}
    for one in additions:
        if one["path"] in changes:
            raise GraphQLFailure(
                "UNPROCESSABLE", f"A path was requested for more than one change: {one['path']}"
            )
        try:
            changes[one["path"]] = base64.b64decode(one["contents"], validate=True)
        except binascii.Error:
            raise GraphQLFailure("UNPROCESSABLE", f"The contents of {one['path']} are not base64.") from None
    if len(changes) != len(additions) + len(deletions):
        raise GraphQLFailure("UNPROCESSABLE", "A path was requested for more than one change.")
    return changes


def _write_tree(repo: Repository, base: str, changes: dict[str, bytes | None]) -> str:
    lines = bytearray()
    for path, content in changes.items():
        if content is None:
            if repo.bare.read(base, path) is None:
                said = f"A path was requested for deletion which does not exist as of commit oid `{base}`"
                raise GraphQLFailure("UNPROCESSABLE", said)
            lines += b"0 %b\t%b\0" % (b"0" * 40, path.encode())
    for path, content in changes.items():
        if content is not None:
            blob = repo.bare.git("hash-object", "-w", "--stdin", stdin=content).strip()
            lines += b"100644 %b\t%b\0" % (blob, path.encode())
    with tempfile.TemporaryDirectory() as scratch:
        index = GIT_ENVIRONMENT | {"GIT_INDEX_FILE": f"{scratch}/index"}
        repo.bare.git("read-tree", base, environment=index)
        try:
            repo.bare.git("update-index", "-z", "--index-info", stdin=bytes(lines), environment=index)
        except CalledProcessError as exc:
            raise GraphQLFailure("UNPROCESSABLE", "git does not accept one of the paths.") from exc
        return repo.bare.git("write-tree", environment=index).decode().strip()


def _write_commit(repo: Repository, actor: Token, tree: str, parent: str, message: str) -> str:
    date, person = f"{int(time.time())} +0000", actor.user
    environment = GIT_ENVIRONMENT | {
        "GIT_AUTHOR_NAME": person.login, "GIT_AUTHOR_DATE": date,
        "GIT_AUTHOR_EMAIL": f"{person.id}+{person.login}@users.noreply.github.com",
        "GIT_COMMITTER_NAME": "GitHub", "GIT_COMMITTER_EMAIL": "noreply@github.com", "GIT_COMMITTER_DATE": date,
    }  # fmt: skip
    made = repo.bare.git(
        "commit-tree", tree, "-p", parent, "-F", "-", stdin=message.encode(), environment=environment
    )
    return made.decode().strip()


def _is_branch_name(repo: Repository, name: str) -> bool:
    try:
        repo.bare.git("check-ref-format", "--branch", name)
    except CalledProcessError:
        return False
    return True


def _verification_json(signed: bool) -> Json:
    return {
        "verified": signed, "reason": "valid" if signed else "unsigned",
        "signature": "-----BEGIN PGP SIGNATURE-----" if signed else None,
        "payload": "tree" if signed else None, "verified_at": None,
    }  # fmt: skip


def _commit_json(call: RequestContext, sha: str) -> Json:
    """Returns a commit as it appears in lists."""
    return call.serializer.commit(call.repo, sha)
