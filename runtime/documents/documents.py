"""Files that are not text, as text: documents by the program in converter.py, media by what they are."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from runtime.documents.media import HEAD, Medium, medium
from runtime.plugins import Plugins
from runtime.tree import Unfit

SECONDS = 90  # for one document; the program's own limits are lower
KINDS = {
    ".pdf": "pdf",
    ".docx": "docx",
    ".pptx": "pptx",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".ipynb": "ipynb",
}
"""Suffix -> what the program is told. LaTeX is text, and is edited as such."""

READABLE = "text, PDF, Word (.docx), PowerPoint (.pptx), Excel (.xlsx), notebooks and pictures"
_SKILLS = {"image": "parse_image", "audio": "parse_audio", "video": "parse_video"}


@dataclass
class Documents:
    """Reads what no editor shows. Methods block; they raise Unfit with what to do instead."""

    plugins: Plugins = field(default_factory=Plugins)
    _last: tuple[tuple[Path, int, int], str] | None = field(default=None, init=False)
    """What was read last, and when the file was changed: it is read in pages."""

    def text(self, real: Path, name: str) -> str | None:
        """A file as Markdown, with what it was made from; None for what is text. `name`: as its reader knows it."""
        with real.open("rb") as file:
            head = file.read(HEAD)
        if (found := medium(head)) is not None:
            return self._described(found, real.stat().st_size, name)
        if (kind := KINDS.get(real.suffix.lower())) is None:
            return None
        if kind == "ipynb" and not self.plugins.has("documents"):
            return None  # it can be read as it is
        raw = "; it is JSON: see it as it is with cat in run_shell" if kind == "ipynb" else ""
        return f"[{name} as Markdown, converted from {kind}{raw}]\n\n{self._converted(kind, real, name)}"

    def _described(self, found: Medium, size: int, name: str) -> str:
        pixels = f", {found.size[0]} x {found.size[1]} pixels" if found.size else ""
        how = f"; in run_python, {_SKILLS[found.kind]}({name!r}) has a model tell what is in it"
        return f"[{name}: {found.type}{pixels}, {size:,} bytes{how if self.plugins.has('kernel') else ''}]"

    def _converted(self, kind: str, real: Path, name: str) -> str:
        about = real.stat()
        version = (real, about.st_mtime_ns, about.st_size)
        if self._last is None or self._last[0] != version:
            self._last = (version, self._run(kind, real, name))
        return self._last[1]

    def _run(self, kind: str, real: Path, name: str) -> str:
        command = self.plugins.documents_command()
        if command is None:
            raise Unfit("binary", f"{name} is a document: {self.plugins.missing('documents')}")
        try:
            ran = subprocess.run(
                [*command, "text", kind, str(real)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unfit("io", f"{name} was not read within {SECONDS} s") from None
        if ran.returncode < 0:
            raise Unfit("too_large", f"{name} takes more time or memory to read than a document may")
        if ran.returncode:
            said = ran.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise Unfit("binary", f"{name} looks like {kind}, but {said}")
        return ran.stdout.decode("utf-8", "replace")
