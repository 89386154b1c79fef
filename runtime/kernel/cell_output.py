"""The output of a cell: text, and the images for the reply. It goes to descriptor 1.

Runs in the kernel process, on the repository's own Python (3.9 or newer), and needs only the standard library.
"""

from __future__ import annotations

import base64
import fcntl
import io
import itertools
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

HOST_REQUEST_PREFIX = "patchwright request "  # The beginning of a skill's request on Jupyter's stdin channel.
MAX_IMAGES = 4  # Number of images that a cell returns; the largest ones are kept.
MAX_IMAGE_BYTES = 4 << 20  # maximum bytes of one image
MAX_CELL_IMAGE_BYTES = 8 << 20  # maximum bytes of all images that a cell returns
IMAGE_MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
TEXT_MEDIA_TYPES = ("text/markdown", "text/latex", "application/json", "image/svg+xml", "text/html")
_MIN_OUTPUT_FD = 200  # Lowest descriptor for the output. Cells may close those with low numbers.


class ImageBuffer:
    """Collects the images of one cell. If a cell shows too many images, keeps the largest ones."""

    def __init__(self) -> None:
        self._images: list[tuple[int, str, bytes]] = []
        self._count = 0

    def add(self, media_type: str, data: bytes) -> int:
        """Add an image and return its number in this cell."""
        self._count += 1
        candidates = sorted(
            [*self._images, (self._count, media_type, data)], key=lambda image: -len(image[2])
        )
        self._images, budget = [], MAX_CELL_IMAGE_BYTES
        for image in candidates:
            size = len(image[2])
            if size <= min(budget, MAX_IMAGE_BYTES) and len(self._images) < MAX_IMAGES:
                self._images.append(image)
                budget -= size
        return self._count

    def take(self) -> dict[str, Any]:
        """Return the images for the reply to the cell, and empty the buffer."""
        images = [
            {"number": number, "media_type": media_type, "data": base64.b64encode(data).decode()}
            for number, media_type, data in sorted(self._images)
        ]
        result = {"images": images, "shown": self._count}
        self._images, self._count = [], 0
        return result


class UncloseableStream(io.TextIOWrapper):
    """A stream that a cell cannot close. IPython would exit if this stream were closed."""

    def close(self) -> None:
        pass


class CellOutput:
    """Receives the output of a cell, even if the cell changes `sys.stdout` or the descriptors 1 and 2."""

    def __init__(self) -> None:
        self._descriptor = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _MIN_OUTPUT_FD)
        # Without a buffer, the text appears before the output of a later child process, and only once after a fork.
        raw = io.FileIO(self._descriptor, "w", closefd=False)
        self._stream = UncloseableStream(raw, "utf-8", "backslashreplace", write_through=True)
        self.images = ImageBuffer()

    def restore(self) -> None:
        """Undo the redirections of the last cell, and reopen the streams that it closed."""
        for standard in (1, 2):
            os.dup2(self._descriptor, standard)
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = self._stream  # type: ignore[misc]

    def show(self, data: dict[str, Any]) -> None:
        """Write the text for a displayed object. Keep the object for the reply if it is an image."""
        self.write_line(render_rich_output(data, self.images))

    def write_line(self, text: str) -> None:
        """Write the text, and a line break if it does not end with one."""
        self._stream.write(text if text.endswith("\n") else text + "\n")


def render_rich_output(data: dict[str, Any], images: ImageBuffer) -> str:
    """Return the text for a displayed object. If the object is an image, add the image to the buffer."""
    for media_type in IMAGE_MEDIA_TYPES:
        if image := data.get(media_type):
            content = image if isinstance(image, bytes) else base64.b64decode(image)
            return f"[image {images.add(media_type, content)}: {media_type}, {len(content):,} bytes]"
    text = str(data.get("text/plain", ""))
    if text and not text.startswith("<IPython.core.display."):
        return text
    rendered = next((data[name] for name in TEXT_MEDIA_TYPES if name in data), text)
    return rendered if isinstance(rendered, str) else json.dumps(rendered, indent=1, default=str)


def collapse_traceback(traceback: list[str]) -> Iterator[str]:
    """Yield the lines of a traceback. Replaces repeated frames with their number, as Python itself does."""
    for entry, repeats in itertools.groupby(traceback):
        count = sum(1 for _ in repeats)
        yield from [entry] * min(count, 3)
        if count > 3:
            yield f"  [this frame is repeated {count - 3:,} more times]\n"
