"""Passes the log of a run that asked a question to the workflow run that gets the answer.

The first workflow run writes the log to a directory, which the Action uploads as an artifact. The second one downloads
the artifact and continues the log. If there is no usable artifact, it starts again.
"""

import io
import zipfile
import zlib
from collections.abc import Awaitable, Callable

from patchwright.resolver.domain import InputRequired, Job, Outcome, RunId, Thread
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import Trajectory
from patchwright.resolver.masking import mask_trajectory
from patchwright.resolver.publishing.artifact import MAX_EVENTS_BYTES
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_log import FileLogStore, parse_trajectory
from patchwright.resolver.run_task import get_proposed_plan

DIRECTORY = "question-log"
"""The directory in the data directory whose files action.yml uploads."""
MAX_RUNS = 5  # runs of the thread, latest first, that are looked up in the artifact


def name_artifact(job: Job) -> str:
    """Returns the name under which action.yml uploads the log."""
    return f"patchwright-log-{job.number}"


def write_question_log(
    outcome: Outcome, job: Job, logs: FileLogStore, deps: RunDependencies, notify: Callable[[str], object]
) -> None:
    """Writes the masked logs of a job that asked a question. A plan is left out, because no workflow continues it."""
    if not isinstance(outcome, InputRequired):
        return
    directory = deps.settings.data / DIRECTORY
    try:
        last = logs.read(job.id)
        runs = [job.id, *([last.run_resumed.run] if last.run_resumed else [])]
        trajectories = {run: mask_trajectory(logs.read(run), deps.secrets) for run in runs}
        if any(get_proposed_plan(trajectory) for trajectory in trajectories.values()):
            return
        directory.mkdir(parents=True, exist_ok=True)
        for run, trajectory in trajectories.items():
            lines = (entry.model_dump_json(warnings=False) + "\n" for entry in trajectory.entries)
            (directory / f"{run}.jsonl").write_text("".join(lines), encoding="utf-8")
    except (LogError, OSError) as exc:
        notify(f"NOTICE: An answer will start a new run, because the log of this one cannot be kept: {exc}")


async def restore_question_log(
    job: Job, thread: Thread, logs: FileLogStore, download: Callable[[str], Awaitable[bytes | None]]
) -> None:
    """Stores the logs of the run of this thread that asked a question. Does nothing if no run asked one.

    `download` returns the zip file of an artifact. Raises LogError if the artifact is damaged, expired or of another
    run, and ForgeError.
    """
    if not thread.question:
        return None
    name = name_artifact(job)
    if (content := await download(name)) is None:
        raise LogError(f"There is no artifact {name}")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for run in reversed(thread.reported_runs[-MAX_RUNS:]):
                if f"{run}.jsonl" in archive.NameToInfo:
                    return await _restore(archive, RunId(run), job, logs)
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as exc:
        raise LogError(f"The artifact {name} is damaged") from exc
    raise LogError(f"The artifact {name} is from an earlier run")


async def _restore(archive: zipfile.ZipFile, run: RunId, job: Job, logs: FileLogStore) -> None:
    last = _read_log(archive, run)
    if last.job_completed is None or not isinstance(last.job_completed.outcome, InputRequired):
        raise LogError("The run in the artifact asked no question")
    restored = {run: last}
    if last.run_resumed is not None:
        restored[last.run_resumed.run] = _read_log(archive, last.run_resumed.run)
    started = [work.run_started for work in restored.values() if work.run_started]
    if not started or any((each.job.repo, each.job.number) != (job.repo, job.number) for each in started):
        raise LogError("The artifact contains the log of another thread.")
    for name, trajectory in restored.items():
        async with logs.open(name) as log:
            log.replace_entries(trajectory.entries)


def _read_log(archive: zipfile.ZipFile, run: RunId) -> Trajectory:
    """Reads at most MAX_EVENTS_BYTES, so a small archive cannot expand without limit."""
    try:
        with archive.open(f"{run}.jsonl") as file:
            lines = file.read(MAX_EVENTS_BYTES + 1)
    except KeyError as exc:
        raise LogError("The artifact with the log of the run is incomplete.") from exc
    if len(lines) > MAX_EVENTS_BYTES:
        raise LogError(f"The log of the run has more than {MAX_EVENTS_BYTES} bytes.")
    return parse_trajectory(lines, "The artifact")
