"""Set of marks: boxes and bids of elements drawn on a screenshot, never into the page."""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from runtime.observations import Picture

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

MOST_MARKS = 150  # more cover the page and each other
MOST_BYTES = 300_000  # of a picture that is worth its place in a prompt
MOST_PIXELS = 40_000_000  # of a screenshot; a real viewport has 1 to 8 million
LABEL_PIXELS = 13  # height of a label's digits at a device pixel ratio of 1

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


def draw_marks(
    screenshot: bytes, boxes: Mapping[str, tuple[float, float, float, float]], width: float
) -> tuple[Picture, dict[str, Rect]]:
    """The screenshot with a box and a label for each bid, and where the boxes are on it.

    `boxes` are in CSS pixels of a viewport that is `width` wide. Raises ValueError for bytes that are no picture.
    """
    from PIL import ImageDraw

    image = _opened(screenshot)
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
    for mark, place in zip(marks, place_labels(marks, scale, image.size), strict=True):
        image.paste(label(mark.bid, mark.colour, scale), place[:2])
    return _saved(image), {mark.bid: mark.box for mark in marks}


def plain(screenshot: bytes) -> Picture:
    """The screenshot without marks, small enough for a prompt. Raises ValueError for bytes that are no picture."""
    if len(screenshot) <= MOST_BYTES:
        return Picture(media="image/png", data=screenshot)
    return _saved(_opened(screenshot))


def ratio(pixels: int, width: float) -> float:
    """Device pixels of one CSS pixel; a scroll bar beside the viewport does not count."""
    return max(1, round(8 * pixels / width)) / 8 if width > 0 else 1.0


def label(bid: str, colour: str, scale: float) -> "Image.Image":
    """The label of a mark, as it is pasted on the screenshot."""
    from PIL import Image, ImageDraw

    font = _font(scale)
    left, top, right, bottom = font.getbbox(bid)
    pad = max(2, round(2 * scale))
    size = (round(right - left) + 2 * pad, round(bottom - top) + 2 * pad)
    image = Image.new("RGB", size, colour)
    ImageDraw.Draw(image).text((pad - left, pad - top), bid, fill="white", font=font)
    return image


def place_labels(marks: Sequence[Mark], scale: float, size: tuple[int, int]) -> list[Rect]:
    """A place for each label: beside its box where that hides nothing, else where it hides least."""
    labels, boxes = _Plan(), _Plan()
    for mark in marks:
        boxes.add(mark.box)
    places: list[Rect] = []
    for mark in marks:
        wide, high = label(mark.bid, mark.colour, scale).size
        own = mark.box

        def cost(at: tuple[int, Rect], own: Rect = own) -> int:
            rank, place = at
            # A label under a label is lost; one on another element misleads; one on its own only hides some of it.
            others = boxes.covered(place) - place.overlap(own)
            return 100 * labels.covered(place) + 6 * others + 2 * place.overlap(own) + rank

        options = [
            Rect(left, top, left + wide, top + high)
            for left, top in _around(own, wide, high)
            if left >= 0 and top >= 0 and left + wide <= size[0] and top + high <= size[1]
        ] or [Rect(0, 0, wide, high)]  # a label larger than the picture
        _, best = min(enumerate(options), key=cost)
        labels.add(best)
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


def _font(scale: float) -> "Font":
    from PIL import ImageFont

    return ImageFont.load_default(max(LABEL_PIXELS, round(LABEL_PIXELS * scale)))


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
    image.save(out, "PNG", compress_level=4)
    if out.tell() <= MOST_BYTES:
        return Picture(media="image/png", data=out.getvalue())
    for quality in (80, 60, 40):
        out = io.BytesIO()
        image.save(out, "JPEG", quality=quality)
        if out.tell() <= MOST_BYTES:
            break
    return Picture(media="image/jpeg", data=out.getvalue())
