"""Returns text for files that are not text: converts documents to Markdown, and describes media files."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from patchwright.runtime.documents.media_type import HEADER_BYTES, MediaFile, detect_media
from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.path_guard import ToolInputError

CONVERTER_TIMEOUT = 90  # Seconds for one document. The converter has lower limits of its own.
KIND_BY_SUFFIX = {
    ".pdf": "pdf",
    ".docx": "docx",
    ".pptx": "pptx",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".ipynb": "ipynb",
    ".zip": "zip",
}
"""Maps each file suffix to the name of a format that the converter can read. LaTeX is not included, because it
is viewed and edited as text.
"""

READABLE_FORMATS = (
    "text, PDF, Word (.docx), PowerPoint (.pptx), Excel (.xlsx), notebooks, zip archives and images"
)
_SKILL_BY_KIND = {"image": "parse_image", "audio": "parse_audio", "video": "parse_video"}


@dataclass
class DocumentReader:
    """Converts files for `view_file`. Its methods block. They raise ToolInputError, whose message says what
    to do instead.
    """

    features: SandboxFeatures = field(default_factory=SandboxFeatures)
    _cached: tuple[tuple[Path, int, int], str] | None = field(default=None, init=False)
    """The document that was converted last, with its version. It is cached because a model views a document
    page by page.
    """

    def to_markdown(self, real: Path, name: str) -> str | None:
        """Return a document as Markdown, or the description of a media file. Return None for a text file.

        `name` is the path that the model gave for the file.
        """
        with real.open("rb") as file:
            head = file.read(HEADER_BYTES)
        if (media := detect_media(head)) is not None:
            return self._describe_media(media, real.stat().st_size, name)
        if (kind := KIND_BY_SUFFIX.get(real.suffix.lower())) is None:
            return None
        if kind == "ipynb" and not self.features.has("documents"):
            return None  # A notebook can be read as JSON.
        hint = "; to see the JSON, use cat in run_shell" if kind == "ipynb" else ""
        return (
            f"[{name} as Markdown, converted from {kind}{hint}]\n\n{self._convert_cached(kind, real, name)}"
        )

    def _describe_media(self, media: MediaFile, size: int, name: str) -> str:
        pixels = f", {media.size[0]} x {media.size[1]} pixels" if media.size else ""
        hint = (
            f"; to ask a model about its contents, call {_SKILL_BY_KIND[media.kind]}({name!r}) in run_python"
        )
        return f"[{name}: {media.media_type}{pixels}, {size:,} bytes{hint if self.features.has('kernel') else ''}]"

    def _convert_cached(self, kind: str, real: Path, name: str) -> str:
        status = real.stat()
        version = (real, status.st_mtime_ns, status.st_size)
        if self._cached is None or self._cached[0] != version:
            self._cached = (version, self._run_converter(kind, real, name))
        return self._cached[1]

    def _run_converter(self, kind: str, real: Path, name: str) -> str:
        command = self.features.documents_command()
        if command is None:
            raise ToolInputError(
                "binary", f"{name} is a document: {self.features.missing_message('documents')}"
            )
        try:
            completed = subprocess.run(
                [*command, "text", kind, str(real)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                timeout=CONVERTER_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ToolInputError("io", f"{name} could not be read within {CONVERTER_TIMEOUT} s") from None
        if completed.returncode < 0:
            raise ToolInputError(
                "too_large", f"reading {name} exceeds the limit of time or memory for a document"
            )
        if completed.returncode:
            reason = completed.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise ToolInputError("binary", f"{name} looks like {kind}, but {reason}")
        return completed.stdout.decode("utf-8", "replace")
