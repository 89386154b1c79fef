"""The machine: where data goes, who may read it, and what is left of disk and memory."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from bot.doctor.examine import Check, Finding, failed, ok, warning
from bot.setup import kept
from resolver.settings.settings import Settings
from runtime.docker import headroom

ROOMY_MB = 10_240  # of disk; an image layer takes one, a run's tree and its tests may take several
_GIB = 1024


def checks(settings: Settings) -> list[Check]:
    return [
        Check("data directory", _later(lambda: data_directory(settings.data)), "Set PATCHWRIGHT_DATA."),
        Check("disk", _later(lambda: disk(settings)), "Make room."),
        Check("memory", _later(lambda: memory(settings)), "Give the machine more memory."),
    ]


def _later(look: Callable[[], Sequence[Finding]]) -> Callable[[], Awaitable[Sequence[Finding]]]:
    return lambda: asyncio.to_thread(look)


def data_directory(data: Path) -> list[Finding]:
    """Whether runs can be kept, and whether what set-up has kept is for this account alone."""
    name, there = "data directory", _nearest(data)
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".doctor-"):
            pass
    except OSError as exc:
        seen = f"{there} cannot be written: {exc.strerror}"
        return [failed(name, seen, f"Let this user write in {data}, or set PATCHWRIGHT_DATA.")]
    found = [ok(name, f"{data} can be written" if there == data else f"{data} can be made")]
    if loose := kept.loose(data):
        path = kept.path_in(data)
        mend = f"chmod 700 {path.parent} && chmod 600 {path}; if others work on this machine, make a new key."
        found.append(warning("kept key", f"others can read it: {', '.join(loose)}", mend))
    return found


def disk(settings: Settings) -> list[Finding]:
    """What is left where data goes."""
    there = _nearest(settings.data)
    left = headroom.disk(there)
    if left is None:
        return [warning("disk", f"nobody says how much of {there} is left", "Look with df.")]
    seen = f"{_size(left)} left at {there}"
    if left < settings.free_disk_mb:
        return [failed("disk", seen, "Make room: the logs of runs and their clones are written there.")]
    if left < ROOMY_MB:
        return [warning("disk", seen, f"{_size(ROOMY_MB)} do for several runs and their images.")]
    return [ok("disk", seen)]


def memory(settings: Settings) -> list[Finding]:
    """Whether there is enough for as many sandboxes as there may be."""
    left = headroom.memory()
    if left is None:
        return [warning("memory", "this machine does not say how much is left", "Look with free.")]
    wanted = settings.jobs_at_once * settings.memory_mb
    seen = f"{_size(left)} left; {settings.jobs_at_once} sandboxes may take {_size(wanted)}"
    if left < settings.free_memory_mb:
        return [failed("memory", seen, "No sandbox is started where less than free_memory_mb is left.")]
    if left < wanted + settings.free_memory_mb:
        return [warning("memory", seen, "Lower jobs_at_once or memory_mb, or give the machine more.")]
    return [ok("memory", seen)]


def _nearest(path: Path) -> Path:
    """It, or what is there of the way to it."""
    return next(each for each in (path, *path.absolute().parents) if each.is_dir())


def _size(mib: int) -> str:
    return f"{mib / _GIB:.1f} GiB"
