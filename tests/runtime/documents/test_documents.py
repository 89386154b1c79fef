"""Documents as Markdown, in view_file and in skills, including hostile files."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import cast

import openpyxl
import pytest

import patchwright.runtime.skills as skills
from patchwright.runtime.actions import ViewFile
from patchwright.runtime.documents import converter, office
from patchwright.runtime.documents.document_reader import DocumentReader
from patchwright.runtime.documents.media_type import MediaFile, detect_media
from patchwright.runtime.execution.editor import Editor
from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.path_guard import PathGuard, ToolInputError
from patchwright.runtime.skills import host
from tests.runtime import sample_documents
from tests.runtime.sample_documents import A, P, W


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tree").mkdir()
    (tmp_path / "scratch").mkdir()
    monkeypatch.chdir(tmp_path / "tree")
    host.connect(documents_command=SandboxFeatures().documents_command(), scratch=str(tmp_path / "scratch"))
    return tmp_path / "tree"


@pytest.fixture
def editor(root: Path) -> Editor:
    return Editor(PathGuard(root, root.parent / "scratch"))


def view(editor: Editor, path: str, start: int = 1) -> str:
    """Return the view without line numbers."""
    text = editor.view(ViewFile(path=path, start=start)).text
    return "\n".join(line.partition("\t")[2] if "\t" in line else line for line in text.splitlines())


def refused(editor: Editor, path: str) -> str:
    with pytest.raises(ToolInputError) as unfit:
        editor.view(ViewFile(path=path))
    return str(unfit.value)


WORD = """
<w:p><w:pPr><w:pStyle w:val="berschrift2"/></w:pPr><w:r><w:t>Pumps</w:t></w:r></w:p>
<w:p><w:r><w:t>The pump stops at </w:t></w:r><w:r><w:t>forty</w:t></w:r>
<w:del><w:r><w:delText>nine</w:delText></w:r></w:del>
<w:ins><w:r><w:t xml:space="preserve"> bars</w:t></w:r></w:ins><w:r><w:footnoteReference w:id="2"/></w:r>: </w:p>
<w:p><w:pPr><w:numPr><w:ilvl w:val="1"/></w:numPr></w:pPr>
<w:hyperlink r:id="r2"><w:r><w:t>read on</w:t></w:r></w:hyperlink></w:p>
<w:sdt><w:sdtContent><w:tbl>
<w:tr><w:tc><w:p><w:r><w:t>bar</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>a|b</w:t></w:r></w:p></w:tc></w:tr>
<w:tr><w:tc><w:p><w:r><w:t>40</w:t></w:r></w:p></w:tc></w:tr>
</w:tbl></w:sdtContent></w:sdt>
"""
WORD_AS_TEXT = """\
## Pumps

