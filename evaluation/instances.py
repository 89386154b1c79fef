"""An instance: an issue, the commit that it concerns, and the hidden tests that decide whether it is resolved."""

import hashlib
from datetime import datetime
from pathlib import Path

from pydantic import Field

from patchwright.bot.terminal.run_ids import sanitize_name
from patchwright.resolver.domain import Issue, JobId, Repo, User
from patchwright.runtime.frozen_model import FrozenModel

MAX_RUN_ID = 150  # characters; a sandbox's name adds its role


class Instance(FrozenModel):
    """One issue of a data set. All formats are converted to this one."""

    id: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$")
    repo: str
    """Name for people, such as `django/django`. The report has one line for each repository."""
    url: str
    """Clone URL of the repository, or its path on this machine."""
    base_commit: str
    problem: str
    """The issue as the model sees it. The first line is the title. Hints are never part of it."""
    gold_patch: str = Field(repr=False)
    """The reference fix without its tests."""
    test_patch: str = Field(repr=False)
    """The hidden tests. They are applied only after the agent has ended."""
    fail_to_pass: tuple[str, ...] = ()
    """Tests that the fix must make pass. If both lists are empty, the reference fix determines them."""
    pass_to_pass: tuple[str, ...] = ()
    """Tests that must still pass."""
    image: str = ""
    """Docker image with the instance's environment; empty if there is none. It is used if it can be pulled."""
    test_command: str = ""
    """Command that runs the tests from the root directory; empty if it is to be detected."""
    issue_number: int | None = None
    """Number of the issue or pull request on GitHub; None if the instance has another source."""
    images: tuple[str, ...] = ()
    """URLs of the images that belong to the issue. No other URL in the issue is downloaded."""
    created_at: datetime | None = None
    """When the issue was reported or fixed, so that a report can leave out what a model may have seen."""
    evaluation: str = Field(default="", pattern=r"^[0-9a-f]*$")
    """Begins the names of the runs if workers make the attempts, because evaluations may share workers."""

    @property
    def issue(self) -> Issue:
        """The issue for the agent. It has no URL, so that the agent cannot look up the fix."""
        title, _, body = self.problem.strip().lstrip("# ").partition("\n")
        reporter = User(id=0, login="reporter")
        return Issue(
            number=1,
            title=title.strip()[:300],
            body=body.strip(),
            author=reporter,
            trusted=True,
            open=True,
            url="",
        )

    @property
    def job_repo(self) -> Repo:
        """The repository for the run's log."""
        owner, _, name = self.repo.rpartition("/")
        return Repo(
            owner=sanitize_name(owner).replace(".", "-")[:39] or "local", name=sanitize_name(name)[:100]
        )

    def run_id(self, model: str, attempt: int) -> JobId:
        """Returns the name of the run. It is the same in each process, so that a killed run is continued."""
        name = f"{sanitize_name(self.id)}-{sanitize_name(model)}-{attempt}"
        name = f"{self.evaluation}-{name}" if self.evaluation else name
        if len(name) > MAX_RUN_ID:
            name = f"{name[: MAX_RUN_ID - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        return JobId(name)


def write_instances(instances: tuple[Instance, ...], file: Path) -> None:
    """Writes the instances as JSON lines."""
    file.write_text("".join(instance.model_dump_json() + "\n" for instance in instances))


def read_instances(file: Path) -> tuple[Instance, ...]:
    """Reads what `write_instances` wrote."""
    return tuple(Instance.model_validate_json(line) for line in file.read_text().splitlines())
