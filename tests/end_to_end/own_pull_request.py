"""Our own pull request, and what programs find of it."""

from patchwright.demo.github import FakePullRequest
from patchwright.demo.github.bare_repository import GIT_ENVIRONMENT
from patchwright.resolver.domain import Job, JobId, Repo
from tests.end_to_end.conftest import Scene

BRANCH = "patchwright/issue-1"
FIRST = "Fix: the sum\n\nIssue: #1\nPatchwright-Run: first\n"
REPAIR = "Fix failing checks of Fix: the sum\n\nPatchwright-Run: second\nRepairs-checks-of: {}\n"
LOG = (
    b"2026-11-20T09:00:00.1234567Z ##[group]Run python3 -m pytest\n"
    b"2026-11-20T09:00:01.1234567Z >       assert mul(2, 3) == 6\n"
    b"2026-11-20T09:00:01.1234567Z \x1b[31mE       assert 5 == 6\x1b[0m\n"
    b"2026-11-20T09:00:02.1234567Z ##[error]Process completed with exit code 1.\n"
)


def pushed(scene: Scene, files: dict[str, str], message: str = FIRST, by: str = "patchwright[bot]") -> str:
    """A commit of this account on our branch; its id."""
    bare, person = scene.repo.bare, scene.world.user(by)
    plain = scene.repo.commit(BRANCH, files, message)
    tree, parent = bare.git("rev-parse", f"{plain}^{{tree}}", f"{plain}^").decode().split()
    name, address = person.login, f"{person.id}+{person.login}@users.noreply.github.com"
    environment = GIT_ENVIRONMENT | {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", name), ("EMAIL", address))
    }
    made = bare.git(
        "commit-tree", tree, "-p", parent, "-F", "-", stdin=message.encode(), environment=environment
    )
    bare.git("update-ref", f"refs/heads/{BRANCH}", made.decode().strip(), plain)
    return made.decode().strip()


def opened(scene: Scene, files: dict[str, str], title: str = "Fix: the sum") -> FakePullRequest:
    """Our pull request, with one commit."""
    pushed(scene, files)
    return scene.world.create_pull(scene.repo, BRANCH, by="patchwright[bot]", title=title, body="Fixes #1")


def checked(scene: Scene, pull: FakePullRequest, sha: str = "") -> Job:
    """The job that a failing check of its head makes."""
    sha = sha or pull.head.sha
    return Job(
        id=JobId(f"acme-calc-{pull.number}-{sha[:8]}-{scene.data.name}"),
        repo=Repo(owner="acme", name="calc"),
        number=pull.number,
        requester=None,
        failed_checks_commit=sha,
    )


def answers(pull: FakePullRequest) -> list[str]:
    """What we say in its conversation."""
    return [one.body.partition("\n")[2].strip() for one in pull.comments if "patchwright:" in one.body]


def message(scene: Scene, pull: FakePullRequest) -> str:
    return scene.repo.bare.git("show", "-s", "--format=%B", pull.head.sha).decode()
