"""Saves the partial patch of an interrupted run and prints how to resume it."""

import argparse
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from patchwright.bot.terminal.local_files import absolute_path, print_old_file_notice, write_patch
from patchwright.bot.terminal.output import describe_usage, print_stderr
from patchwright.resolver.domain import Job
from patchwright.resolver.errors import LogError, LogLocked, UsageError
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings


def resume_command(job: Job, options: argparse.Namespace) -> str:
    """Returns the command that resumes the run and writes its patch to the same file."""
    command = f"patchwright resolve --continue {job.id}"
    return f"{command} --out {shlex.quote(str(absolute_path(options.out)))}" if options.out else command


@contextmanager
def save_partial_patch(job: Job, settings: Settings, options: argparse.Namespace) -> Iterator[None]:
    """If the `with` block raises an exception, saves the partial patch and prints how to resume the run. Then raises
    the exception again.

    The patch is saved in the file of `--out`, or next to the log. `options.saved_run` is set to the run and
    the file, for the JSON output.
    """
    try:
        yield
    except (UsageError, LogLocked):
        raise  # The command did not work on the run.
    except BaseException:  # This includes Ctrl-C, and every exception is raised again.
        with suppress(LogError, OSError):
            _report_interrupt(job, FileLogStore(settings.data / "runs"), options)
        if "patch_file" not in getattr(options, "saved_run", {}):
            print_old_file_notice(options.out)
        raise
    else:
        options.saved_run = {"run": job.id}  # Ctrl-C may come while the sandbox is being removed.


def _report_interrupt(job: Job, logs: FileLogStore, options: argparse.Namespace) -> None:
    trajectory = logs.read(job.id)
    if trajectory.run_started is None:
        # The run was rejected before it did any work. Its empty log is removed, so that the list of runs does
        # not show it.
        if not trajectory.entries:
            (logs.run_directory(job.id) / "events.jsonl").unlink()
            logs.run_directory(job.id).rmdir()
        return
    options.saved_run = {"run": job.id}
    if (patch := trajectory.last_checkpoint()) is not None:
        try:
            written = write_patch(options.out or str(logs.run_directory(job.id) / "partial.diff"), patch)
        except UsageError as exc:
            print_stderr(f"\n{exc}")
            written = None
        if written:
            options.saved_run["patch_file"] = written
            print_stderr(f"\nThe changes so far are in {written}; they were not tested.")
    print_stderr(f"\nThe run was saved. Resume it with: {resume_command(job, options)}")
    print_stderr(f"View it with: patchwright view {job.id}\nSo far: {describe_usage(trajectory.usage())}")
