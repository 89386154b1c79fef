"""Saves downloads in the scratch directory, with size limits, and reports their names, sizes and paths."""

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.runtime.page.page_reader import DevToolsError

if TYPE_CHECKING:
    from patchwright.runtime.browser.vendor_types import VendorDownload

MAX_IN_PROGRESS_BYTES = 50_000_000  # maximum bytes of all downloads in progress
MAX_SAVED_BYTES = 200_000_000  # maximum bytes of all saved downloads
_POLL_SECONDS = 0.05  # seconds between two size checks; at 1 GB/s, a download grows by 50 MB in this time


class Downloads:
    """The downloads of one browser."""

    def __init__(
        self,
        directory: Path,
        incoming_dir: Path,
        translate_errors: Callable[[], AbstractContextManager[None]],
        add_note: Callable[[str], None],
    ) -> None:
        """Completed downloads are saved in `directory`. The browser writes unfinished downloads into
        `incoming_dir`.
        """
        self._directory = directory
        self._incoming_dir = incoming_dir
        self._translate_errors = translate_errors
        self._add_note = add_note
        self._running: set[asyncio.Task[None]] = set()

    def start(self, download: "VendorDownload") -> None:
        task = asyncio.create_task(self._save(download))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def wait(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for downloads in progress. If some of them do not finish, add a note for
        the model."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout)
        if self._running:
            self._add_note(f"{len(self._running)} download(s) are not finished yet: wait with noop()")

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _save(self, download: "VendorDownload") -> None:
        name = _safe_name(download.suggested_filename)
        download_task = asyncio.create_task(self._wait_for_file(download))
        try:
            while not (await asyncio.wait([download_task], timeout=_POLL_SECONDS))[0]:
                if _directory_size(self._incoming_dir) > MAX_IN_PROGRESS_BYTES:
                    with self._translate_errors():
                        await download.cancel()
                    self._add_note(
                        f"the download of {name} was canceled because it exceeded "
                        f"{MAX_IN_PROGRESS_BYTES // 1_000_000} MB"
                    )
                    return
            path = download_task.result()
            size = path.stat().st_size
            if size + _directory_size(self._directory) > MAX_SAVED_BYTES:
                path.unlink()
                self._add_note(f"the download of {name} was not saved, because {self._directory} would exceed "
                           f"{MAX_SAVED_BYTES // 1_000_000} MB")  # fmt: skip
                return
            self._directory.mkdir(parents=True, exist_ok=True)
            target = _unused_path(self._directory / name)
            os.replace(path, target)
            self._add_note(f"downloaded {name}: {size:,} bytes, saved as {target}")
        except (DevToolsError, OSError) as error:
            self._add_note(f"the download of {name} failed: {error}"[:300])
        finally:
            download_task.cancel()

    async def _wait_for_file(self, download: "VendorDownload") -> Path:
        with self._translate_errors():
            return Path(await download.path())


def _safe_name(suggested: str) -> str:
    """Return a safe file name, made from the name that a page suggests."""
    name = re.sub(r"[^\w.,()+=@ -]", "_", Path(suggested).name).strip(". ")
    stem, dot, suffix = name.rpartition(".")
    return (f"{stem[:80]}.{suffix[:16]}" if dot and stem else name[:80]) or "download"


def _unused_path(path: Path) -> Path:
    number, candidate = 1, path
    while os.path.lexists(candidate):
        number += 1
        candidate = path.with_stem(f"{path.stem}-{number}")
    return candidate


def _directory_size(directory: Path) -> int:
    """Return the total size of the files in a directory in bytes."""
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries if entry.is_file())
    except OSError:  # the directory does not exist yet, or a file was moved a moment ago
        return 0
