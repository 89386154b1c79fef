"""Downloads: kept below the scratch directory, bounded, and told by name, size and path."""

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.page.page import NoAnswer

if TYPE_CHECKING:
    from runtime.browser.browser import VendorDownload

MOST_BYTES = 50_000_000  # that are on their way at a time
MOST_KEPT = 200_000_000  # bytes of all that are kept
_LOOK_SECONDS = 0.05  # between two looks at what has come: 50 MB more at 1 GB/s


class Downloads:
    """The downloads of one browser."""

    def __init__(
        self,
        kept: Path,
        coming: Path,
        fence: Callable[[], AbstractContextManager[None]],
        note: Callable[[str], None],
    ) -> None:
        """`kept`: where they end up. `coming`: where the browser writes them."""
        self._kept = kept
        self._coming = coming
        self._fence = fence
        self._note = note
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, download: "VendorDownload") -> None:
        task = asyncio.create_task(self._keep(download))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def settle(self, seconds: float) -> None:
        """Wait for those that are on their way, and say which are left."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        if self._running:
            self._note(f"{len(self._running)} downloads are not finished: wait with noop()")

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _keep(self, download: "VendorDownload") -> None:
        name = _name(download.suggested_filename)
        coming = asyncio.create_task(self._finish(download))
        try:
            while not (await asyncio.wait([coming], timeout=_LOOK_SECONDS))[0]:
                if _size(self._coming) > MOST_BYTES:
                    with self._fence():
                        await download.cancel()
                    self._note(
                        f"the download of {name} was cancelled: more than {MOST_BYTES // 1_000_000} MB"
                    )
                    return
            path = coming.result()
            size = path.stat().st_size
            if size + _size(self._kept) > MOST_KEPT:
                path.unlink()
                self._note(f"the download of {name} was not kept: with it, {self._kept} would exceed "
                           f"{MOST_KEPT // 1_000_000} MB")  # fmt: skip
                return
            self._kept.mkdir(parents=True, exist_ok=True)
            place = _free(self._kept / name)
            os.replace(path, place)
            self._note(f"downloaded {name}: {size:,} bytes, now {place}")
        except (NoAnswer, OSError) as error:
            self._note(f"the download of {name} failed: {error}"[:300])
        finally:
            coming.cancel()

    async def _finish(self, download: "VendorDownload") -> Path:
        with self._fence():
            return Path(await download.path())


def _name(suggested: str) -> str:
    """A file name that is nothing else, whatever the page suggests."""
    plain = re.sub(r"[^\w.,()+=@ -]", "_", Path(suggested).name).strip(". ")
    stem, dot, suffix = plain.rpartition(".")
    return (f"{stem[:80]}.{suffix[:16]}" if dot and stem else plain[:80]) or "download"


def _free(path: Path) -> Path:
    number, place = 1, path
    while os.path.lexists(place):
        number += 1
        place = path.with_stem(f"{path.stem}-{number}")
    return place


def _size(directory: Path) -> int:
    """Bytes of the files in a directory."""
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries if entry.is_file())
    except OSError:  # not there yet, or a file that was just moved
        return 0
