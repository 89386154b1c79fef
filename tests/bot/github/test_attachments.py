"""Attachments of issues are downloaded, and untrusted URLs are never requested."""

import os
import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from patchwright.bot.github.attachments import is_allowed_redirect, is_attachment
from patchwright.bot.github.auth import RequestPolicy, TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.demo.github import FakeGitHub
from patchwright.resolver.domain import Comment, Issue, Repo, User
from patchwright.resolver.errors import ForgeError, NotFound
from patchwright.resolver.forge import MAX_ATTACHMENT
from patchwright.resolver.preparation.attachments import (
    MAX_FILES,
    MAX_IMAGES,
    MAX_TOTAL_BYTES,
    Attachment,
    ThreadAttachments,
    attachments_directory,
    fetch_attachments,
    write_attachments,
)
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes

REPO = Repo(owner="acme", name="sample")
HUB = "https://github.com"
ID = "5f7a0a0e-9f5c-4b43-8f6e-0a1b2c3d4e5f"


def png(width: int = 2, height: int = 1) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0" * height) if width == 2 else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.fixture
async def forge(fake_github: FakeGitHub) -> AsyncIterator[GitHubForge]:
    urls = fake_github.urls
    access = TokenAuth(SecretStr(fake_github.create_token("patchwright")))
    async with GitHubForge(
        access, urls, policy=RequestPolicy(write_interval=0, initial_backoff=0.01)
    ) as forge:
        yield forge


def issue(body: str, *comments: str) -> Issue:
    author = User(id=7, login="stranger")
    entries = tuple(Comment(author=author, body=text, trusted=False) for text in comments)
    return Issue(
        number=7, title="t", body=body, author=author, trusted=False, open=True, url="", comments=entries
    )


# --- URLs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        f"{HUB}/user-attachments/assets/{ID}",
        f"{HUB}/user-attachments/files/123456/report.pdf",
        f"{HUB}/acme/sample/assets/1234/{ID}",
        f"{HUB}/acme/sample/files/123456/trace.log",
        "https://user-images.githubusercontent.com/1/2-a.png",
        "https://private-user-images.githubusercontent.com/1/2-a.png?jwt=e30",
    ],
)
def test_attachment_urls_are_recognized(url: str) -> None:
    assert is_attachment(url, HUB)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "https://evil.example/user-attachments/assets/1",
        f"https://github.com.evil.example/user-attachments/assets/{ID}",
        f"https://github.com@evil.example/user-attachments/assets/{ID}",
        f"https://token@github.com/user-attachments/assets/{ID}",
        f"https://github.com:8443/user-attachments/assets/{ID}",
        f"http://github.com/user-attachments/assets/{ID}",
        "https://github.com/user-attachments/assets/../../logout",
        "https://github.com/user-attachments/assets/%2e%2e/logout",
        "https://github.com/acme/sample/settings/hooks",
        "https://github.com/acme/sample/raw/main/a.png",
        "https://api.github.com/user",
        "https://user-images.githubusercontent.com.evil.example/a.png",
        "https://user-images.githubusercontent.com:22/a.png",
        "https://raw.githubusercontent.com/evil/evil/main/a.png",
        "file:///etc/passwd",
        "https://[::1/user-attachments/assets/1",
        "https://github.com:x/user-attachments/assets/1",
    ],
)
def test_other_urls_are_no_attachments(url: str) -> None:
    assert not is_attachment(url, HUB)


def test_attachments_belong_to_one_forge(fake_github: FakeGitHub) -> None:
    assert is_attachment(f"{fake_github.server_url}/user-attachments/assets/{ID}", fake_github.server_url)
    assert not is_attachment(f"{HUB}/user-attachments/assets/{ID}", fake_github.server_url)
    assert not is_attachment("https://user-images.githubusercontent.com/1/a.png", fake_github.server_url)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        (f"https://github-production-user-asset-6210df.s3.amazonaws.com/1/{ID}.png?X-Amz-Signature=0", True),
        ("https://objects.githubusercontent.com/a", True),
        ("https://evil.s3.amazonaws.com/a", False),
        ("https://github-production-user-asset-6210df.s3.amazonaws.com.evil.example/a", False),
        ("http://169.254.169.254/", False),
    ],
)
def test_redirects_are_allowed_to_the_forges_storage_only(url: str, allowed: bool) -> None:
    assert is_allowed_redirect(url, HUB) == allowed


