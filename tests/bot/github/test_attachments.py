"""What people attach to an issue reaches the agent; no address of a stranger's choice is ever asked for."""

import struct
import zlib
from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from bot.github.attachments import is_attachment, may_lead_to
from bot.github.forge import GitHubForge
from bot.github.rest import Pace, TokenAccess
from demo.world import World
from resolver.domain import Comment, Issue, Repo, User
from resolver.errors import ForgeError, NotFound
from resolver.forge import MAX_ATTACHMENT
from resolver.preparing.attachments import MOST, MOST_SHOWN, Attached, Attachment, attachments

REPO = Repo(owner="acme", name="sample")
HUB = "https://github.com"
ID = "5f7a0a0e-9f5c-4b43-8f6e-0a1b2c3d4e5f"


def png(width: int = 2, height: int = 1) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    drawn = zlib.compress(b"\0\xff\0" * height) if width == 2 else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", drawn) + chunk(b"IEND", b"")


@pytest.fixture
async def forge(world: World) -> AsyncIterator[GitHubForge]:
    urls = {"api_url": world.api_url, "graphql_url": world.graphql_url, "server_url": world.server_url}
    access = TokenAccess(SecretStr(world.token("patchwright")))
    async with GitHubForge(access, **urls, pace=Pace(between_writes=0, first_pause=0.01)) as forge:
        yield forge


def issue(body: str, *comments: str) -> Issue:
    author = User(id=7, login="stranger")
    said = tuple(Comment(author=author, body=text, trusted=False) for text in comments)
    return Issue(
        number=7, title="t", body=body, author=author, trusted=False, open=True, url="", comments=said
    )


# --- which addresses are asked for --------------------------------------------------------------------------


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
def test_an_attachment_is_known_by_its_address(url: str) -> None:
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
def test_no_other_address_is_one(url: str) -> None:
    assert not is_attachment(url, HUB)


def test_another_forge_has_only_its_own(world: World) -> None:
    assert is_attachment(f"{world.server_url}/user-attachments/assets/{ID}", world.server_url)
    assert not is_attachment(f"{HUB}/user-attachments/assets/{ID}", world.server_url)
    assert not is_attachment("https://user-images.githubusercontent.com/1/a.png", world.server_url)


@pytest.mark.parametrize(
    ("url", "may"),
    [
        (f"https://github-production-user-asset-6210df.s3.amazonaws.com/1/{ID}.png?X-Amz-Signature=0", True),
        ("https://objects.githubusercontent.com/a", True),
        ("https://evil.s3.amazonaws.com/a", False),
        ("https://github-production-user-asset-6210df.s3.amazonaws.com.evil.example/a", False),
        ("http://169.254.169.254/", False),
    ],
)
def test_it_may_lead_to_the_forges_storage_and_nowhere_else(url: str, may: bool) -> None:
    assert may_lead_to(url, HUB) == may


async def test_a_file_is_fetched_in_our_name(world: World, forge: GitHubForge) -> None:
    url = world.attachment("assets/1", png())
    assert await forge.attachment(REPO, url) == png()
    assert world.asked_for == [("/user-attachments/assets/1", f"Bearer {world.tokens[0]}")]


async def test_what_is_no_attachment_is_not_even_asked_for(world: World, forge: GitHubForge) -> None:
    assert await forge.attachment(REPO, f"{world.server_url}/acme/sample.git/info/refs") is None
    assert world.asked_for == []


async def test_an_address_that_leads_elsewhere_is_not_followed(world: World, forge: GitHubForge) -> None:
    async with World() as elsewhere:
        target = elsewhere.attachment("assets/2", png())
        for location in (target, "http://127.0.0.1:1/x", "//evil.example/x", "http://[", ""):
            url = world.attachment("assets/1", status=302, headers={"location": location})
            with pytest.raises(ForgeError):
                await forge.attachment(REPO, url)
        assert elsewhere.asked_for == []


async def test_one_that_leads_to_another_of_the_forge_is(world: World, forge: GitHubForge) -> None:
    target = world.attachment("files/3/a.png", png())
    url = world.attachment("assets/1", status=302, headers={"location": target})
    assert await forge.attachment(REPO, url) == png()


async def test_what_is_too_large_gone_or_in_circles_is_an_error_in_bounded_time(
    world: World, forge: GitHubForge
) -> None:
    with pytest.raises(ForgeError, match="larger than 3 MB"):
        await forge.attachment(REPO, world.attachment("assets/1", b"x" * (MAX_ATTACHMENT + 1)))
    with pytest.raises(NotFound):
        await forge.attachment(REPO, world.attachment("assets/2", status=404))
    circle = world.attachment("assets/3")
    world.attachment("assets/3", status=302, headers={"location": circle})
    with pytest.raises(ForgeError, match="on and on"):
        await forge.attachment(REPO, circle)


# --- what the agent gets ------------------------------------------------------------------------------------


async def test_pictures_and_files_of_a_thread_are_taken_by_what_they_are(
    world: World, forge: GitHubForge
) -> None:
    picture = world.attachment("assets/1", png())
    report = world.attachment("files/2/my%20report.pdf", b"%PDF-1.7 ...")
    log = world.attachment("files/3/trace.log", b"Traceback\n")
    program = world.attachment("files/4/tool.png", b"\x7fELF\xff\0")
    body = f'![shot]({picture})\n<img width="9" src="{picture}">\n[my report]({report}), see {log}.'
    got = await attachments(issue(body, f"And {program}", "https://evil.example/x.png"), REPO, forge)
    assert [(file.name, file.media) for file in got.files] == [
        ("1-1.png", "image/png"),
        ("2-my_report.pdf", "application/pdf"),
        ("3-trace.log", "text/plain"),
    ]
    assert [shown.data for shown in got.pictures] == [png()]
    assert got.problems == (f"{program}: neither a picture nor a PDF nor text.",)


async def test_what_a_reader_of_the_page_does_not_see_is_not_fetched(
    world: World, forge: GitHubForge
) -> None:
    got = await attachments(issue(f"<!-- {world.attachment('assets/1', png())} -->"), REPO, forge)
    assert (got, world.asked_for) == (Attached(), [])


async def test_of_very_many_files_the_first_ones_are_taken(world: World, forge: GitHubForge) -> None:
    urls = [world.attachment(f"assets/{n}", png()) for n in range(50)]
    got = await attachments(issue("\n".join(urls)), REPO, forge)
    assert (len(got.files), len(got.pictures)) == (MOST, MOST_SHOWN)
    assert len(world.asked_for) < 3 * MOST


async def test_a_file_that_is_gone_is_told_and_the_rest_goes_on(world: World, forge: GitHubForge) -> None:
    gone, there = world.attachment("assets/1", status=410), world.attachment("assets/2", png())
    got = await attachments(issue(f"{gone} {there}"), REPO, forge)
    assert [file.name for file in got.files] == ["2-2.png"]
    assert got.problems == (f"{gone}: the forge answered 410.",)


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
def test_a_picture_is_shown_only_when_a_provider_can_read_it(media: str, data: bytes, shown: bool) -> None:
    assert (Attachment(name="x", media=media, data=data).picture is not None) == shown
