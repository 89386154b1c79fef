"""Set of marks: boxes and bids of elements drawn on a screenshot, never into the page."""

import functools
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from runtime.observations import Picture

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

MOST_MARKS = 200  # more cover the page and each other
MOST_TEXTS = 2_000  # that labels keep clear of
MOST_BYTES = 300_000  # of a picture that is worth its place in a prompt
MOST_PIXELS = 40_000_000  # of a screenshot; a real viewport has 1 to 8 million
LABEL_PIXELS, SMALL_LABEL_PIXELS = 13, 11  # font sizes at a device pixel ratio of 1
CROWD = 80  # marks, from which labels are small: large ones would hide each other

COLOURS = ("#c00000", "#0050c8", "#007030", "#8000a0", "#a04000", "#006878", "#b00070", "#404040")
"""Each at least 5:1 against the white digits on it (WCAG 2.2, 1.4.3); neighbours in number differ."""


class Rect(NamedTuple):
    """A rectangle in pixels of the screenshot."""

    left: int
    top: int
    right: int
    bottom: int

    def overlap(self, other: "Rect") -> int:
        """Pixels that both cover."""
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across * down if across > 0 and down > 0 else 0


class Mark(NamedTuple):
    """An element to be marked, and where it is."""

    bid: str
    box: Rect
    colour: str


