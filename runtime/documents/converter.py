"""The document converter, which is a separate program. `text KIND FILE` prints Markdown. `frames FILE
INTERVAL MAX DIRECTORY` prints JSON.

`SandboxFeatures.documents_command` is the command that starts the program. The file may be hostile, so the
program limits its own time, memory and output. An error is reported as one line on standard error, and as an
exit status other than 0.
"""

import io
import json
import resource
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType

CONVERT_TIMEOUT = 60  # seconds of wall-clock time
CPU_SECONDS = 40
MEMORY_BYTES = 2 << 30  # maximum bytes of address space
MAX_FILE_BYTES = 200 << 20  # maximum bytes of a document or a video
MAX_CHARS = 2_000_000  # maximum number of characters that are printed
MAX_ENTRIES = 500  # maximum entries of an archive that are listed
MAX_ENTRY_BYTES = 200_000  # maximum bytes of one entry of an archive that are unpacked
MAX_ROWS = 5_000  # maximum rows of one sheet that are printed
_MAX_SEARCHED_ROWS = 200_000  # maximum rows of one sheet that are read to find non-empty ones


def main() -> None:
    sys.excepthook = _print_error
    # If the program exceeds one of these limits, the kernel kills it. So no file can block it forever.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(CONVERT_TIMEOUT)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(5_000)
    match sys.argv[1:]:
        case ["text", kind, file] if kind in CONVERTERS:
            _print_blocks(CONVERTERS[kind], _check_size(file))
        case ["frames", file, interval, most, directory]:
            _extract_frames(_check_size(file), int(interval), int(most), Path(directory))
        case _:
            sys.exit(f"{__doc__}".splitlines()[0])


def _print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    message = " ".join(str(error).split())[:300]
    reason = (
        "the conversion needs too much memory" if isinstance(error, MemoryError) else message or kind.__name__
    )
    print(f"the file cannot be read: {reason}", file=sys.stderr)


def _check_size(file: str) -> Path:
    path = Path(file)
    if (size := path.stat().st_size) > MAX_FILE_BYTES:
        raise ValueError(f"its size of {size:,} bytes exceeds the limit of {MAX_FILE_BYTES:,} bytes")
    return path


def _print_blocks(convert: Callable[[Path], Iterator[str]], path: Path) -> None:
    """Print blocks with empty lines between them. If the output limit is reached, print a note instead of the
    rest.
    """
    out = io.TextIOWrapper(sys.stdout.buffer, "utf-8", "replace", newline="\n")
    remaining = MAX_CHARS
    for number, block in enumerate(convert(path)):
        text = ("\n" if number else "") + block.replace("\0", "\ufffd").rstrip() + "\n"
        out.write(text[:remaining])
        if (remaining := remaining - len(text)) < 0:
            out.write(f"\n[the text was cut after {MAX_CHARS:,} characters]\n")
            break
    out.flush()


def _extract_frames(video: Path, interval: int, max_frames: int, directory: Path) -> None:
    from patchwright.runtime.documents.video_frames import extract_frames

    found = list(islice(extract_frames(video, interval, directory), max_frames + 1))
    for frame in found[max_frames:]:
        frame.path.unlink()
    listed = [{"number": frame.number, "path": str(frame.path)} for frame in found[:max_frames]]
    print(json.dumps({"frames": listed, "more": len(found) > max_frames}))


def _convert_pdf(path: Path) -> Iterator[str]:
    import pypdfium2

    document = pypdfium2.PdfDocument(path)
    for number in range(len(document)):
        page = document[number]
        text = page.get_textpage().get_text_bounded()
        yield f"## Page {number + 1} of {len(document)}"
        # U+FFFE in the extracted text is a hyphen at the end of a line.
        yield (
            "\n".join(text.replace("\ufffe", "-").split("\r\n")).strip()
            or "[no text: this page may be an image]"
        )


def _convert_docx(path: Path) -> Iterator[str]:
    from patchwright.runtime.documents.office import convert_docx

    return convert_docx(path)


