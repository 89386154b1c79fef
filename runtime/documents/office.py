"""Word and PowerPoint files as Markdown: both are XML in a zip archive.

Source: ECMA-376, Office Open XML, part 1 (WordprocessingML, PresentationML, DrawingML).
"""

import posixpath
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from defusedxml import ElementTree

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

LARGEST_PART = 64 << 20  # bytes of one file in the archive, unpacked

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_RELATIONSHIP = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_DESCRIBED = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr"


class Unreadable(Exception):
    """The file is not what its name says."""


@dataclass(frozen=True, slots=True)
class Package:
    """An open archive of parts that refer to each other."""

    archive: zipfile.ZipFile

    def part(self, name: str) -> "Element":
        """The XML of a part. Raises Unreadable where there is none or it is too large."""
        try:
            with self.archive.open(name) as packed:
                data = packed.read(LARGEST_PART + 1)
        except KeyError:
            raise Unreadable(f"it has no part {name}") from None
        if len(data) > LARGEST_PART:
            raise Unreadable(f"its part {name} has more than {LARGEST_PART:,} bytes")
        root: Element = ElementTree.fromstring(data)
        return root

    def has(self, name: str) -> bool:
        return name in self.archive.NameToInfo

    def relations(self, name: str) -> dict[str, tuple[str, str]]:
        """What a part refers to: id -> (kind, name of the part or address)."""
        directory, _, file = name.rpartition("/")
        rels = f"{directory}/_rels/{file}.rels"
        if not self.has(rels):
            return {}
        found = {}
        for each in self.part(rels).iter(_RELATIONSHIP):
            target, kind = each.get("Target", ""), each.get("Type", "").rpartition("/")[2]
            if each.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", directory, unquote(target))).lstrip("/")
            found[each.get("Id", "")] = (kind, target)
        return found