class _Plan:
    """What is where already, in buckets: a look at the neighbours instead of at every mark."""

    SIDE = 64

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], list[Rect]] = {}

    def add(self, rect: Rect) -> None:
        for cell in self._of(rect):
            self._cells.setdefault(cell, []).append(rect)

    def covered(self, rect: Rect) -> int:
        near = {other for cell in self._of(rect) for other in self._cells.get(cell, ())}
        return sum(rect.overlap(other) for other in near)

    def _of(self, rect: Rect) -> Iterable[tuple[int, int]]:
        for column in range(rect.left // self.SIDE, rect.right // self.SIDE + 1):
            for row in range(rect.top // self.SIDE, rect.bottom // self.SIDE + 1):
                yield column, row


def load() -> None:
    """Load what reads and marks screenshots, which else the first look waits for."""
    from PIL import Image

    Image.preinit()
    _font(LABEL_PIXELS)


class Screenshot:
    """A screenshot as Chromium took it. Raises ValueError for bytes that are no picture."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._image = _opened(data)

    def plain(self) -> Picture:
        """Without marks, small enough for a prompt."""
        if len(self._data) <= MOST_BYTES:
            return Picture(media="image/png", data=self._data)
        return _saved(self._image)

    def marked(
        self,
        boxes: Mapping[str, tuple[float, float, float, float]],
        width: float,
        texts: Iterable[tuple[float, float, float, float]] = (),
    ) -> tuple[Picture, dict[str, Rect]]:
        """With a box and a label for each bid, and where the boxes are on it.

        `boxes`, and the `texts` that labels had better not hide, are in CSS pixels of a viewport `width` wide.
        """
        from PIL import ImageDraw

        image = self._image.copy()
        scale = ratio(image.width, width)
        marks = [
            Mark(bid, rect, COLOURS[place % len(COLOURS)])
            for place, (bid, box) in enumerate(boxes.items())
            if (rect := _on_picture(box, scale, image.width, image.height)) is not None
        ][:MOST_MARKS]
        pen = ImageDraw.Draw(image)
        line = max(1, round(scale))
        for mark in marks:
            _frame(pen, mark, line)
        size = round((LABEL_PIXELS if len(marks) < CROWD else SMALL_LABEL_PIXELS) * scale)
        labels = [label(mark.bid, mark.colour, size) for mark in marks]
        words = [
            rect for box in texts if (rect := _on_picture(box, scale, image.width, image.height)) is not None
        ]
        places = place_labels(
            [mark.box for mark in marks], [drawn.size for drawn in labels], image.size, words[:MOST_TEXTS]
        )
        for drawn, place in zip(labels, places, strict=True):
            image.paste(drawn, place[:2])
        return _saved(image), {mark.bid: mark.box for mark in marks}


def ratio(pixels: int, width: float) -> float:
    """Device pixels of one CSS pixel; a scroll bar beside the viewport does not count."""
    return max(1, round(8 * pixels / width)) / 8 if width > 0 else 1.0


def label(bid: str, colour: str, size: int) -> "Image.Image":
    """The label of a mark, as it is pasted on the screenshot, in a font of `size` pixels."""
    from PIL import Image, ImageDraw

    font = _font(size)
    left, top, right, bottom = font.getbbox(bid)
    pad = max(1, size // 6)
    image = Image.new("RGB", (round(right - left) + 2 * pad, round(bottom - top) + 2 * pad), colour)
    ImageDraw.Draw(image).text((pad - left, pad - top), bid, fill="white", font=font)
    return image


def place_labels(
    boxes: Sequence[Rect],
    sizes: Sequence[tuple[int, int]],
    picture: tuple[int, int],
    texts: Iterable[Rect] = (),
) -> list[Rect]:
    """A place for each label: beside its box where that hides nothing, else where it hides least."""
    marked, placed, worded = _Plan(), _Plan(), _Plan()
    for box in boxes:
        marked.add(box)
    for text in texts:
        worded.add(text)
    places: list[Rect] = []
    for own, (wide, high) in zip(boxes, sizes, strict=True):
        best, least = Rect(0, 0, wide, high), math.inf  # for a label that is larger than the picture
        for rank, (left, top) in enumerate(_around(own, wide, high)):
            place = Rect(left, top, left + wide, top + high)
            if left < 0 or top < 0 or place.right > picture[0] or place.bottom > picture[1]:
                continue
            # A label under a label is lost; one on another element misleads; one on its own hides some of it.
            on_own = place.overlap(own)
            others = marked.covered(place) - on_own
            words = max(0, worded.covered(place) - on_own)
            cost = 100 * placed.covered(place) + 12 * others + 4 * words + 3 * on_own + rank
            if cost < least:
                best, least = place, cost
            if cost == rank:
                break  # it hides nothing
        placed.add(best)
        places.append(best)
    return places


def _around(box: Rect, wide: int, high: int) -> Iterable[tuple[int, int]]:
    yield box.left - wide, box.top  # left of it
    yield box.left, box.top - high  # above
    yield box.right, box.top  # right
    yield box.right - wide, box.top - high
    yield box.left, box.bottom  # below
    yield box.right - wide, box.bottom
    yield box.left - wide, box.bottom - high
    yield box.right, box.bottom - high
    yield box.right - wide, box.top  # on it
    yield box.left, box.top
    yield box.right - wide, box.bottom - high
    yield box.left, box.bottom - high


def _frame(pen: "ImageDraw.ImageDraw", mark: Mark, line: int) -> None:
    left, top, right, bottom = mark.box
    # A white line around the coloured one: the box shows on any ground.
    pen.rectangle((left - line, top - line, right - 1 + line, bottom - 1 + line), outline="white", width=line)
    pen.rectangle((left, top, right - 1, bottom - 1), outline=mark.colour, width=line)


@functools.cache
def _font(size: int) -> "Font":
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _on_picture(box: Sequence[float], scale: float, width: int, height: int) -> Rect | None:
    left, top, right, bottom = (round(edge * scale) for edge in box)
    rect = Rect(max(0, left), max(0, top), min(width, right), min(height, bottom))
    return rect if rect.right - rect.left >= 2 and rect.bottom - rect.top >= 2 else None


def _opened(screenshot: bytes) -> "Image.Image":
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(screenshot), formats=("PNG",))
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"a screenshot of {image.width} x {image.height} pixels is too large")
        return image.convert("RGB")
    except OSError as exc:  # UnidentifiedImageError is one
        raise ValueError(f"the screenshot is no PNG: {exc}") from exc


def _saved(image: "Image.Image") -> Picture:
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    if out.tell() <= MOST_BYTES:
        return Picture(media="image/png", data=out.getvalue())
    while True:
        for quality in (80, 60, 40):
            out = io.BytesIO()
            image.save(out, "JPEG", quality=quality)
            if out.tell() <= MOST_BYTES:
                return Picture(media="image/jpeg", data=out.getvalue())
        image = image.reduce(2)  # noise, or a wall of pixels
