"""The program that reads documents: `text KIND FILE` prints Markdown, `frames FILE INTERVAL MOST DIRECTORY` JSON.

Started by `Plugins.documents_command`. The file may be hostile, so it limits its own seconds and memory, and what
it prints; whatever goes wrong is one line on standard error and an exit status other than 0.
"""

import io
import json
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType

SECONDS = 60  # by the clock
CPU_SECONDS = 40
MEMORY = 2 << 30  # bytes of address space
LARGEST = 200 << 20  # bytes of a document or a video
MOST = 2_000_000  # characters that are printed
MOST_ROWS = 5_000  # of one sheet
_SEARCHED_ROWS = 200_000  # of one sheet that are looked through for one with something in it


def main() -> None:
    sys.excepthook = _told
    # The kernel ends the process at each of these: nothing that a file does can hold it.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(5_000)
    match sys.argv[1:]:
        case ["text", kind, file] if kind in KINDS:
            _print(KINDS[kind], _sized(file))
        case ["frames", file, interval, most, directory]:
            _frames(_sized(file), int(interval), int(most), Path(directory))
        case _:
            sys.exit(f"{__doc__}".splitlines()[0])


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    said = " ".join(str(error).split())[:300]
    why = "it takes too much memory" if isinstance(error, MemoryError) else said or kind.__name__
    print(f"it cannot be read: {why}", file=sys.stderr)


def _sized(file: str) -> Path:
    path = Path(file)
    if (size := path.stat().st_size) > LARGEST:
        raise ValueError(f"it has {size:,} bytes, more than {LARGEST:,}")
    return path


def _print(convert: Callable[[Path], Iterator[str]], path: Path) -> None:
    """Blocks with empty lines between them; ends with a note where there is more than may be printed."""
    out = io.TextIOWrapper(sys.stdout.buffer, "utf-8", "replace", newline="\n")
    left = MOST
    for number, block in enumerate(convert(path)):
        text = ("\n" if number else "") + block.replace("\0", "\ufffd").rstrip() + "\n"
        out.write(text[:left])
        if (left := left - len(text)) < 0:
            out.write(f"\n[it goes on after {MOST:,} characters]\n")
            break
    out.flush()


def _frames(video: Path, interval: int, most: int, directory: Path) -> None:
    from runtime.documents.frames import frames

    seen = list(islice(frames(video, interval, directory), most + 1))
    for left_out in seen[most:]:
        left_out.path.unlink()
    told = [{"number": frame.number, "path": str(frame.path)} for frame in seen[:most]]
    print(json.dumps({"frames": told, "more": len(seen) > most}))


def _pdf(path: Path) -> Iterator[str]:
    import pypdfium2

    document = pypdfium2.PdfDocument(path)
    for number in range(len(document)):
        page = document[number]
        text = page.get_textpage().get_text_bounded()
        yield f"## Page {number + 1} of {len(document)}"
        # U+FFFE stands for a hyphen at the end of a line.
        yield "\n".join(text.replace("\ufffe", "-").split("\r\n")).strip() or "[no text: it may be a picture]"


def _docx(path: Path) -> Iterator[str]:
    from runtime.documents.office import docx

    return docx(path)


def _pptx(path: Path) -> Iterator[str]:
    from runtime.documents.office import pptx

    return pptx(path)


def _xlsx(path: Path) -> Iterator[str]:
    """Each sheet as a table, values in the place of formulas, empty rows left out."""
    import openpyxl

    from runtime.documents.office import table

    book = openpyxl.load_workbook(path.open("rb"), read_only=True, data_only=True)
    for sheet in book.worksheets:
        yield f"## Sheet {sheet.title}"
        sheet.reset_dimensions()  # what the file claims about its size may be wrong
        rows = (_trimmed(row) for row in islice(sheet.iter_rows(values_only=True), _SEARCHED_ROWS))
        filled = list(islice(filter(None, rows), MOST_ROWS + 1))
        yield table(filled[:MOST_ROWS]) or "[nothing in it]"
        if len(filled) > MOST_ROWS:
            yield "[more rows follow: read them with code]"


def _trimmed(row: tuple[object, ...]) -> list[str]:
    cells = ["" if value is None else str(value) for value in row]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _latex(path: Path) -> Iterator[str]:
    from pylatexenc.latex2text import LatexNodes2Text

    text = LatexNodes2Text(keep_comments=False).latex_to_text(path.read_text("utf-8", "replace"))
    blocks = ("\n".join(line.strip() for line in block.splitlines()) for block in text.split("\n\n"))
    return (block.strip() for block in blocks if block.strip())


def _ipynb(path: Path) -> Iterator[str]:
    """Cells of a notebook, code with the text that it printed. Source: nbformat.readthedocs.io, format 4."""
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


KINDS: dict[str, Callable[[Path], Iterator[str]]] = {
    "pdf": _pdf,
    "docx": _docx,
    "pptx": _pptx,
    "xlsx": _xlsx,
    "latex": _latex,
    "ipynb": _ipynb,
}