The pump stops at forty bars[^2]

  - [read on](https://example.org/x)

| bar | a\\|b |
| --- | --- |
| 40 |  |

[^2]: See section 9.
"""


def test_a_pdf_is_viewed_page_by_page(root: Path, editor: Editor) -> None:
    sample_documents.pdf(root / "spec.pdf", "The pump stops at forty bars.", "Valves follow.")
    assert view(editor, "spec.pdf") == (
        "[spec.pdf as Markdown, converted from pdf]\n\n## Page 1 of 2\n\nThe pump stops at forty bars.\n\n"
        "## Page 2 of 2\n\nValves follow.\n[lines 1-9 of 9: the end of the file]"
    )


def test_a_word_document_keeps_headings_lists_links_tables_and_notes(root: Path, editor: Editor) -> None:
    sample_documents.docx(root / "a.docx", WORD)
    assert view(editor, "a.docx").startswith(f"[a.docx as Markdown, converted from docx]\n\n{WORD_AS_TEXT}")


def test_slides_come_in_the_order_in_which_they_are_shown(root: Path, editor: Editor) -> None:
    sample_documents.pptx(root / "a.pptx", "First", "Second")
    assert view(editor, "a.pptx").startswith(
        "[a.pptx as Markdown, converted from pptx]\n\n## Slide 1\n\n### First\n\nAbout First\n\n"
        "Notes: Speak slowly.\n\n"
        "## Slide 2\n\n### Second\n\nAbout Second\n"
    )


def test_sheets_are_tables_of_values(root: Path, editor: Editor) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Bars"
    for row in (["pump", "bar"], [], ["north", 40], ["south", None, True]):
        sheet.append(row)
    book.create_sheet("Empty")
    book.save(root / "a.xlsx")
    assert view(editor, "a.xlsx").startswith(
        "[a.xlsx as Markdown, converted from xlsx]\n\n## Sheet Bars\n\n| pump | bar |  |\n| --- | --- | --- |\n"
        "| north | 40 |  |\n| south |  | True |\n\n## Sheet Empty\n\n[empty]\n"
    )


def test_a_notebook_shows_its_cells_and_says_how_to_see_the_json(root: Path, editor: Editor) -> None:
    output = {"output_type": "display_data", "data": {"image/png": "aGk=", "text/plain": ["<Figure>"]}}
    cells = [
        {"cell_type": "markdown", "source": ["# Bars"]},
        {"cell_type": "code", "source": "plot()", "outputs": [output]},
    ]
    (root / "a.ipynb").write_text(json.dumps({"cells": cells}))
    text = view(editor, "a.ipynb")
    assert "to see the JSON, use cat" in text
    assert (
        "# Bars\n\n[cell 2]\n```\nplot()\n```\n\n[output]\n```\n<Figure>\n```\n\n[output: image/png]" in text
    )


def test_a_long_document_is_paged_as_a_file_is(root: Path, editor: Editor) -> None:
    sample_documents.pdf(root / "long.pdf", *(f"Sentence {n}" for n in range(200)))
    text = view(editor, "long.pdf")
    assert text.endswith("[lines 1-600 of 801; the next are 601-801]")
    assert "Sentence 199" in view(editor, "long.pdf", start=790)


def test_images_audio_and_videos_are_described(root: Path, editor: Editor) -> None:
    sample_documents.png(root / "shot.png", 640, 480)
    sample_documents.wav(root / "said.wav")
    sample_documents.video(root / "clip.mp4", 2)
    assert "shot.png: image/png, 640 x 480 pixels, " in view(editor, "shot.png")
    assert "ask a model about its contents, call parse_audio('said.wav')" in view(editor, "said.wav")
    assert "ask a model about its contents, call parse_video('clip.mp4')" in view(editor, "clip.mp4")


def test_an_unsupported_kind_of_file_is_reported(root: Path, editor: Editor) -> None:
    (root / "old.doc").write_bytes(b"\xd0\xcf\x11\xe0\0\0")
    assert "old.doc is a binary file" in refused(editor, "old.doc")
    assert "view_file shows text, PDF, Word" in refused(editor, "old.doc")


def test_without_the_feature_the_setting_is_named(root: Path, tmp_path: Path) -> None:
    editor = Editor(
        PathGuard(root, tmp_path / "scratch"), DocumentReader(SandboxFeatures(directory=tmp_path / "nothing"))
    )
    sample_documents.pdf(root / "spec.pdf", "x")
    assert "this sandbox has no `documents`" in refused(editor, "spec.pdf")
    (root / "a.ipynb").write_text("{}")
    assert view(editor, "a.ipynb").startswith("{}")
    sample_documents.png(root / "shot.png")
    assert view(editor, "shot.png").startswith("[shot.png: image/png, 3 x 2 pixels, 71 bytes]")


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"GIF89a\x05\x00\x07\x00", MediaFile("image", "image/gif", (5, 7))),
        (
            b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x07\x00\x05",
            MediaFile("image", "image/jpeg", (5, 7)),
        ),
        (b"\xff\xd8\xff\xe0\x00\x00", MediaFile("image", "image/jpeg")),
        (b"\x89PNG\r\n\x1a\n", MediaFile("image", "image/png")),
        (b"RIFF\0\0\0\0WEBPVP8 ", MediaFile("image", "image/webp")),
        (b"ID3\x04", MediaFile("audio", "audio/mpeg")),
        (b"\0\0\0\x20ftypM4A ", MediaFile("audio", "audio/mp4")),
        (b"\x1a\x45\xdf\xa3", MediaFile("video", "video/webm")),
        (b"RIFF\0\0\0\0AVI ", None),
        (b"", None),
    ],
)
def test_media_types_are_detected_by_the_first_bytes(head: bytes, found: MediaFile | None) -> None:
    assert detect_media(head) == found


# --- the skills ---------------------------------------------------------------------------------------------


def test_the_skills_print_documents(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skills.parse_pdf(
        str(sample_documents.pdf(root / "spec.pdf", "The pump stops at forty bars.", "Valves follow."))
    )
    assert capsys.readouterr().out == (
        "## Page 1 of 2\n\nThe pump stops at forty bars.\n\n## Page 2 of 2\n\nValves follow.\n\n"
    )
    sample_documents.docx(root / "a.docx", WORD)
    skills.parse_docx("a.docx")
    assert capsys.readouterr().out == WORD_AS_TEXT + "\n"
    skills.parse_pptx(str(sample_documents.pptx(root / "a.pptx", "First", "Second")))
    text = capsys.readouterr().out
    assert text.index("First") < text.index("Speak slowly.") < text.index("Second")


def test_latex_is_printed_without_its_markup(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "a.tex").write_text(
        "\\documentclass{article}\n\\usepackage{amsmath}\n\\begin{document}\n\\section{Pumps}\n"
        "The pump \\textbf{stops} at $\\alpha^2$ bars. % not said\n\n\\begin{itemize}\\item one\\end{itemize}\n"
        "\\input{/etc/passwd}\n\\end{document}\n"
    )
    skills.parse_latex("a.tex")
    text = capsys.readouterr().out
    assert "The pump stops at α^2 bars." in text
    assert all(markup not in text for markup in ("\\", "itemize", "article", "not said", "root:"))


@pytest.mark.parametrize(
    ("source", "text"), [("", "\n"), ("plain \\emph{text", "plain text\n\n"), ("% only a comment", "\n")]
)
def test_latex_without_text_or_with_an_open_brace_is_printed(
    source: str, text: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "a.tex").write_text(source)
    skills.parse_latex("a.tex")
    assert capsys.readouterr().out == text


def test_a_long_document_is_saved_to_a_file(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample_documents.pdf(root / "long.pdf", *(f"Sentence {n}" for n in range(1_500)))
    skills.parse_pdf("long.pdf")
    text = capsys.readouterr().out
    assert len(text) < 21_000
    skills.open_file(text.rpartition("open_file('")[2].partition("'")[0])
    assert "1|## Page 1 of 1500" in capsys.readouterr().out


@pytest.mark.parametrize("skill", [skills.parse_pdf, skills.parse_docx, skills.parse_pptx])
def test_an_unsuitable_file_yields_a_message(
    skill: object, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(skill)
    (root / "wrong").write_text("It only says that it is one.")
    skill("wrong")
    assert f"[{skill.__name__}: the file cannot be read: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "skill", [skills.parse_pdf, skills.parse_docx, skills.parse_pptx, skills.parse_latex]
)
def test_an_absent_file_and_a_directory_yield_a_message(
    skill: object, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(skill)
    skill("absent")
    assert f"[{skill.__name__}: absent does not exist" in capsys.readouterr().out
    skill(".")
    assert f"[{skill.__name__}: . is a directory" in capsys.readouterr().out


def test_without_the_program_a_skill_says_why(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host.connect(missing_message="there are no documents here")
    sample_documents.pdf(root / "spec.pdf", "x")
    skills.parse_pdf("spec.pdf")
    assert capsys.readouterr().out == "[parse_pdf: there are no documents here]\n"


def test_an_archive_shows_its_list_and_its_texts(root: Path, editor: Editor) -> None:
    with zipfile.ZipFile(root / "logs.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("app/error.log", "Traceback\nKeyError: 'x'\n")
        made.writestr("core.bin", b"\0\1\2")
    text = view(editor, "logs.zip")
    assert "2 entries, 27 bytes when unpacked" in text
    assert "| app/error.log | 24 |" in text
    assert "## app/error.log" in text and "KeyError: 'x'" in text
    assert "[not text]" in text


# --- hostile files ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_archive_that_expands_without_limit_is_cut(root: Path) -> None:
    with zipfile.ZipFile(root / "bomb.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bomb:
        with bomb.open("huge", "w", force_zip64=True) as entry:  # more than the converter's memory
            for _ in range(2_100):
                entry.write(b"x" * (1 << 20))
        for number in range(599):
            bomb.writestr(f"{number}", "x" * (1 << 18))
    text = DocumentReader().to_markdown(root / "bomb.zip", "bomb.zip")
    assert text is not None and len(text) < converter.MAX_CHARS + 1_000
    assert f"600 entries, {(2_100 << 20) + (599 << 18):,} bytes when unpacked" in text
    assert "[only the first 500 entries are listed]" in text
    assert "[cut: unpack the entry to read the rest]" in text
    assert text.rstrip().endswith("[the text was cut after 2,000,000 characters]")


@pytest.mark.slow
def test_a_zip_bomb_is_refused(root: Path, editor: Editor) -> None:
    with (
        zipfile.ZipFile(root / "bomb.docx", "w", zipfile.ZIP_DEFLATED) as bomb,
        bomb.open("word/document.xml", "w") as part,
    ):
        for _ in range(100):
            part.write(b" " * (1 << 20))
    assert (
        "bomb.docx looks like docx, but the file cannot be read: the part word/document.xml has more than"
        in (refused(editor, "bomb.docx"))
    )


def test_a_part_that_unpacks_to_too_much_is_refused_after_the_limit() -> None:
    class Endless(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            assert 0 < size <= office.MAX_PART_BYTES + 1
            return bytes(size)

    class Bomb:
        def open(self, name: str) -> Endless:
            return Endless()

    package = office.OfficePackage(cast("zipfile.ZipFile", Bomb()))
    with pytest.raises(office.UnreadableDocument, match=r"the part a\.xml has more than"):
        package.read_part("a.xml")


def test_xml_with_entities_is_rejected(root: Path, editor: Editor) -> None:
    for name, entity in (("file", 'SYSTEM "file:///etc/passwd"'), ("many", '"ha"')):
        body = "<w:body><w:p><w:t>&e;</w:t></w:p></w:body>"
        text = f'<!DOCTYPE d [<!ENTITY e {entity}>]><w:document xmlns:w="{W}">{body}</w:document>'
        sample_documents.archive(root / f"{name}.docx", {"word/document.xml": text})
        assert "cannot be read: EntitiesForbidden" in refused(editor, f"{name}.docx")


def test_a_presentation_with_circular_or_missing_references_is_read(root: Path, editor: Editor) -> None:
    parts = {
        "ppt/presentation.xml": f'<p:presentation xmlns:p="{P}" xmlns:a="{A}"><p:sldId/></p:presentation>',
        "ppt/_rels/presentation.xml.rels": sample_documents.relations(
            ("r0", "slide", "../../../../etc/passwd")
        ),
    }
    sample_documents.archive(root / "a.pptx", parts)
    assert "is missing" in refused(editor, "a.pptx")


def limited(code: str) -> tuple[int, str]:
    """Run the converter with this code as its PDF converter; return exit status and output."""
    setup = f"""
import sys
sys.path.insert(0, {str(Path.cwd())!r})
import patchwright.runtime.documents.converter as converter
converter.CONVERT_TIMEOUT, converter.MEMORY_BYTES = 2, 500 << 20
def hostile(path):
{code}
converter.CONVERTERS["pdf"] = hostile
sys.argv = ["", "text", "pdf", "/dev/null"]
converter.main()
"""
    ran = subprocess.run([sys.executable, "-c", setup], capture_output=True, timeout=30, check=False)
    return ran.returncode, ran.stderr.decode() or str(len(ran.stdout))


@pytest.mark.slow
def test_the_program_ends_at_its_limits() -> None:
    assert limited("    while True: pass\n    yield")[0] == -14  # SIGALRM
    assert limited("    yield 'x' * (600 << 20)") == (
        1,
        "the file cannot be read: the conversion needs too much memory\n",
    )
    code, length = limited("    while True: yield 'x' * 100_000")
    assert (code, int(length)) == (0, 2_000_000 + len("\n[the text was cut after 2,000,000 characters]\n"))


def test_the_program_is_started_without_the_environment(root: Path) -> None:
    """Modules of the work tree with the same names are not imported."""
    (root / "json.py").write_text("raise SystemExit('shadowed')")
    sample_documents.pdf(root / "spec.pdf", "Not shadowed.")
    command = SandboxFeatures().documents_command()
    assert command is not None
    env = {"PATH": os.defpath, "PYTHONPATH": str(root), "PYTHONSTARTUP": str(root / "json.py")}
    ran = subprocess.run(
        [*command, "text", "pdf", "spec.pdf"], cwd=root, env=env, capture_output=True, check=False
    )
    assert b"Not shadowed." in ran.stdout