def _convert_pptx(path: Path) -> Iterator[str]:
    from patchwright.runtime.documents.office import convert_pptx

    return convert_pptx(path)


def _convert_xlsx(path: Path) -> Iterator[str]:
    """Yield each sheet as a table. Shows the values of formulas, and leaves out empty rows."""
    import openpyxl

    from patchwright.runtime.documents.office import markdown_table

    book = openpyxl.load_workbook(path.open("rb"), read_only=True, data_only=True)
    for sheet in book.worksheets:
        yield f"## Sheet {sheet.title}"
        sheet.reset_dimensions()  # The size that the file declares may be wrong, so it is not used.
        rows = (_trim_row(row) for row in islice(sheet.iter_rows(values_only=True), _MAX_SEARCHED_ROWS))
        filled = list(islice(filter(None, rows), MAX_ROWS + 1))
        yield markdown_table(filled[:MAX_ROWS]) or "[empty]"
        if len(filled) > MAX_ROWS:
            yield "[more rows follow: read them with code]"


def _trim_row(row: tuple[object, ...]) -> list[str]:
    cells = ["" if value is None else str(value) for value in row]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _convert_latex(path: Path) -> Iterator[str]:
    from pylatexenc.latex2text import LatexNodes2Text

    text = LatexNodes2Text(keep_comments=False).latex_to_text(path.read_text("utf-8", "replace"))
    blocks = ("\n".join(line.strip() for line in block.splitlines()) for block in text.split("\n\n"))
    return (block.strip() for block in blocks if block.strip())


def _convert_ipynb(path: Path) -> Iterator[str]:
    """Yield the cells of a notebook. A code cell is followed by its text output. Source:
    nbformat.readthedocs.io, format 4.
    """
    notebook = json.loads(path.read_text("utf-8", "replace"))
    for number, cell in enumerate(notebook["cells"], 1):
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            yield source
            continue
        yield f"[cell {number}]\n```\n{source}\n```"
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            text = output.get("text") or data.get("text/plain") or output.get("traceback") or ()
            if printed := "".join(text).strip():
                yield f"[output]\n```\n{printed}\n```"
            yield from (f"[output: {media}]" for media in data if media.startswith("image/"))


def _convert_zip(path: Path) -> Iterator[str]:
    """Yield a list of the entries, and the text of each entry that is text. Unpacks only the start of an entry, so a
    small archive cannot expand without limit.
    """
    from patchwright.runtime.documents.office import markdown_table

    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        unpacked = sum(entry.file_size for entry in entries)
        yield f"{len(entries):,} entries, {unpacked:,} bytes when unpacked"
        rows = [
            ["name", "bytes"],
            *([each.filename, f"{each.file_size:,}"] for each in entries[:MAX_ENTRIES]),
        ]
        yield markdown_table(rows)
        if len(entries) > MAX_ENTRIES:
            yield f"[only the first {MAX_ENTRIES} entries are listed]"
        for entry in entries[:MAX_ENTRIES]:
            if not entry.is_dir() and (text := _read_entry(archive, entry)):
                yield f"## {' '.join(entry.filename.split())}\n\n{text}"


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> str:
    import lzma
    import zlib

    try:
        with archive.open(entry) as file:
            data = file.read(MAX_ENTRY_BYTES + 1)
    # The entry is damaged, encrypted (RuntimeError), or packed in an unknown way.
    except (
        OSError,
        EOFError,
        RuntimeError,
        ValueError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
    ) as error:
        return f"[cannot be read: {' '.join(str(error).split())[:200]}]"
    if b"\0" in data:
        return "[not text]"
    text = data[:MAX_ENTRY_BYTES].decode("utf-8", "replace")
    return text + ("\n[cut: unpack the entry to read the rest]" if len(data) > MAX_ENTRY_BYTES else "")


CONVERTERS: dict[str, Callable[[Path], Iterator[str]]] = {
    "pdf": _convert_pdf,
    "docx": _convert_docx,
    "pptx": _convert_pptx,
    "xlsx": _convert_xlsx,
    "latex": _convert_latex,
    "ipynb": _convert_ipynb,
    "zip": _convert_zip,
}
