"""Small real documents, composed of their formats' parts."""

import struct
import zipfile
import zlib
from fractions import Fraction
from pathlib import Path

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELS = "http://schemas.openxmlformats.org/package/2006/relationships"


def pdf(path: Path, *pages: str) -> Path:
    """Write a PDF with one line of text per page."""
    count = len(pages)
    kids = " ".join(f"{3 + 2 * n} 0 R" for n in range(count))
    font = 3 + 2 * count
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {count} >>"]
    for n, text in enumerate(pages):
        stream = f"BT /F1 24 Tf 72 700 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {4 + 2 * n} 0 R "
            f"/Resources << /Font << /F1 {font} 0 R >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    data, at = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        at.append(len(data))
        data += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in at)
    end = (
        f"xref\n0 {len(at) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(at) + 1} /Root 1 0 R >>\n"
    )
    path.write_bytes(data + f"{end}startxref\n{len(data)}\n%%EOF\n".encode())
    return path


def archive(path: Path, parts: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in parts.items():
            made.writestr(name, text)
    return path


def relations(*each: tuple[str, str, str]) -> str:
    inner = "".join(
        f'<Relationship Id="{id}" Type="{R}/{kind}" Target="{target}"'
        + (' TargetMode="External"/>' if "://" in target else "/>")
        for id, kind, target in each
    )
    return f'<Relationships xmlns="{RELS}">{inner}</Relationships>'


def docx(path: Path, body: str) -> Path:
    """Write a Word document whose styles have German names, as a German Word writes them."""
    style = '<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>'
    note = '<w:footnote w:id="2"><w:p><w:r><w:t>See section 9.</w:t></w:r></w:p></w:footnote>'
    links = (
        ("r1", "styles", "styles.xml"),
        ("r2", "hyperlink", "https://example.org/x"),
        ("r3", "footnotes", "footnotes.xml"),
    )
    return archive(
        path,
        {
            "_rels/.rels": relations(("r1", "officeDocument", "word/document.xml")),
            "word/document.xml": f'<w:document xmlns:w="{W}" xmlns:r="{R}"><w:body>{body}</w:body></w:document>',
            "word/_rels/document.xml.rels": relations(*links),
            "word/styles.xml": f'<w:styles xmlns:w="{W}">{style}</w:styles>',
            "word/footnotes.xml": f'<w:footnotes xmlns:w="{W}">{note}</w:footnotes>',
        },
    )


def pptx(path: Path, *slides: str) -> Path:
    """Write a presentation whose slide files are not numbered in order; the first slide has notes."""
    count = len(slides)
    files = [f"slides/slide{count - n}.xml" for n in range(count)]
    ids = "".join(f'<p:sldId id="{256 + n}" r:id="r{n}"/>' for n in range(count))
    order = f"<p:sldIdLst>{ids}</p:sldIdLst>"
    parts = {
        "ppt/presentation.xml": f'<p:presentation xmlns:p="{P}" xmlns:r="{R}">{order}</p:presentation>',
        "ppt/_rels/presentation.xml.rels": relations(
            *((f"r{n}", "slide", file) for n, file in enumerate(files))
        ),
        f"ppt/slides/_rels/slide{count}.xml.rels": relations(
            ("n", "notesSlide", "../notesSlides/notes1.xml")
        ),
        "ppt/notesSlides/notes1.xml": _slide(_shape("Speak slowly.", "body") + _shape("7", "sldNum")),
    }
    for file, title in zip(files, slides, strict=True):
        parts[f"ppt/{file}"] = _slide(_shape(title, "title") + _shape(f"About {title}", None))
    return archive(path, parts)


def _slide(shapes: str) -> str:
    return f'<p:sld xmlns:p="{P}" xmlns:a="{A}"><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>'


def _shape(text: str, holder: str | None) -> str:
    kind = f'<p:ph type="{holder}"/>' if holder else ""
    return (
        f"<p:sp><p:nvSpPr><p:nvPr>{kind}</p:nvPr></p:nvSpPr>"
        f"<p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
    )


def png(path: Path, width: int = 3, height: int = 2) -> Path:
    """Write a gray image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + b"\x80" * width for _ in range(height)))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    return path


def video(path: Path, frames: int, size: tuple[int, int] = (64, 48)) -> Path:
    """Write a video that gets brighter with each frame."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for number in range(frames):
            frame = av.VideoFrame(*size, "yuv420p")
            for plane, value in zip(frame.planes, (number * 2 % 256, 128, 128), strict=True):
                plane.update(bytes([value]) * plane.buffer_size)
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def wav(path: Path) -> Path:
    """Write a tenth of a second of silence."""
    samples = b"\0\0" * 800
    form = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
    data = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(samples)) + samples
    path.write_bytes(b"RIFF" + struct.pack("<I", len(data)) + data)
    return path
