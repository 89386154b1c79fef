"""Converts Word and PowerPoint files to Markdown. These files consist of XML in a zip archive.

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

MAX_PART_BYTES = 64 << 20  # maximum bytes of one file in the archive after decompression

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_RELATIONSHIP = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_DRAWING_PROPERTIES = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr"


class UnreadableDocument(Exception):
    """The file does not have the format that its suffix indicates."""


@dataclass(frozen=True, slots=True)
class OfficePackage:
    """An open Office file. It is a zip archive of parts, which refer to each other."""

    archive: zipfile.ZipFile

    def read_part(self, name: str) -> "Element":
        """Return the XML of a part. Raises UnreadableDocument if the part is missing or too large."""
        try:
            with self.archive.open(name) as packed:
                data = packed.read(MAX_PART_BYTES + 1)
        except KeyError:
            raise UnreadableDocument(f"the part {name} is missing") from None
        if len(data) > MAX_PART_BYTES:
            raise UnreadableDocument(f"the part {name} has more than {MAX_PART_BYTES:,} bytes")
        root: Element = ElementTree.fromstring(data)
        return root

    def has_part(self, name: str) -> bool:
        return name in self.archive.NameToInfo

    def relationships(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the relationships of a part by their ids. Each is a pair: the kind of the relationship, and
        its target. The target is the name of a part or a URL.
        """
        directory, _, file = name.rpartition("/")
        rels = f"{directory}/_rels/{file}.rels"
        if not self.has_part(rels):
            return {}
        relationships = {}
        for element in self.read_part(rels).iter(_RELATIONSHIP):
            target, kind = element.get("Target", ""), element.get("Type", "").rpartition("/")[2]
            if element.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", directory, unquote(target))).lstrip("/")
            relationships[element.get("Id", "")] = (kind, target)
        return relationships


@contextmanager
def open_package(path: Path) -> Iterator[OfficePackage]:
    """Open an Office file. Raises UnreadableDocument if the file is not a valid archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield OfficePackage(archive)
    except zipfile.BadZipFile as error:
        raise UnreadableDocument(str(error)) from error
    except ElementTree.ParseError as error:
        raise UnreadableDocument(f"its XML is broken: {error}") from error


def markdown_table(rows: list[list[str]]) -> str:
    """Return rows of cells as a Markdown table. The first row becomes the header."""
    width = max(map(len, rows), default=0)
    if not width:
        return ""
    lines = ["| " + " | ".join([*map(_cell, row), *[""] * (width - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- Word ---------------------------------------------------------------------------------------------------


def convert_docx(path: Path) -> Iterator[str]:
    """Yield the blocks of a Word document."""
    with open_package(path) as parts:
        name = next(
            (target for kind, target in parts.relationships("").values() if kind == "officeDocument"), None
        ) or ("word/document.xml")
        document = parts.read_part(name)
        word = _WordConverter(parts.relationships(name), _heading_levels(parts, name))
        body = document.find(f"{_W}body")
        if body is not None:
            yield from word.blocks(body)
        for note in ("footnotes", "endnotes"):
            target = next((target for kind, target in word.relationships.values() if kind == note), "")
            if word.notes and parts.has_part(target):
                yield from word.note_blocks(parts.read_part(target))


def _heading_levels(parts: OfficePackage, document: str) -> dict[str, int]:
    """Return the heading level of each style. Uses the style's internal name, which is the same in every
    language.
    """
    target = next(
        (target for kind, target in parts.relationships(document).values() if kind == "styles"),
        "word/styles.xml",
    )
    if not parts.has_part(target):
        return {f"Heading{level}": level for level in range(1, 7)} | {"Title": 1}
    levels = {}
    for style in parts.read_part(target).iter(f"{_W}style"):
        named = style.find(f"{_W}name")
        name = "" if named is None else named.get(f"{_W}val", "").lower()
        if name == "title":
            levels[style.get(f"{_W}styleId", "")] = 1
        elif name.startswith("heading ") and name[8:].isdecimal():
            levels[style.get(f"{_W}styleId", "")] = min(int(name[8:9]), 6)
    return levels


@dataclass
class _WordConverter:
    relationships: dict[str, tuple[str, str]]
    levels: dict[str, int]
    notes: list[str] = field(default_factory=list)
    """Ids of the footnotes and endnotes that the text refers to."""

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
                yield markdown_table(rows)
            elif child.tag != _FALLBACK:
                yield from self.blocks(child)  # These are, for example, content controls.

    def note_blocks(self, notes: "Element") -> Iterator[str]:
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
                    _, target = self.relationships.get(child.get(f"{_R}id", ""), ("", ""))
                    yield f"[{text}]({target})" if target else text
                case tag if tag == _DRAWING_PROPERTIES:
                    if described := child.get("descr"):
                        yield f"[picture: {described}]"
                case _:
                    yield from self._runs(child)


# --- PowerPoint ---------------------------------------------------------------------------------------------


def convert_pptx(path: Path) -> Iterator[str]:
    """Yield the slides of a presentation in order. Each is followed by its notes."""
    with open_package(path) as parts:
        name = "ppt/presentation.xml"
        relations = parts.relationships(name)
        for number, slide in enumerate(parts.read_part(name).iter(f"{_P}sldId"), 1):
            _, target = relations.get(slide.get(f"{_R}id", ""), ("", ""))
            yield f"## Slide {number}"
            yield from _slide_blocks(parts.read_part(target))
            for kind, notes in parts.relationships(target).values():
                if kind == "notesSlide":
                    said = "\n\n".join(_slide_blocks(parts.read_part(notes), placeholder="body"))
                    if said:
                        yield f"Notes: {said}"


def _slide_blocks(slide: "Element", placeholder: str | None = None) -> Iterator[str]:
    """Yield the texts, tables and images of a slide in their order.

    If `placeholder` is given, yields only the texts of placeholders of this kind.
    """
    for shape in slide.iter():
        if shape.tag == f"{_P}sp":
            holder = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
            kind = None if holder is None else holder.get("type", "body")
            if (placeholder and kind != placeholder) or kind in ("sldNum", "dt", "ftr"):
                continue
            text = "\n".join(filter(None, map(_paragraph_text, shape.iter(f"{_A}p"))))
            if text:
                yield f"### {' '.join(text.split())}" if kind in ("title", "ctrTitle") else text
        elif shape.tag == f"{_A}tbl":
            rows = [
                ["\n".join(map(_paragraph_text, cell.iter(f"{_A}p"))) for cell in row.iter(f"{_A}tc")]
                for row in shape.iter(f"{_A}tr")
            ]
            yield markdown_table(rows)
        elif shape.tag == f"{_P}pic" and not placeholder:
            named = shape.find(f"{_P}nvPicPr/{_P}cNvPr")
            if named is not None and (described := named.get("descr")):
                yield f"[picture: {described}]"


def _paragraph_text(paragraph: "Element") -> str:
    """Return the text of one paragraph, indented by the paragraph's level."""
    said = "".join(
        (node.text or "") if node.tag == f"{_A}t" else "\n"
        for node in paragraph.iter()
        if node.tag in (f"{_A}t", f"{_A}br")
    )
    properties = paragraph.find(f"{_A}pPr")
    level = "0" if properties is None else properties.get("lvl", "0")
    return "  " * (int(level) if level.isdecimal() and len(level) == 1 else 0) + said if said else ""
