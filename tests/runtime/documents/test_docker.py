"""Documents and skills in a container: the program runs by our interpreter, the session by the base image's Python."""

import os
from pathlib import Path

import pytest

from runtime.actions import Provide, RunPython, ViewFile, WriteBytes
from runtime.docker.docker import DockerSandboxes
from runtime.observations import RanPython, Viewed, Wanted
from runtime.sandbox import SandboxSpec
from tests.runtime import papers

pytestmark = [pytest.mark.docker, pytest.mark.slow]

CA_BUNDLE = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))


async def test_a_container_reads_documents_and_takes_frames_of_videos(tmp_path: Path) -> None:
    sandboxes = DockerSandboxes(
        SandboxSpec(memory_mb=1024),
        plugins=("kernel", "documents"),
        ca_bundle=CA_BUNDLE if CA_BUNDLE.exists() else None,
        package_index=os.environ.get("PATCHWRIGHT_PACKAGE_INDEX"),
    )
    files = (
        papers.pdf(tmp_path / "spec.pdf", "The pump stops."),
        papers.docx(tmp_path / "a.docx", "<w:p><w:r><w:t>Valves.</w:t></w:r></w:p>"),
        papers.video(tmp_path / "clip.mp4", 40),
    )
    async with sandboxes.open(f"documents-{os.getpid()}") as sandbox:
        for file in files:
            await sandbox.act(WriteBytes(path=file.name, content=file.read_bytes()))
        viewed = await sandbox.act(ViewFile(path="spec.pdf"))
        assert isinstance(viewed, Viewed), viewed
        assert "The pump stops." in viewed.text
        ran = await sandbox.act(RunPython(code="parse_docx('a.docx')"))
        assert isinstance(ran, RanPython), ran
        assert ran.output == "Valves.\n\n"
        wanted = await sandbox.act(RunPython(code="parse_video('clip.mp4', 'What moves?')"))
        assert isinstance(wanted, Wanted), wanted
        assert [Path(frame).name for frame in wanted.files] == ["frame-000000.jpg", "frame-000030.jpg"]
        ran = await sandbox.act(Provide(text="Nothing moves."))
        assert isinstance(ran, RanPython), ran
        assert ran.output == "[shown to the model: the frames 0, 30]\nNothing moves.\n"
    await sandboxes.close()
