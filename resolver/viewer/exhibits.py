"""What a step of the viewer shows: texts, diffs, lists and pictures, bounded."""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Literal

from resolver.actions import PlanItem
from resolver.summary import clip as one_line
from runtime.observations import Picture
from runtime.text import clip

PICTURES = 9_500_000
"""Characters of base64 that a file's pictures may have together."""
PIXELS = (
    40_000_000  # of a picture; a few kilobytes can say that they are far more, and stop the reader's browser
)
SHORT = 14
"""Lines that are shown without being asked for."""
SHORT_DIFF = 80


@dataclass(frozen=True, slots=True)
class Text:
    """A text with its line ends."""

    shape: ClassVar = "text"
    label: str
    text: str
    open: bool
    code: bool = True
    """False: somebody's words, in lines of any length."""

    @property
    def lines(self) -> int:
        return self.text.count("\n") + (not self.text.endswith("\n"))


Change = Literal["ins", "del", "hunk", "file", "same"]


@dataclass(frozen=True, slots=True)
class Diff:
    """A unified diff as runs of lines of one kind."""

    shape: ClassVar = "diff"
    label: str
    runs: tuple[tuple[Change, str], ...]
    added: int
    removed: int
    open: bool


@dataclass(frozen=True, slots=True)
class Checks:
    """A plan."""

    shape: ClassVar = "checks"
    items: tuple[PlanItem, ...]


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture of the album."""

    shape: ClassVar = "shot"
    key: str
    caption: str
    first: str
    """Id of the item that shows it; another one refers to that."""


Exhibit = Text | Diff | Checks | Shot


def words(label: str, text: str, limit: int, *, fold: bool = False) -> Text:
    """Somebody's words, clipped to about `limit` characters."""
    return Text(label, clip(text.strip("\n"), limit), open=not fold, code=False)


def printed(label: str, text: str, limit: int, *, fold: bool | None = None) -> Text:
    """Code or output, clipped to about `limit` characters. `fold` None: when it is long."""
    shown = clip(text.rstrip("\n"), limit)
    long = shown.count("\n") >= SHORT or len(shown) > SHORT * 160
    return Text(label, shown, open=not (long if fold is None else fold))


def diff(label: str, text: str, limit: int) -> Diff:
    """A unified diff, clipped to about `limit` characters; what it counts is all of it."""
    kinds = list(_kinds(clip(text.rstrip("\n"), limit).split("\n")))
    runs = tuple(
        (kind, "\n".join(line for _, line in lines)) for kind, lines in groupby(kinds, lambda pair: pair[0])
    )
    every = [kind for kind, _ in _kinds(text.split("\n"))]
    return Diff(
        one_line(label, 200), runs, every.count("ins"), every.count("del"), open=len(kinds) <= SHORT_DIFF
    )


def _kinds(lines: Iterable[str]) -> Iterator[tuple[Change, str]]:
    # By the hunks' own counts: a removed line `-- x` looks like the header `--- x`.
    old = new = 0
    counted = False
    for line in lines:
        if found := re.match(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@", line):
            old, new = (int(count) if count is not None else 1 for count in found.groups())
            counted = True
            yield "hunk", line
        elif counted and old <= 0 and new <= 0 and not line.startswith("\\"):
            yield "file", line
        elif line.startswith("+") and (counted or not line.startswith("+++ ")):
            new -= 1
            yield "ins", line
        elif line.startswith("-") and (counted or not line.startswith("--- ")):
            old -= 1
            yield "del", line
        elif counted and line.startswith(" "):
            old, new = old - 1, new - 1
            yield "same", line
        else:
            yield ("same" if line.startswith((" ", "\\")) else "file"), line


class Album:
    """The pictures of a file, each once; when they are too large together, the largest are left out."""

    def __init__(self, most: int = PICTURES) -> None:
        self._most = most
        self._pictures: dict[str, tuple[Picture, str]] = {}
        self._kept: frozenset[str] | None = None

    def add(self, picture: Picture, caption: str, item: str) -> Shot:
        """A picture that the item of this id shows."""
        key = hashlib.sha256(picture.data).hexdigest()
        _, first = self._pictures.setdefault(key, (picture, item))
        return Shot(key, caption, first)

    def source(self, shot: Shot) -> str | None:
        """The picture as a `data:` URL; None: it was left out. To be asked when all pictures are in."""
        if self._kept is None:
            self._kept = frozenset(self._smallest())
        if shot.key not in self._kept:
            return None
        picture = self._pictures[shot.key][0]
        return f"data:{picture.media};base64,{base64.b64encode(picture.data).decode()}"

    def size(self, shot: Shot) -> int:
        """Bytes of the picture."""
        return len(self._pictures[shot.key][0].data)

    def measure(self, shot: Shot) -> tuple[int, int] | None:
        """Width and height, so that the page keeps still when it comes; None where a glance does not tell."""
        data = self._pictures[shot.key][0].data
        if not data.startswith(b"\x89PNG\r\n\x1a\n") or len(data) < 24:
            return None
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")

    def _smallest(self) -> Iterator[str]:
        room = self._most
        for key, (picture, _) in sorted(self._pictures.items(), key=lambda pair: len(pair[1][0].data)):
            width, height = self.measure(Shot(key, "", "")) or (0, 0)
            if width * height > PIXELS:
                continue
            room -= len(picture.data) * 4 // 3 + 4
            if room < 0:
                return
            yield key


def inert(text: str) -> str:
    """The text with every character visible that would reorder, hide or steer what is around it."""
    return _UNUSUAL.sub(lambda found: found[0].translate(_SHOWN), text)


class _Shown(dict[int, int | str]):
    """What stands for each character, filled as they come."""

    def __missing__(self, code: int) -> int | str:
        kind = unicodedata.category(chr(code))
        shown = _name(code) if kind in ("Cc", "Cf", "Cs", "Zl", "Zp") else code
        return self.setdefault(code, shown)


def _name(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's pictures of control codes
    return "\u2421" if code == 0x7F else f"\u27e6U+{code:04X}\u27e7"


_UNUSUAL = re.compile(r"[^\t\n -~]+")
_SHOWN = _Shown()
