"""Branches and commits over the API: new references, what a commit holds, and GitHub's own signed commits."""

import base64
import binascii
import tempfile
import time
from fnmatch import fnmatchcase
from subprocess import CalledProcessError
from typing import NoReturn

from demo.world.access import Refusal
from demo.world.bare import GIT_ENVIRONMENT
from demo.world.call import Answer, Call, found
from demo.world.graphql import Arguments, Failure, allowed, field
from demo.world.operations import PUSH, R, operation
from demo.world.shapes import Json
from demo.world.state import Repository, Token

WORKFLOWS = ".github/workflows/"
RULES = "Repository rule violations found"


@operation("POST", f"{R}/git/refs")
def create_reference(call: Call) -> Answer:
    call.allow(PUSH)
    repo, name, sha = call.repo, str(call.body["ref"]), str(call.body["sha"])
    branch = name.removeprefix("refs/heads/")
    if branch == name or not _is_branch_name(repo, branch):
        raise Refusal(422, f"{name} is not a valid ref name.")
    if repo.bare.resolve(sha) != sha:
        raise Refusal(422, "Object does not exist")
    if repo.bare.sha(branch) is not None:
        raise Refusal(422, "Reference already exists")
    if why := protection(repo, branch):
        raise Refusal(422, f"{RULES}\n\nCannot create ref due to creations being restricted. {why}")
    repo.bare.git("update-ref", name, sha, "0" * 40)
    return Answer(call.shapes.ref(repo, name, sha), 201)


@operation("DELETE", f"{R}/git/refs/{{ref}}")
def delete_reference(call: Call) -> Answer:
    call.allow(PUSH)
    name = f"refs/{call.path['ref']}"
    if call.repo.bare.resolve(name) is None:
        raise Refusal(422, "Reference does not exist")
    call.repo.bare.git("update-ref", "-d", name)
    return Answer(None, 204)


@operation("GET", f"{R}/git/commits/{{commit_sha}}")
def git_commit(call: Call) -> Answer:
    repo, sha = call.repo, call.path["commit_sha"]
    if repo.bare.resolve(sha) != sha:
        raise Refusal(404, "Not Found")
    whole = call.shapes.commit(repo, sha)
    inner, parents = whole["commit"], whole["parents"]
    assert isinstance(inner, dict) and isinstance(parents, list)
    page = str(whole["html_url"])
    shape: Json = {
        **{name: inner[name] for name in ("author", "committer", "message", "tree", "url")},
        "sha": sha,
        "node_id": whole["node_id"],
        "html_url": page,
        "parents": [{**parent, "html_url": page.replace(sha, parent["sha"])} for parent in parents],
        "verification": _verification(sha in repo.signed),
    }
    return Answer(shape)


@operation("GET", f"{R}/compare/{{basehead}}")
def compare(call: Call) -> Answer:
    repo = call.repo
    ends = call.path["basehead"].split("...")
    base, head = (found(repo.bare.meant(end)) for end in ends)
    if not repo.bare.related(base, head):
        raise Refusal(404, f"No common ancestor between {ends[0]} and {ends[1]}.")
    ahead, behind = repo.bare.count(base, head), repo.bare.count(head, base)
    status = {(False, False): "identical", (True, False): "ahead", (False, True): "behind"}
    merge_base = repo.bare.git("merge-base", base, head).decode().strip()
    url, page = f"{call.shapes.api}{call.request.path}", f"{call.shapes.web}/{repo.full_name}/compare"
    shape: Json = {
        "url": url, "html_url": page, "permalink_url": page, "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch", "base_commit": _listed(call, base),
        "merge_base_commit": _listed(call, merge_base),
        "status": status.get((bool(ahead), bool(behind)), "diverged"), "ahead_by": ahead, "behind_by": behind,
        "total_commits": ahead, "commits": [], "files": [],
    }  # fmt: skip
    return Answer(shape)


