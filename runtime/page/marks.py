"""Draws a set of marks on a screenshot: boxes around elements, with the ids (bids) of the elements. Never
changes the page itself.
"""

import functools
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from patchwright.runtime.observations import ImageData

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

MAX_MARKS = 200  # maximum number of marks; more marks would cover the page and each other
MAX_TEXT_BOXES = 2_000  # maximum number of text boxes that labels avoid
MAX_BYTES = 300_000  # maximum bytes of an image in a prompt
MAX_PIXELS = 40_000_000  # maximum pixels of a screenshot; a real viewport has 1 to 8 million
LABEL_PIXELS, SMALL_LABEL_PIXELS = 13, 11  # font sizes in pixels at a device pixel ratio of 1
# if there are at least this many marks, labels are small, because large ones would hide each other
SMALL_LABEL_MARKS = 80

COLORS = ("#c00000", "#0050c8", "#007030", "#8000a0", "#a04000", "#006878", "#b00070", "#404040")
"""The colors of marks. White digits have a contrast of at least 5:1 on each color (WCAG 2.2, 1.4.3). Each color
differs clearly from the next one.
"""


class Rect(NamedTuple):
    """A rectangle in pixels of the screenshot."""

    left: int
    top: int
    right: int
    bottom: int

    def overlap(self, other: "Rect") -> int:
        """Return the number of pixels that both rectangles cover."""
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across * down if across > 0 and down > 0 else 0


class Mark(NamedTuple):
    """An element to be marked, and its position."""

    bid: str
    box: Rect
    color: str


