"""Documents and skills in a container: our interpreter converts, the base image's Python runs the session."""

import os
from pathlib import Path

import pytest

from patchwright.runtime.actions import HostReply, RunPython, ViewFile, WriteBytes
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.observations import CellResult, HostRequest, TextResult
from patchwright.runtime.sandbox import SandboxSpec
from tests.runtime import sample_documents

pytestmark = [pytest.mark.docker, pytest.mark.slow]

CA_BUNDLE = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))


async def test_a_container_reads_documents_and_takes_frames_of_videos(tmp_path: Path) -> None:
    build = BuildSettings(
        features=("kernel", "documents"),
        ca_bundle=CA_BUNDLE if CA_BUNDLE.exists() else None,
        package_index=os.environ.get("PATCHWRIGHT_PACKAGE_INDEX"),
    )
    sandboxes = DockerSandboxes(SandboxSpec(memory_mb=1024), build)
    files = (
        sample_documents.pdf(tmp_path / "spec.pdf", "The pump stops."),
        sample_documents.docx(tmp_path / "a.docx", "<w:p><w:r><w:t>Valves.</w:t></w:r></w:p>"),
        sample_documents.video(tmp_path / "clip.mp4", 40),
    )
    async with sandboxes.open(f"documents-{os.getpid()}") as sandbox:
        for file in files:
            await sandbox.act(WriteBytes(path=file.name, content=file.read_bytes()))
        viewed = await sandbox.act(ViewFile(path="spec.pdf"))
        assert isinstance(viewed, TextResult), viewed
        assert "The pump stops." in viewed.text
        ran = await sandbox.act(RunPython(code="parse_docx('a.docx')"))
        assert isinstance(ran, CellResult), ran
        assert ran.output == "Valves.\n\n"
        wanted = await sandbox.act(RunPython(code="parse_video('clip.mp4', 'What moves?')"))
        assert isinstance(wanted, HostRequest), wanted
        assert [Path(frame).name for frame in wanted.files] == ["frame-000000.jpg", "frame-000030.jpg"]
        ran = await sandbox.act(HostReply(text="Nothing moves."))
        assert isinstance(ran, CellResult), ran
        assert ran.output == "[frames shown to the model: 0, 30]\nNothing moves.\n"
    await sandboxes.close()
