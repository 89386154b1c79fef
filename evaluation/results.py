"""The results of an evaluation, and the directory in which they are stored."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from patchwright.evaluation.controls import ControlResult
from patchwright.evaluation.hidden_tests import Score
from patchwright.evaluation.instances import Instance, read_instances, write_instances
from patchwright.resolver.activity.failure import FailureKind
from patchwright.resolver.domain import Usage, VerdictKind
from patchwright.resolver.errors import UsageError
from patchwright.runtime.frozen_model import FrozenModel

Stage = Literal["reproduced", "localized", "patched", "own_tests_pass", "pull_request", "hidden_tests_pass"]
STAGES: tuple[Stage, ...] = (
    "reproduced", "localized", "patched", "own_tests_pass", "pull_request", "hidden_tests_pass",
)  # fmt: skip


class EvaluationPlan(FrozenModel):
    """What is evaluated, and under which rules. It is stored with the results."""

    source: str
    selection: str = ""
    """The limit and the filters. If they change, the instances are loaded again."""
    models: tuple[str, ...]
    attempts: int = 1
    """Number of attempts for each instance (k)."""
    sandbox: str = ""
    max_usd: Decimal = Decimal(0)
    """Limit of one attempt in dollars."""
    max_steps: int = 0
    timeout: int = 0
    """Limit of one attempt in seconds."""
    temperature: str = "0, or the model's default if it accepts no temperature"
    hints: bool = False
    """Whether the model saw the hints of the data set. Always false."""
    tests_shown: bool = False
    """Whether the model saw the hidden tests. Always false."""
    file_hints: bool = False
    """Whether the issue names the five files that fit it best."""
    writes_tests: bool = False
    """Whether the task is to write tests that show the bug, as in SWT-bench."""
    examples: int = 0
    """Number of solved examples in the prompt (0-shot)."""
    evaluation_id: str = ""
    """Begins the names of the runs and jobs if workers make the attempts; empty if this process makes them."""
    version: str
    started_at: datetime


class AttemptResult(FrozenModel):
    """The result of one attempt of one model at one instance."""

    instance: str
    repo: str
    created_at: datetime | None = None
    model: str
    attempt: int
    run: str
    verdict: VerdictKind | None = None
    """Our own verdict, without the hidden tests. None if there is none because of an error."""
    score: Score = Score()
    failure: FailureKind | None = None
    """The first thing that went wrong; None if the instance is resolved."""
    stages: tuple[Stage, ...] = ()
    usage: Usage = Usage()
    harness_seconds: float = 0.0
    """Time beside the agent's work and the hidden tests."""
    test_seconds: float = 0.0
    patch: str = ""
    error: str = ""
    excluded_changes: tuple[str, ...] = ()
    """One sentence for each change that the patch policy forbids. These changes are not in the patch."""
    gold_files: tuple[str, ...] = ()
    changed_files: tuple[str, ...] = ()
    viewed_files: tuple[str, ...] = ()
    """The first files that the agent viewed, in order."""
    ranked_files: tuple[str, ...] = ()
    """The five files that a search with the words of the issue finds first."""

    @property
    def resolved(self) -> bool:
        return self.score.resolved


class ResultDirectory:
    """The directory of an evaluation. A finished attempt is stored at once, so it is never repeated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = path / "runs"
        self.repositories = path / "repositories"
        self.checkouts = path / "checkouts"

    def create(self) -> None:
        """Creates the directories. Raises OSError."""
        for directory in (self.path, self.runs, self.repositories, self.checkouts):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the directory for this process. Raises UsageError if another process evaluates in it."""
        try:
            self.create()
            with (self.path / "lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield
        except BlockingIOError:
            raise UsageError(
                f"Another process evaluates in {self.path}. Wait for it, or use another --out"
            ) from None
        except OSError as exc:
            raise UsageError(f"Cannot write to {self.path}: {exc.strerror}. Use another --out") from exc

    def read_instances(self) -> tuple[Instance, ...]:
        """Returns the instances of an earlier call; none if there was no earlier call."""
        file = self.path / "instances.jsonl"
        return read_instances(file) if file.exists() else ()

    def write_instances(self, instances: tuple[Instance, ...]) -> None:
        write_instances(instances, self.path / "instances.jsonl")

    def read_plan(self) -> EvaluationPlan | None:
        file = self.path / "plan.json"
        return EvaluationPlan.model_validate_json(file.read_text()) if file.exists() else None

    def write_plan(self, plan: EvaluationPlan) -> None:
        self.write("plan.json", plan.model_dump_json(indent=1))

    def read_control(self, instance: str) -> ControlResult | None:
        file = self.path / "controls" / f"{instance}.json"
        return ControlResult.model_validate_json(file.read_text()) if file.exists() else None

    def write_control(self, control: ControlResult) -> None:
        self.write(f"controls/{control.instance}.json", control.model_dump_json())

    def read_attempt(self, run: str) -> AttemptResult | None:
        file = self.path / "attempts" / f"{run}.json"
        return AttemptResult.model_validate_json(file.read_text()) if file.exists() else None

    def write_attempt(self, result: AttemptResult) -> None:
        self.write(f"attempts/{result.run}.json", result.model_dump_json())

    def write(self, name: str, text: str) -> None:
        """Replaces a file. A process that is killed meanwhile leaves the old file or the new one."""
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        with open(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(temporary, path)


def read_report_inputs(
    path: Path,
) -> tuple[EvaluationPlan, tuple[ControlResult, ...], tuple[AttemptResult, ...]]:
    """Reads a finished or running evaluation. Raises UsageError if the directory contains none."""
    directory = ResultDirectory(path)
    try:
        plan = directory.read_plan()
        files = {name: sorted((path / name).glob("*.json")) for name in ("controls", "attempts")}
        controls = tuple(ControlResult.model_validate_json(file.read_text()) for file in files["controls"])
        attempts = tuple(AttemptResult.model_validate_json(file.read_text()) for file in files["attempts"])
    except (OSError, ValidationError) as exc:
        raise UsageError(f"{path} contains no evaluation of this version: {exc}") from exc
    if plan is None:
        raise UsageError(f"{path} contains no evaluation")
    return plan, controls, attempts