async def test_a_file_is_downloaded_with_our_token(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    url = fake_github.add_attachment("assets/1", png())
    assert await forge.download_attachment(REPO, url) == png()
    assert fake_github.attachment_requests == [
        ("/user-attachments/assets/1", f"Bearer {fake_github.tokens[0]}")
    ]


async def test_other_urls_are_not_requested(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    assert (
        await forge.download_attachment(REPO, f"{fake_github.server_url}/acme/sample.git/info/refs") is None
    )
    assert fake_github.attachment_requests == []


async def test_redirects_to_other_hosts_are_not_followed(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    async with FakeGitHub() as elsewhere:
        target = elsewhere.add_attachment("assets/2", png())
        for location in (target, "http://127.0.0.1:1/x", "//evil.example/x", "http://[", ""):
            url = fake_github.add_attachment("assets/1", status=302, headers={"location": location})
            with pytest.raises(ForgeError):
                await forge.download_attachment(REPO, url)
        assert elsewhere.attachment_requests == []


async def test_redirects_within_the_forge_are_followed(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    target = fake_github.add_attachment("files/3/a.png", png())
    url = fake_github.add_attachment("assets/1", status=302, headers={"location": target})
    assert await forge.download_attachment(REPO, url) == png()


async def test_large_missing_and_looping_files_are_errors(
    fake_github: FakeGitHub, forge: GitHubForge
) -> None:
    with pytest.raises(ForgeError, match="larger than 25 MB"):
        await forge.download_attachment(
            REPO, fake_github.add_attachment("assets/1", b"x" * (MAX_ATTACHMENT + 1))
        )
    with pytest.raises(NotFound):
        await forge.download_attachment(REPO, fake_github.add_attachment("assets/2", status=404))
    loop = fake_github.add_attachment("assets/3")
    fake_github.add_attachment("assets/3", status=302, headers={"location": loop})
    with pytest.raises(ForgeError, match="too many redirects"):
        await forge.download_attachment(REPO, loop)


# --- threads ------------------------------------------------------------------------------------


async def test_attachments_are_classified_by_content(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    picture = fake_github.add_attachment("assets/1", png())
    report = fake_github.add_attachment("files/2/my%20report.pdf", b"%PDF-1.7 ...")
    log = fake_github.add_attachment("files/3/trace.log", b"Traceback\n")
    program = fake_github.add_attachment("files/4/tool.png", b"\x7fELF\xff\0")
    body = f'![shot]({picture})\n<img width="9" src="{picture}">\n[my report]({report}), see {log}.'
    attachments = await fetch_attachments(
        issue(body, f"And {program}", "https://evil.example/x.png"), REPO, forge
    )
    assert [(file.name, file.media_type) for file in attachments.files] == [
        ("1-1.png", "image/png"),
        ("2-my_report.pdf", "application/pdf"),
        ("3-trace.log", "text/plain"),
    ]
    assert [shown.data for shown in attachments.images] == [png()]
    assert attachments.problems == (f"{program} is not a text, picture, recording, document or archive.",)


KINDS = {
    "clip.mp4": (b"\0\0\0\x20ftypisom" + bytes(24), "video/mp4"),
    "clip.mov": (b"\0\0\0\x14ftypqt  " + bytes(12), "video/mp4"),
    "old.mov": (b"\0\0\0\x08wide\0\0\0\x08mdat", "video/quicktime"),
    "clip.webm": (b"\x1a\x45\xdf\xa3" + bytes(30), "video/webm"),
    "call.wav": (b"RIFF\x24\0\0\0WAVEfmt " + bytes(24), "audio/wav"),
    "call.mp3": (b"ID3\4" + bytes(30), "audio/mpeg"),
    "spec.docx": (b"PK\3\4" + bytes(30), "application/zip"),
    "talk.pptx": (b"PK\3\4" + bytes(30), "application/zip"),
    "data.xlsx": (b"PK\3\4" + bytes(30), "application/zip"),
    "logs.zip": (b"PK\3\4" + bytes(30), "application/zip"),
    "dump.log.gz": (b"\x1f\x8b\x08" + bytes(30), "application/gzip"),
    "book.ipynb": (b'{"cells": []}', "text/plain"),
    "trace.log": (b"Traceback\n", "text/plain"),
}


@pytest.mark.parametrize("name", KINDS)
async def test_every_kind_of_file_that_github_takes_is_kept_under_its_name(
    fake_github: FakeGitHub, forge: GitHubForge, name: str
) -> None:
    data, media_type = KINDS[name]
    url = fake_github.add_attachment(f"files/1/{name}", data)
    attachments = await fetch_attachments(issue(url), REPO, forge)
    assert attachments.files == (Attachment(name=f"1-{name}", media_type=media_type, data=data),)
    assert attachments.problems == ()


async def test_a_name_or_content_type_that_lies_changes_nothing(
    fake_github: FakeGitHub, forge: GitHubForge
) -> None:
    lying = {"content-type": "image/png"}
    urls = [
        fake_github.add_attachment("files/1/shot.png", b"PK\3\4" + bytes(30), headers=lying),
        fake_github.add_attachment("files/2/spec.docx", b"%PDF-1.7", headers=lying),
        fake_github.add_attachment("files/3/clip.mp4", b"\x7fELF\xff\0", headers=lying),
    ]
    attachments = await fetch_attachments(issue(" ".join(urls)), REPO, forge)
    assert [file.name for file in attachments.files] == ["1-shot.png.zip", "2-spec.docx.pdf"]
    assert attachments.images == ()
    assert attachments.problems == (f"{urls[2]} is not a text, picture, recording, document or archive.",)


@pytest.mark.slow
async def test_the_size_of_all_attachments_is_limited(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    size = MAX_TOTAL_BYTES // 3
    urls = [fake_github.add_attachment(f"files/{n}/big.log", b"x" * size) for n in range(5)]
    attachments = await fetch_attachments(issue(" ".join(urls)), REPO, forge)
    assert (
        len(attachments.files) == 3 and sum(len(file.data) for file in attachments.files) <= MAX_TOTAL_BYTES
    )
    assert attachments.problems[0] == f"{urls[3]}: all files together exceed 50 MB."
    assert len(fake_github.attachment_requests) == 4  # Four are requested at once.


async def test_a_large_file_reaches_the_sandbox_whole(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40_000  # more than one message to the sandbox may contain
    file = Attachment(name="1-clip.mp4", media_type="video/mp4", data=data)
    async with LocalSandboxes(tmp_path, os.environ).open("run") as sandbox:
        written = await write_attachments(ThreadAttachments(files=(file,)), sandbox)
        stored = Path(attachments_directory(sandbox)) / file.name
        assert written.files == (file,) and stored.read_bytes() == data


async def test_hidden_attachments_are_not_downloaded(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    attachments = await fetch_attachments(
        issue(f"<!-- {fake_github.add_attachment('assets/1', png())} -->"), REPO, forge
    )
    assert (attachments, fake_github.attachment_requests) == (ThreadAttachments(), [])


async def test_the_number_of_attachments_is_limited(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    urls = [fake_github.add_attachment(f"assets/{n}", png()) for n in range(50)]
    attachments = await fetch_attachments(issue("\n".join(urls)), REPO, forge)
    assert (len(attachments.files), len(attachments.images)) == (MAX_FILES, MAX_IMAGES)
    assert len(fake_github.attachment_requests) < 3 * MAX_FILES


async def test_a_missing_attachment_is_reported(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    missing, present = (
        fake_github.add_attachment("assets/1", status=410),
        fake_github.add_attachment("assets/2", png()),
    )
    attachments = await fetch_attachments(issue(f"{missing} {present}"), REPO, forge)
    assert [file.name for file in attachments.files] == ["2-2.png"]
    assert attachments.problems == (f"{missing}: the server returned 410.",)


@pytest.mark.parametrize(
    ("media", "data", "shown"),
    [
        ("image/png", png(), True),
        ("image/png", png()[:-12], False),
        ("image/png", png(40_000, 40_000), False),
        ("image/png", b"\x89PNG\r\n\x1a\n", False),
        ("image/gif", b"GIF89a\x02\0\x01\0\x80\0\0;", True),
        ("image/gif", b"GIF89a", False),
        ("image/jpeg", b"\xff\xd8\xff\xe0\0\x04JF\xff\xc0\0\x11\x08\0\x01\0\x02\x03\xff\xd9", True),
        ("image/jpeg", b"\xff\xd8\xff\xe0\0\x00\xff\xd9", False),
        ("image/webp", b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\x01\0\0\0" + bytes(9), True),
        ("image/webp", b"RIFF\xff\xff\xff\xffWEBP", False),
        ("text/plain", b"text", False),
    ],
)
def test_only_valid_pictures_are_shown(media: str, data: bytes, shown: bool) -> None:
    assert (Attachment(name="x", media_type=media, data=data).image is not None) == shown
