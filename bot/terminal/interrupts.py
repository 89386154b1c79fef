"""Saves the partial patch of an interrupted run and prints how to resume it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from patchwright.bot.terminal.local_files import write_patch
from patchwright.bot.terminal.output import print_stderr
from patchwright.resolver.domain import Job
from patchwright.resolver.errors import LogError, UsageError
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings


@contextmanager
def save_partial_patch(job: Job, settings: Settings, out: str | None) -> Iterator[None]:
    """If the block raises an exception, saves the partial patch and prints how to resume the run. Then raises
    the exception again.

    `out` is the file for the patch. If `out` is None, the patch is saved next to the log.
    """
    try:
        yield
    except BaseException:  # This includes Ctrl-C, and every exception is raised again.
        with suppress(LogError, OSError):
            _report_interrupt(job, FileLogStore(settings.data / "runs"), out)
        raise


def _report_interrupt(job: Job, logs: FileLogStore, out: str | None) -> None:
    trajectory = logs.read(job.id)
    if trajectory.run_started is None:
        # The run was rejected before it did any work. Its empty log is removed, so that the list of runs does
        # not show it.
        if not trajectory.entries:
            (logs.run_directory(job.id) / "events.jsonl").unlink()
            logs.run_directory(job.id).rmdir()
        return
    if (patch := trajectory.last_checkpoint()) is not None:
        try:
            written = write_patch(
                str(Path(out) if out else logs.run_directory(job.id) / "partial.diff"), patch
            )
        except UsageError as exc:
            print_stderr(f"\n{exc}")
            written = None
        if written:
            print_stderr(f"\nThe changes so far are in {written}; they were not tested.")
    print_stderr(f"\nThe run was saved. Resume it with: patchwright resolve --continue {job.id}")
    print_stderr(f"View it with: patchwright view {job.id}")
