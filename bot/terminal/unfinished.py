"""A run at the command line that is interrupted or fails: its patch so far is written, and how to go on is told."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bot.terminal.lines import to_stderr
from bot.terminal.local_files import write_patch
from resolver.domain import Job
from resolver.errors import LogError, UsageError
from resolver.log import FileLogs
from resolver.settings.settings import Settings


@contextmanager
def unfinished(job: Job, settings: Settings, out: str | None) -> Iterator[None]:
    """Passes on what ends the block; tells what there is of the run first.

    `out`: where the patch was wanted; None: it goes beside the log.
    """
    try:
        yield
    except BaseException:  # Ctrl-C too; whatever it is goes on
        with suppress(LogError, OSError):
            _tell(job, FileLogs(settings.data / "runs"), out)
        raise


def _tell(job: Job, logs: FileLogs, out: str | None) -> None:
    trajectory = logs.read(job.id)
    if trajectory.started is None:
        if not trajectory.entries:  # refused before anything was done: no run, and none to be listed
            (logs.path(job.id) / "events.jsonl").unlink()
            logs.path(job.id).rmdir()
        return
    if (patch := trajectory.checkpoint()) is not None:
        try:
            written = write_patch(str(Path(out) if out else logs.path(job.id) / "so-far.diff"), patch)
        except UsageError as exc:
            to_stderr(f"\n{exc}")
            written = None
        if written:
            to_stderr(f"\nWhat was changed so far is in {written}; no tests were run to judge it.")
    to_stderr(f"\nThe run is kept. Go on with: patchwright resolve --continue {job.id}")
    to_stderr(f"See what it did: patchwright view {job.id}")