@contextmanager
def package(path: Path) -> Iterator[Package]:
    """Raises Unreadable for what is no such archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield Package(archive)
    except zipfile.BadZipFile as error:
        raise Unreadable(str(error)) from error
    except ElementTree.ParseError as error:
        raise Unreadable(f"its XML is broken: {error}") from error


def table(rows: list[list[str]]) -> str:
    """Rows of cells as a Markdown table, the first as its head."""
    width = max(map(len, rows), default=0)
    if not width:
        return ""
    lines = ["| " + " | ".join([*map(_cell, row), *[""] * (width - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- Word ---------------------------------------------------------------------------------------------------


def docx(path: Path) -> Iterator[str]:
    """The blocks of a Word document."""
    with package(path) as parts:
        name = next(
            (target for kind, target in parts.relations("").values() if kind == "officeDocument"), None
        ) or ("word/document.xml")
        document = parts.part(name)
        word = _Word(parts.relations(name), _levels(parts, name))
        body = document.find(f"{_W}body")
        if body is not None:
            yield from word.blocks(body)
        for note in ("footnotes", "endnotes"):
            target = next((target for kind, target in word.relations.values() if kind == note), "")
            if word.notes and parts.has(target):
                yield from word.told_notes(parts.part(target))


def _levels(parts: Package, document: str) -> dict[str, int]:
    """Style -> level of heading, in whatever language the styles are named."""
    target = next(
        (target for kind, target in parts.relations(document).values() if kind == "styles"), "word/styles.xml"
    )
    if not parts.has(target):
        return {f"Heading{level}": level for level in range(1, 7)} | {"Title": 1}
    levels = {}
    for style in parts.part(target).iter(f"{_W}style"):
        named = style.find(f"{_W}name")
        name = "" if named is None else named.get(f"{_W}val", "").lower()
        if name == "title":
            levels[style.get(f"{_W}styleId", "")] = 1
        elif name.startswith("heading ") and name[8:].isdecimal():
            levels[style.get(f"{_W}styleId", "")] = min(int(name[8:9]), 6)
    return levels


@dataclass
class _Word:
    relations: dict[str, tuple[str, str]]
    levels: dict[str, int]
    notes: list[str] = field(default_factory=list)
    """Ids of the notes that were referred to."""

    def blocks(self, parent: "Element") -> Iterator[str]:
        for child in parent:
            if child.tag == f"{_W}p":
                if block := self._paragraph(child):
                    yield block
            elif child.tag == f"{_W}tbl":
                rows = [
                    ["\n".join(self.blocks(cell)) for cell in row.iter(f"{_W}tc")]
                    for row in child.iter(f"{_W}tr")
                ]
                yield table(rows)
            elif child.tag != _FALLBACK:
                yield from self.blocks(child)  # content controls and the like

    def told_notes(self, notes: "Element") -> Iterator[str]:
        for note in notes:
            if (id := note.get(f"{_W}id", "")) in self.notes:
                yield f"[^{id}]: {' '.join(self.blocks(note)).strip()}"

    def _paragraph(self, paragraph: "Element") -> str:
        text = "".join(self._runs(paragraph)).strip()
        if not text:
            return ""
        style = paragraph.find(f"{_W}pPr/{_W}pStyle")
        if style is not None and (level := self.levels.get(style.get(f"{_W}val", ""))):
            return f"{'#' * level} {text}"
        if paragraph.find(f"{_W}pPr/{_W}numPr") is not None:
            depth = paragraph.find(f"{_W}pPr/{_W}numPr/{_W}ilvl")
            deep = "0" if depth is None else depth.get(f"{_W}val", "0")
            return f"{'  ' * min(int(deep) if deep.isdecimal() else 0, 9)}- {text}"
        return text

    def _runs(self, parent: "Element") -> Iterator[str]:
        for child in parent:
            match child.tag:
                case tag if tag in (f"{_W}t", f"{_M}t"):
                    yield child.text or ""
                case tag if tag == f"{_W}tab":
                    yield "\t"
                case tag if tag in (f"{_W}br", f"{_W}cr"):
                    yield "\n"
                case tag if tag in (f"{_W}pPr", f"{_W}rPr", f"{_W}del", _FALLBACK):
                    continue
                case tag if tag in (f"{_W}footnoteReference", f"{_W}endnoteReference"):
                    self.notes.append(child.get(f"{_W}id", ""))
                    yield f"[^{self.notes[-1]}]"
                case tag if tag == f"{_W}hyperlink":
                    text = "".join(self._runs(child))
                    _, target = self.relations.get(child.get(f"{_R}id", ""), ("", ""))
                    yield f"[{text}]({target})" if target else text
                case tag if tag == _DESCRIBED:
                    if described := child.get("descr"):
                        yield f"[picture: {described}]"
                case _:
                    yield from self._runs(child)


# --- PowerPoint ---------------------------------------------------------------------------------------------


def pptx(path: Path) -> Iterator[str]:
    """The slides of a presentation in their order, each with its notes."""
    with package(path) as parts:
        name = "ppt/presentation.xml"
        relations = parts.relations(name)
        for number, slide in enumerate(parts.part(name).iter(f"{_P}sldId"), 1):
            _, target = relations.get(slide.get(f"{_R}id", ""), ("", ""))
            yield f"## Slide {number}"
            yield from _shapes(parts.part(target))
            for kind, notes in parts.relations(target).values():
                if kind == "notesSlide":
                    said = "\n\n".join(_shapes(parts.part(notes), only="body"))
                    if said:
                        yield f"Notes: {said}"


def _shapes(slide: "Element", only: str | None = None) -> Iterator[str]:
    """Texts, tables and pictures in the order in which they stand. `only`: of placeholders of this kind."""
    for shape in slide.iter():
        if shape.tag == f"{_P}sp":
            holder = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
            kind = None if holder is None else holder.get("type", "body")
            if (only and kind != only) or kind in ("sldNum", "dt", "ftr"):
                continue
            text = "\n".join(filter(None, map(_text, shape.iter(f"{_A}p"))))
            if text:
                yield f"### {' '.join(text.split())}" if kind in ("title", "ctrTitle") else text
        elif shape.tag == f"{_A}tbl":
            rows = [
                ["\n".join(map(_text, cell.iter(f"{_A}p"))) for cell in row.iter(f"{_A}tc")]
                for row in shape.iter(f"{_A}tr")
            ]
            yield table(rows)
        elif shape.tag == f"{_P}pic" and not only:
            named = shape.find(f"{_P}nvPicPr/{_P}cNvPr")
            if named is not None and (described := named.get("descr")):
                yield f"[picture: {described}]"


def _text(paragraph: "Element") -> str:
    """One paragraph, indented by its level."""
    said = "".join(
        (node.text or "") if node.tag == f"{_A}t" else "\n"
        for node in paragraph.iter()
        if node.tag in (f"{_A}t", f"{_A}br")
    )
    properties = paragraph.find(f"{_A}pPr")
    level = "0" if properties is None else properties.get("lvl", "0")
    return "  " * (int(level) if level.isdecimal() and len(level) == 1 else 0) + said if said else ""