@field("createCommitOnBranch")
def create_commit(call: Call, arguments: Arguments) -> Json:
    """A commit by whoever asks, signed by GitHub; every file that it adds or changes is a plain one."""
    given = arguments["input"]
    owner, _, name = str(given["branch"].get("repositoryNameWithOwner")).partition("/")
    repo = call.state.find_repository(owner, name)
    if repo is None:
        raise Failure("NOT_FOUND", f"Could not resolve to a Repository with the name '{owner}/{name}'.")
    actor = allowed(call, repo, PUSH)
    branch = str(given["branch"].get("branchName")).removeprefix("refs/heads/")
    tip, expected = repo.bare.sha(branch), str(given["expectedHeadOid"])
    if tip is None:
        raise Failure("NOT_FOUND", f'Could not resolve to a branch named "{branch}".')
    if tip != expected:
        said = f'Expected branch to point to "{expected}" but it did not.  Pull and try again.'
        raise Failure("STALE_DATA", said)
    if why := protection(repo, branch):
        raise Failure("BRANCH_PROTECTION_RULE_VIOLATION", f"{RULES}\n\n{why}")
    changes = _changes(given.get("fileChanges") or {})
    for path in changes:
        if path.startswith(WORKFLOWS) and not may_change_workflows(actor):
            _refuse_workflow(path)
    tree = _tree(repo, expected, changes)
    if repo.spoiled:  # to order: something else than what was sent
        tree = _tree(repo, expected, changes | {repo.spoiled: b"spoiled\n"})
    message = given["message"]["headline"] + (f"\n\n{body}" if (body := given["message"].get("body")) else "")
    sha = _commit(repo, actor, tree, expected, message)
    repo.bare.git("update-ref", f"refs/heads/{branch}", sha, expected)
    repo.signed.add(sha)
    url = f"{call.shapes.web}/{repo.full_name}/commit/{sha}"
    return {"commit": {"id": f"C_{sha}", "oid": sha, "url": url, "message": message}}


def protection(repo: Repository, branch: str) -> str:
    """Why nobody may write to the branch; empty: it is not protected."""
    return next((why for pattern, why in repo.protected.items() if fnmatchcase(branch, pattern)), "")


def may_change_workflows(actor: Token) -> bool:
    return actor.permissions is None or actor.permissions.get("workflows") == "write"


def _refuse_workflow(path: str) -> NoReturn:
    said = (
        f"refusing to allow a GitHub App to create or update workflow `{path}` without `workflows` permission"
    )
    raise Failure("FORBIDDEN", said)


def _changes(given: Json) -> dict[str, bytes | None]:
    """Content by path; None: it is deleted."""
    additions, deletions = given.get("additions") or [], given.get("deletions") or []
    assert isinstance(additions, list) and isinstance(deletions, list)
    changes: dict[str, bytes | None] = {one["path"]: None for one in deletions}
    for one in additions:
        if one["path"] in changes:
            raise Failure("UNPROCESSABLE", f"A path was requested for more than one change: {one['path']}")
        try:
            changes[one["path"]] = base64.b64decode(one["contents"], validate=True)
        except binascii.Error:
            raise Failure("UNPROCESSABLE", f"The contents of {one['path']} are not base64.") from None
    if len(changes) != len(additions) + len(deletions):
        raise Failure("UNPROCESSABLE", "A path was requested for more than one change.")
    return changes


def _tree(repo: Repository, base: str, changes: dict[str, bytes | None]) -> str:
    lines = bytearray()
    for path, content in changes.items():
        if content is None:
            if repo.bare.read(base, path) is None:
                said = f"A path was requested for deletion which does not exist as of commit oid `{base}`"
                raise Failure("UNPROCESSABLE", said)
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
            raise Failure("UNPROCESSABLE", "A path is not one that git takes.") from exc
        return repo.bare.git("write-tree", environment=index).decode().strip()


def _commit(repo: Repository, actor: Token, tree: str, parent: str, message: str) -> str:
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


def _verification(signed: bool) -> Json:
    return {
        "verified": signed, "reason": "valid" if signed else "unsigned",
        "signature": "-----BEGIN PGP SIGNATURE-----" if signed else None,
        "payload": "tree" if signed else None, "verified_at": None,
    }  # fmt: skip


def _listed(call: Call, sha: str) -> Json:
    """A commit as lists show it."""
    return call.shapes.commit(call.repo, sha)
