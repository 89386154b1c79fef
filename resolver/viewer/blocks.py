"""The content blocks of a timeline item: texts, diffs, checklists and images, all of limited size."""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Literal

from patchwright.runtime.observations import ImageData
from patchwright.runtime.output_text import clip
from patchwright.runtime.output_text import clip_line as one_line
from patchwright.runtime.tool_action import PlanItem

MAX_IMAGE_CHARACTERS = 9_500_000
"""Total size limit of a file's images, in characters of base64."""
MAX_PIXELS = (
    40_000_000  # pixels of one image; a file of a few kilobytes can have enough pixels to freeze the browser
)
MAX_OPEN_LINES = 14
"""Maximum number of lines of a text that is shown unfolded."""
MAX_OPEN_DIFF_LINES = 80


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A text with line breaks."""

    type: ClassVar = "text"
    label: str
    text: str
    is_open: bool
    is_code: bool = True
    """True for code and output, False for prose."""

    @property
    def line_count(self) -> int:
        return self.text.count("\n") + (not self.text.endswith("\n"))


DiffLineKind = Literal["ins", "del", "hunk", "file", "same"]


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """A unified diff, in which consecutive lines of the same kind are grouped."""

    type: ClassVar = "diff"
    label: str
    runs: tuple[tuple[DiffLineKind, str], ...]
    added: int
    removed: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class ChecklistBlock:
    """The agent's plan."""

    type: ClassVar = "checklist"
    items: tuple[PlanItem, ...]


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image in an `ImageCollection`."""

    type: ClassVar = "image"
    key: str
    caption: str
    first_item_id: str
    """Id of the item that shows the image. Other items link to this item."""


Block = TextBlock | DiffBlock | ChecklistBlock | ImageBlock


def build_text_block(label: str, text: str, limit: int, *, is_folded: bool = False) -> TextBlock:
    """Returns a block of prose, clipped to about `limit` characters."""
    return TextBlock(label, clip(text.strip("\n"), limit), is_open=not is_folded, is_code=False)


def build_code_block(label: str, text: str, limit: int, *, is_folded: bool | None = None) -> TextBlock:
    """Returns a block of code or output, clipped to about `limit` characters. If `is_folded` is None, a long
    text is folded.
    """
    clipped = clip(text.rstrip("\n"), limit)
    is_long = clipped.count("\n") >= MAX_OPEN_LINES or len(clipped) > MAX_OPEN_LINES * 160
    return TextBlock(label, clipped, is_open=not (is_long if is_folded is None else is_folded))


def build_diff_block(label: str, text: str, limit: int) -> DiffBlock:
    """Returns a unified diff, clipped to about `limit` characters. The numbers of added and removed lines are
    those of the whole diff.
    """
    shown_lines = list(_classify_lines(clip(text.rstrip("\n"), limit).split("\n")))
    runs = tuple(
        (kind, "\n".join(line for _, line in lines))
        for kind, lines in groupby(shown_lines, lambda pair: pair[0])
    )
    all_kinds = [kind for kind, _ in _classify_lines(text.split("\n"))]
    return DiffBlock(
        one_line(label, 200),
        runs,
        all_kinds.count("ins"),
        all_kinds.count("del"),
        is_open=len(shown_lines) <= MAX_OPEN_DIFF_LINES,
    )


def _classify_lines(lines: Iterable[str]) -> Iterator[tuple[DiffLineKind, str]]:
    # The line counts in the hunk header show where the hunk ends. The lines alone do not show this: a removed
    # line `-- x` looks like the file header `--- x`.
    old_left = new_left = 0
    has_hunk = False
    for line in lines:
        if hunk_header := re.match(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@", line):
            old_left, new_left = (int(count) if count is not None else 1 for count in hunk_header.groups())
            has_hunk = True
            yield "hunk", line
        elif has_hunk and old_left <= 0 and new_left <= 0 and not line.startswith("\\"):
            yield "file", line
        elif line.startswith("+") and (has_hunk or not line.startswith("+++ ")):
            new_left -= 1
            yield "ins", line
        elif line.startswith("-") and (has_hunk or not line.startswith("--- ")):
            old_left -= 1
            yield "del", line
        elif has_hunk and line.startswith(" "):
            old_left, new_left = old_left - 1, new_left - 1
            yield "same", line
        else:
            yield ("same" if line.startswith((" ", "\\")) else "file"), line


class ImageCollection:
    """The images of one HTML file. Each image is stored once. If the total size exceeds the limit, the largest
    images are omitted.
    """

    def __init__(self, max_characters: int = MAX_IMAGE_CHARACTERS) -> None:
        self._max_characters = max_characters
        self._pictures: dict[str, tuple[ImageData, str]] = {}
        self._included: frozenset[str] | None = None

    def add(self, picture: ImageData, caption: str, item_id: str) -> ImageBlock:
        """Adds an image. `item_id` is the id of the timeline item that shows the image."""
        key = hashlib.sha256(picture.data).hexdigest()
        _, first = self._pictures.setdefault(key, (picture, item_id))
        return ImageBlock(key, caption, first)

    def get_data_url(self, image: ImageBlock) -> str | None:
        """Returns the image as a `data:` URL, or None if it is omitted. Call it only after all images have
        been added.
        """
        if self._included is None:
            self._included = frozenset(self._select_smallest())
        if image.key not in self._included:
            return None
        image_data = self._pictures[image.key][0]
        return f"data:{image_data.media_type};base64,{base64.b64encode(image_data.data).decode()}"

    def get_size(self, image: ImageBlock) -> int:
        """Returns the size of the image in bytes."""
        return len(self._pictures[image.key][0].data)

    def get_dimensions(self, image: ImageBlock) -> tuple[int, int] | None:
        """Returns the width and height of a PNG image; None for other formats. With this size, the
        browser can reserve space for the image before the image is loaded.
        """
        data = self._pictures[image.key][0].data
        if not data.startswith(b"\x89PNG\r\n\x1a\n") or len(data) < 24:
            return None
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")

    def _select_smallest(self) -> Iterator[str]:
        remaining = self._max_characters
        for key, (image, _) in sorted(self._pictures.items(), key=lambda pair: len(pair[1][0].data)):
            width, height = self.get_dimensions(ImageBlock(key, "", "")) or (0, 0)
            if width * height > MAX_PIXELS:
                continue
            remaining -= len(image.data) * 4 // 3 + 4
            if remaining < 0:
                return
            yield key