class _RectIndex:
    """An index of rectangles by their positions. A search visits only rectangles that are near."""

    CELL_SIZE = 64

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], list[Rect]] = {}

    def add(self, rect: Rect) -> None:
        for cell in self._cells_of(rect):
            self._cells.setdefault(cell, []).append(rect)

    def covered_area(self, rect: Rect) -> int:
        near = {other for cell in self._cells_of(rect) for other in self._cells.get(cell, ())}
        return sum(rect.overlap(other) for other in near)

    def _cells_of(self, rect: Rect) -> Iterable[tuple[int, int]]:
        for column in range(rect.left // self.CELL_SIZE, rect.right // self.CELL_SIZE + 1):
            for row in range(rect.top // self.CELL_SIZE, rect.bottom // self.CELL_SIZE + 1):
                yield column, row


def preload() -> None:
    """Load the image library in advance, so that the first snapshot need not wait."""
    from PIL import Image

    Image.preinit()
    _load_font(LABEL_PIXELS)


class Screenshot:
    """A decoded screenshot of a page. Raises ValueError if the bytes are not an image."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._image = _decode_png(data)

    def to_picture(self) -> ImageData:
        """Return the image without marks, small enough for a prompt."""
        if len(self._data) <= MAX_BYTES:
            return ImageData(media_type="image/png", data=self._data)
        return _encode(self._image)

    def draw_marks(
        self,
        boxes: Mapping[str, tuple[float, float, float, float]],
        width: float,
        text_boxes: Iterable[tuple[float, float, float, float]] = (),
    ) -> tuple[ImageData, dict[str, Rect]]:
        """Return the image with a box and a label for each bid. Also return the positions of the boxes.

        `boxes` are the boxes of the elements. `text_boxes` are boxes that labels should avoid. Both are in
        CSS pixels of a viewport that is `width` pixels wide.
        """
        from PIL import ImageDraw

        image = self._image.copy()
        scale = device_pixel_ratio(image.width, width)
        marks = [
            Mark(bid, rect, COLORS[place % len(COLORS)])
            for place, (bid, box) in enumerate(boxes.items())
            if (rect := _to_pixels(box, scale, image.width, image.height)) is not None
        ][:MAX_MARKS]
        pen = ImageDraw.Draw(image)
        line = max(1, round(scale))
        for mark in marks:
            _draw_box(pen, mark, line)
        size = round((LABEL_PIXELS if len(marks) < SMALL_LABEL_MARKS else SMALL_LABEL_PIXELS) * scale)
        labels = [draw_label(mark.bid, mark.color, size) for mark in marks]
        words = [
            rect
            for box in text_boxes
            if (rect := _to_pixels(box, scale, image.width, image.height)) is not None
        ]
        places = place_labels(
            [mark.box for mark in marks], [drawn.size for drawn in labels], image.size, words[:MAX_TEXT_BOXES]
        )
        for drawn, place in zip(labels, places, strict=True):
            image.paste(drawn, place[:2])
        return _encode(image), {mark.bid: mark.box for mark in marks}


def device_pixel_ratio(pixels: int, width: float) -> float:
    """Return how many device pixels a CSS pixel has. Ignores a scroll bar beside the viewport."""
    return max(1, round(8 * pixels / width)) / 8 if width > 0 else 1.0


def draw_label(bid: str, color: str, size: int) -> "Image.Image":
    """Draw the label of a mark. The font is `size` pixels high."""
    from PIL import Image, ImageDraw

    font = _load_font(size)
    left, top, right, bottom = font.getbbox(bid)
    pad = max(1, size // 6)
    image = Image.new("RGB", (round(right - left) + 2 * pad, round(bottom - top) + 2 * pad), color)
    ImageDraw.Draw(image).text((pad - left, pad - top), bid, fill="white", font=font)
    return image


def place_labels(
    boxes: Sequence[Rect],
    sizes: Sequence[tuple[int, int]],
    image_size: tuple[int, int],
    text_boxes: Iterable[Rect] = (),
) -> list[Rect]:
    """Return a position for each label. A label is placed beside its box if it covers nothing there. Otherwise,
    it is placed where it covers the least.
    """
    marked, placed, worded = _RectIndex(), _RectIndex(), _RectIndex()
    for box in boxes:
        marked.add(box)
    for text in text_boxes:
        worded.add(text)
    places: list[Rect] = []
    for own, (wide, high) in zip(boxes, sizes, strict=True):
        best, least = Rect(0, 0, wide, high), math.inf  # needed if a label is larger than the image
        for rank, (left, top) in enumerate(_label_positions(own, wide, high)):
            candidate = Rect(left, top, left + wide, top + high)
            if left < 0 or top < 0 or candidate.right > image_size[0] or candidate.bottom > image_size[1]:
                continue
            # A label that another label covers is lost. A label on another element misleads the model. A
            # label on its own element hides a part of it.
            on_own = candidate.overlap(own)
            others = marked.covered_area(candidate) - on_own
            words = max(0, worded.covered_area(candidate) - on_own)
            cost = 100 * placed.covered_area(candidate) + 12 * others + 4 * words + 3 * on_own + rank
            if cost < least:
                best, least = candidate, cost
            if cost == rank:
                break  # this position hides nothing
        placed.add(best)
        places.append(best)
    return places


def _label_positions(box: Rect, width: int, height: int) -> Iterable[tuple[int, int]]:
    yield box.left - width, box.top  # left of the box
    yield box.left, box.top - height  # above
    yield box.right, box.top  # right
    yield box.right - width, box.top - height
    yield box.left, box.bottom  # below
    yield box.right - width, box.bottom
    yield box.left - width, box.bottom - height
    yield box.right, box.bottom - height
    yield box.right - width, box.top  # on the box
    yield box.left, box.top
    yield box.right - width, box.bottom - height
    yield box.left, box.bottom - height


def _draw_box(draw: "ImageDraw.ImageDraw", mark: Mark, line_width: int) -> None:
    left, top, right, bottom = mark.box
    # A white line around the colored one makes the box visible on any background.
    draw.rectangle(
        (left - line_width, top - line_width, right - 1 + line_width, bottom - 1 + line_width),
        outline="white",
        width=line_width,
    )
    draw.rectangle((left, top, right - 1, bottom - 1), outline=mark.color, width=line_width)


@functools.cache
def _load_font(size: int) -> "Font":
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _to_pixels(box: Sequence[float], scale: float, width: int, height: int) -> Rect | None:
    left, top, right, bottom = (round(edge * scale) for edge in box)
    rect = Rect(max(0, left), max(0, top), min(width, right), min(height, bottom))
    return rect if rect.right - rect.left >= 2 and rect.bottom - rect.top >= 2 else None


def _decode_png(screenshot: bytes) -> "Image.Image":
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(screenshot), formats=("PNG",))
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"a screenshot of {image.width} x {image.height} pixels is too large")
        return image.convert("RGB")
    except OSError as exc:  # includes UnidentifiedImageError
        raise ValueError(f"the screenshot is not a PNG: {exc}") from exc


def _encode(image: "Image.Image") -> ImageData:
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    if out.tell() <= MAX_BYTES:
        return ImageData(media_type="image/png", data=out.getvalue())
    while True:
        for quality in (80, 60, 40):
            out = io.BytesIO()
            image.save(out, "JPEG", quality=quality)
            if out.tell() <= MAX_BYTES:
                return ImageData(media_type="image/jpeg", data=out.getvalue())
        image = image.reduce(2)  # the image is still too large, because it has noise or very many pixels
