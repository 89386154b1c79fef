"""Checks of the machine: data directory, saved credentials, free disk space and memory."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from patchwright.bot.doctor.runner import CheckResult, DoctorCheck, failed, ok, warning
from patchwright.bot.setup import credential_store
from patchwright.bot.setup.credential_key import default_key_file, find_key, key_settings
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.docker import capacity

# enough for one image layer of 1 GiB, and for a run whose work tree and tests take several GiB
COMFORTABLE_DISK_MB = 10_240
_GIB = 1024


def build_checks(settings: Settings) -> list[DoctorCheck]:
    return [
        DoctorCheck(
            "data directory", _in_thread(lambda: check_data_directory(settings.data)), "Set PATCHWRIGHT_DATA."
        ),
        DoctorCheck(
            "saved credentials", _in_thread(lambda: check_saved_credentials(settings)), "Run the setup again."
        ),
        DoctorCheck("disk", _in_thread(lambda: check_disk(settings)), "Free disk space."),
        DoctorCheck("memory", _in_thread(lambda: check_memory(settings)), "Add memory."),
    ]


def _in_thread(check: Callable[[], Sequence[CheckResult]]) -> Callable[[], Awaitable[Sequence[CheckResult]]]:
    return lambda: asyncio.to_thread(check)


def check_data_directory(data: Path) -> list[CheckResult]:
    """Checks that the data directory is writable."""
    name, directory = "data directory", _nearest_existing(data)
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".doctor-"):
            pass
    except OSError as exc:
        detail = f"{directory} is not writable: {exc.strerror}"
        return [failed(name, detail, f"Make {data} writable for this user, or set PATCHWRIGHT_DATA.")]
    return [ok(name, f"{data} is writable" if directory == data else f"{data} can be created")]


def check_saved_credentials(settings: Settings) -> list[CheckResult]:
    """Checks that the credentials from the setup are encrypted, can be decrypted, and are private."""
    name, data, key = "saved credentials", settings.data, key_settings(settings)
    path = credential_store.store_path(data)
    try:
        if not credential_store.has_credentials(data):
            return []
        credential_store.load(data, key)
        found = find_key(data, key)
    except SettingsError as exc:
        return [failed(name, str(exc), "Restore the key, or run the setup again.")]
    assert found is not None  # It decrypted the credentials.
    result = ok(name, f"encrypted; the key is {found.source}")
    key_file = None if key.key else key.file or default_key_file(data)
    if exposed := credential_store.find_readable_by_others(data, key_file):
        modes = f"chmod 700 {path.parent} && chmod 600 {path}"
        modes += f" {key_file}" if key_file is not None and key_file.exists() else ""
        fix = f"{modes}; if other people use this machine, generate a new key."
        return [result, warning(name, f"other users can read these files: {', '.join(exposed)}", fix)]
    return [result]


def check_disk(settings: Settings) -> list[CheckResult]:
    """Checks the free space in the data directory."""
    directory = _nearest_existing(settings.data)
    free_mb = capacity.available_disk_mb(directory)
    if free_mb is None:
        return [warning("disk", f"cannot measure the free space at {directory}", "Check it with df.")]
    detail = f"{_format_size(free_mb)} free at {directory}"
    if free_mb < capacity.MIN_FREE_DISK_MB:
        return [
            failed("disk", detail, "Free some disk space: the data directory contains run logs and clones.")
        ]
    if free_mb < COMFORTABLE_DISK_MB:
        return [
            warning(
                "disk",
                detail,
                f"Provide {_format_size(COMFORTABLE_DISK_MB)} for several runs and their images.",
            )
        ]
    return [ok("disk", detail)]


def check_memory(settings: Settings) -> list[CheckResult]:
    """Checks that the free memory is enough for the sandboxes that can run at the same time."""
    free_mb = capacity.available_memory_mb()
    if free_mb is None:
        return [warning("memory", "cannot measure the free memory", "Check it with free.")]
    needed_mb = settings.max_concurrent_jobs * settings.memory_mb
    detail = f"{_format_size(free_mb)} free; {settings.max_concurrent_jobs} sandboxes can use {_format_size(needed_mb)}"
    if free_mb < capacity.MIN_FREE_MEMORY_MB:
        return [
            failed(
                "memory",
                detail,
                f"Free some memory. A sandbox needs {capacity.MIN_FREE_MEMORY_MB} MiB to start.",
            )
        ]
    if free_mb < needed_mb + capacity.MIN_FREE_MEMORY_MB:
        return [warning("memory", detail, "Lower max_concurrent_jobs or memory_mb, or add memory.")]
    return [ok("memory", detail)]


def _nearest_existing(path: Path) -> Path:
    """Returns the path, or its nearest existing parent."""
    return next(each for each in (path, *path.absolute().parents) if each.is_dir())


def _format_size(mib: int) -> str:
    return f"{mib / _GIB:.1f} GiB"
