"""A pull request of the bot, and jobs for its failed checks."""

from patchwright.demo.github import FakePullRequest
from patchwright.demo.github.bare_repository import GIT_ENVIRONMENT
from patchwright.resolver.domain import Job, JobId, Repo
from tests.end_to_end.conftest import Scenario

BRANCH = "patchwright/issue-1"
FIRST_MESSAGE = "Fix: the sum\n\nIssue: #1\nPatchwright-Run: first\n"
REPAIR_MESSAGE = "Fix failing checks of Fix: the sum\n\nPatchwright-Run: second\nRepairs-checks-of: {}\n"
LOG = (
    b"2026-11-20T09:00:00.1234567Z ##[group]Run python3 -m pytest\n"
    b"2026-11-20T09:00:01.1234567Z >       assert mul(2, 3) == 6\n"
    b"2026-11-20T09:00:01.1234567Z \x1b[31mE       assert 5 == 6\x1b[0m\n"
    b"2026-11-20T09:00:02.1234567Z ##[error]Process completed with exit code 1.\n"
)


def push_commit(
    scenario: Scenario, files: dict[str, str], message: str = FIRST_MESSAGE, by: str = "patchwright[bot]"
) -> str:
    """Pushes a commit by this account to the bot's branch and returns its SHA."""
    bare, person = scenario.repo.bare, scenario.fake_github.user(by)
    plain = scenario.repo.commit(BRANCH, files, message)
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


def open_pull_request(
    scenario: Scenario, files: dict[str, str], title: str = "Fix: the sum"
) -> FakePullRequest:
    """Opens a pull request of the bot with one commit."""
    push_commit(scenario, files)
    return scenario.fake_github.create_pull(
        scenario.repo, BRANCH, by="patchwright[bot]", title=title, body="Fixes #1"
    )


def failed_checks_job(scenario: Scenario, pull: FakePullRequest, sha: str = "") -> Job:
    """Returns the job for failed checks on the head."""
    sha = sha or pull.head.sha
    return Job(
        id=JobId(f"acme-calc-{pull.number}-{sha[:8]}-{scenario.data.name}"),
        repo=Repo(owner="acme", name="calc"),
        number=pull.number,
        requester=None,
        failed_checks_commit=sha,
    )


def own_comments(pull: FakePullRequest) -> list[str]:
    """Returns the bot's comments in the conversation of the pull request."""
    return [one.body.partition("\n")[2].strip() for one in pull.comments if "patchwright:" in one.body]


def commit_message(scenario: Scenario, pull: FakePullRequest) -> str:
    return scenario.repo.bare.git("show", "-s", "--format=%B", pull.head.sha).decode()
