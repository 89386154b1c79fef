"""Secrets are masked in every encoding, and nothing else is."""

import base64
import json
import logging
import os
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchwright.resolver.secrets import MAX_CUTS, SECRET_PLACEHOLDER, MaskingFilter, MaskingSandbox, Secrets
from patchwright.resolver.text.untrusted import is_visible_character
from patchwright.runtime.actions import ReadBytes, RunShell, SandboxAction, SendInput
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import (
    ActionFailure,
    EditResult,
    ExecuteResult,
    FileContent,
    Observation,
    PageSnapshot,
    ShellResult,
    Tab,
    TextResult,
)
from patchwright.runtime.output_text import clip

TOKEN = "ghs_Ab/cd+12 34&56=789"
PEM = """-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEF
AASCBKcwggSjAgEAAoIBAQC7VJTU
-----END PRIVATE KEY-----
"""


@pytest.fixture
def secrets() -> Secrets:
    return Secrets([TOKEN, PEM, "short", ""])


@pytest.mark.parametrize(
    "spelling",
    [
        TOKEN,
        TOKEN.lower(),
        TOKEN[::-1],
        TOKEN.encode().hex(),
        TOKEN.encode().hex().upper(),
        quote(TOKEN, safe=""),
        PEM.strip(),
        json.dumps(PEM.strip())[1:-1],
        "MIIEvQIBADANBgkqhkiG9w0BAQEF",
    ],
)
def test_a_secret_is_masked_in_every_encoding(secrets: Secrets, spelling: str) -> None:
    assert secrets.mask(f"a {spelling} b") == f"a {SECRET_PLACEHOLDER} b"
    assert secrets.mask(f"a {spelling} b".encode()) == f"a {SECRET_PLACEHOLDER} b".encode()


@given(before=st.binary(max_size=10), after=st.binary(max_size=10), url=st.booleans())
def test_base64_of_a_text_around_a_secret_does_not_give_it_away(
    before: bytes, after: bytes, url: bool
) -> None:
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    masked = Secrets([TOKEN]).mask(encode(before + TOKEN.encode() + after).decode())
    # Each character has 6 bits. Those with bits of the text around the secret stay.
    first, end = -(-8 * len(before) // 6), 8 * (len(before) + len(TOKEN.encode())) // 6
    encoded = encode(before + TOKEN.encode() + after).decode()
    assert masked == encoded[:first] + SECRET_PLACEHOLDER + encoded[end:]


def test_other_text_is_not_masked(secrets: Secrets) -> None:
    for text in ("short", "-----BEGIN PRIVATE KEY-----", "ghs_Ab", "", "a\nb"):
        assert secrets.mask(text) == text
    for text in ("anything", "any… thing", "any\u200bthing"):
        assert Secrets().mask(text) == text
        assert Secrets().mask_part(text, continues=True, is_continuation=True) == text
        assert Secrets().mask(text.encode()) == text.encode()


def test_a_secret_added_later_is_masked_from_then_on() -> None:
    secrets = Secrets()
    assert secrets.mask(TOKEN) == TOKEN
    secrets.add(TOKEN)
    assert secrets.mask(TOKEN) == SECRET_PLACEHOLDER


def test_the_shortest_values_and_lines_that_are_masked() -> None:
    secrets = Secrets(["sixsix", "fives", f"{'a' * 15}\n{'b' * 16}"])
    assert secrets.mask("sixsix fives") == f"{SECRET_PLACEHOLDER} fives"
    assert secrets.mask(f"{'a' * 15} {'b' * 16}") == f"{'a' * 15} {SECRET_PLACEHOLDER}"


@pytest.mark.parametrize("hidden", ["", "\u200b"])
def test_overlapping_secrets_leave_nothing_between_them(hidden: str) -> None:
    secrets = Secrets(["key-12", "key-12-and-more", "and-more-of-it", "of-it!"])

    def split(text: str) -> str:
        return hidden.join(text)

    for text, expected in (
        ("key-12-and-more", "{}"),
        ("key-12 a key-12 b key-12", "{} a {} b {}"),
        ("key-12 a of-it! b key-12-and-more.", "{} a {} b {}."),
        ("key-12of-it!", "{}{}"),
    ):
        words = (split(word) if len(word) > 3 else word for word in text.split(" "))
        masked = secrets.mask(" ".join(words)).replace(hidden, "")
        assert masked == expected.format(*[SECRET_PLACEHOLDER] * 3)
    if hidden:
        overlapping = f"of-it! {split('key-12-and-more-of-it!')} b"
        assert secrets.mask(overlapping) == f"{SECRET_PLACEHOLDER} {SECRET_PLACEHOLDER} b"


class Leaking:
    root = "/workspace"
    scratch = "/tmp/scratch"

    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    async def act(self, action: SandboxAction) -> Observation:
        return self._observation


@pytest.mark.parametrize(
    ("text", "received"),
    [
        (
            ShellResult(output=TOKEN, exit_code=0, cwd=f"/{TOKEN}", seconds=1, note=TOKEN),
            ShellResult(
                output=SECRET_PLACEHOLDER,
                exit_code=0,
                cwd=f"/{SECRET_PLACEHOLDER}",
                seconds=1,
                note=SECRET_PLACEHOLDER,
            ),
        ),
        (TextResult(text=f"1 {TOKEN}"), TextResult(text=f"1 {SECRET_PLACEHOLDER}")),
        (EditResult(path="a", diff=f"+{TOKEN}"), EditResult(path="a", diff=f"+{SECRET_PLACEHOLDER}")),
        (ActionFailure(reason="io", message=TOKEN), ActionFailure(reason="io", message=SECRET_PLACEHOLDER)),
        (
            ExecuteResult(exit_code=0, stdout=TOKEN.encode(), stderr=b"\xff", seconds=1),
            ExecuteResult(exit_code=0, stdout=SECRET_PLACEHOLDER.encode(), stderr=b"\xff", seconds=1),
        ),
        (FileContent(content=TOKEN.encode(), size=9), FileContent(content=TOKEN.encode(), size=9)),
        (
            PageSnapshot(
                url=TOKEN,
                title=TOKEN,
                tree=f"[1] '{TOKEN}'",
                notes=("a", TOKEN),
                error=TOKEN,
                tabs=(Tab(url=f"http://x/?{TOKEN}", title=TOKEN, active=True),),
            ),
            PageSnapshot(
                url=SECRET_PLACEHOLDER,
                title=SECRET_PLACEHOLDER,
                tree=f"[1] '{SECRET_PLACEHOLDER}'",
                notes=("a", SECRET_PLACEHOLDER),
                error=SECRET_PLACEHOLDER,
                tabs=(Tab(url=f"http://x/?{SECRET_PLACEHOLDER}", title=SECRET_PLACEHOLDER, active=True),),
            ),
        ),
        (
            # The end of a secret is hidden only if its start may be in an earlier output.
            ShellResult(output=f"{TOKEN[12:]} b", exit_code=0, cwd="/", seconds=1),
            ShellResult(output=f"{TOKEN[12:]} b", exit_code=0, cwd="/", seconds=1),
        ),
    ],
)
async def test_a_masking_sandbox_masks_its_output(
    secrets: Secrets, text: Observation, received: Observation
) -> None:
    sandbox = MaskingSandbox(Leaking(text), secrets)
    action = ReadBytes(path="a") if isinstance(text, FileContent) else RunShell(command="env")
    assert await sandbox.act(action) == received
    assert (sandbox.root, sandbox.scratch) == ("/workspace", "/tmp/scratch")


async def test_a_secret_that_is_also_a_reason_or_a_kind_leaves_the_observation_valid() -> None:
    failure = ActionFailure(reason="not_found", message="not_found: action_failure")
    masked = await MaskingSandbox(Leaking(failure), Secrets(["not_found", "action_failure"])).act(
        RunShell(command="env")
    )
    assert masked == ActionFailure(reason="not_found", message=f"{SECRET_PLACEHOLDER}: {SECRET_PLACEHOLDER}")


def test_log_records_show_no_secret(secrets: Secrets, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test_secrets")
    masking = MaskingFilter(secrets)
    logger.addFilter(masking)
    try:
        raise ValueError(f"refused {TOKEN}")
    except ValueError:
        logger.exception("push of %s", TOKEN, extra={"url": f"https://x:{TOKEN}@forge", "attempt": 3})
    logger.removeFilter(masking)
    (record,) = caplog.records
    assert record.getMessage() == f"push of {SECRET_PLACEHOLDER}"
    assert record.__dict__["url"] == f"https://x:{SECRET_PLACEHOLDER}@forge"
    assert record.__dict__["attempt"] == 3 and record.levelname == "ERROR"
    assert isinstance(record.exc_info, tuple), "other handlers need the exception"
    assert TOKEN not in logging.Formatter().format(record)


@pytest.mark.parametrize("kept", [6, 10, 19])
def test_the_rest_of_a_secret_in_a_truncated_line_is_masked(kept: int) -> None:
    value = "a-token-of-20-signs!"
    secrets = Secrets([value])
    assert (
        secrets.mask(f"$ echo {value[:kept]}… and more… end") == f"$ echo {SECRET_PLACEHOLDER}… and more… end"
    )
    assert secrets.mask(f"$ echo {value[:3]}…") == f"$ echo {value[:3]}…"
    assert secrets.mask(f"$ echo {value[:kept]} is not clipped") == f"$ echo {value[:kept]} is not clipped"


@pytest.mark.parametrize("spelled", [TOKEN, base64.b64encode(TOKEN.encode()).decode(), TOKEN.encode().hex()])
@pytest.mark.parametrize("padding", range(0, 60, 7))
def test_parts_of_a_secret_around_an_omission_are_masked(spelled: str, padding: int) -> None:
    """Masking happens after the sandbox has truncated an output."""
    secrets = Secrets([TOKEN])
    for clipped in (clip("a" * padding + spelled * 5_000), clip(f"{'a' * padding}{spelled}\n" * 5_000)):
        masked = secrets.mask(clipped)
        assert " left out: " in masked
        rest = masked.replace(SECRET_PLACEHOLDER, "")
        assert not [at for at in range(len(spelled) - 6) if spelled[at : at + 7] in rest]


def test_a_partial_line_ends_in_no_part_of_a_secret() -> None:
    shown = f"1\t{TOKEN[:15]}\n[the first 30,000 of 60,028 characters of this line; to see more, use sed]\n"
    assert Secrets([TOKEN]).mask(shown) == shown.replace(TOKEN[:15], SECRET_PLACEHOLDER)


def test_the_end_of_a_secret_between_two_cuts_is_masked() -> None:
    secrets = Secrets(["a-token-of-20-signs!"])
    assert secrets.mask("… 20-signs! a…-20-signs! b…") == f"… 20-signs! a…{SECRET_PLACEHOLDER} b…"
    cuts = "…" * (MAX_CUTS - 1)
    assert secrets.mask(f"{cuts}a-token… b") == f"{cuts}{SECRET_PLACEHOLDER}… b"


def test_each_part_of_a_secret_with_at_least_six_characters_is_masked() -> None:
    value = "a-token-of-20-signs!"
    secrets = Secrets([value])
    for kept in range(6, 20):
        for part in (value[:kept], value[-kept:]):
            text = f"x {part}" if part == value[:kept] else f"{part} x"
            masked = secrets.mask_part(text, continues=True, is_continuation=True)
            assert masked == text.replace(part, SECRET_PLACEHOLDER)
    for text in ("a-token b", "a-token a-tok", "b signs! ns!", "igns! 20-signs! x"):
        assert secrets.mask_part(text, continues=True, is_continuation=True) == text


async def test_a_secret_split_over_two_outputs_is_masked_in_both(short_tmp: Path) -> None:
    async with LocalSandboxes(short_tmp, os.environ).open("halves") as local:
        sandbox = MaskingSandbox(local, Secrets([TOKEN]))
        command = f"printf '%s' 'a {TOKEN[:12]}'; read; printf '%s' '{TOKEN[12:]} b {TOKEN[12:]}'"
        first = await sandbox.act(RunShell(command=command, interactive=True, timeout=1))
        second = await sandbox.act(SendInput(text="", key="ctrl-d", timeout=5))
        third = await sandbox.act(RunShell(command=f"printf '%s' '{TOKEN[12:]} {TOKEN[:12]}'"))
    assert isinstance(first, ShellResult) and first.output == f"a {SECRET_PLACEHOLDER}"
    assert isinstance(second, ShellResult) and second.output == f"{SECRET_PLACEHOLDER} b {TOKEN[12:]}"
    assert isinstance(third, ShellResult) and third.output == f"{TOKEN[12:]} {TOKEN[:12]}", (
        "this command is one output"
    )


def test_the_longest_matching_part_of_a_secret_is_masked() -> None:
    secrets = Secrets(["key-of-the-model!", "the-mo-and-much-more", "much-more-and-of-the"])
    assert (
        secrets.mask_part("a key-of-the-mo", continues=True, is_continuation=False)
        == f"a {SECRET_PLACEHOLDER}"
    )
    assert (
        secrets.mask_part("of-the-model! b", continues=False, is_continuation=True)
        == f"{SECRET_PLACEHOLDER} b"
    )


async def test_a_resumed_process_masks_the_second_part_of_a_secret(short_tmp: Path) -> None:
    async with LocalSandboxes(short_tmp, os.environ).open("halves") as local:
        command = f"printf '%s' 'a {TOKEN[:12]}'; read; printf '%s' '{TOKEN[12:]} b'"
        await MaskingSandbox(local, Secrets([TOKEN])).act(
            RunShell(command=command, interactive=True, timeout=1)
        )
        heir = MaskingSandbox(local, Secrets([TOKEN]), has_running_command=True)
        second = await heir.act(SendInput(text="", key="ctrl-d", timeout=5))
    assert isinstance(second, ShellResult) and second.output == f"{SECRET_PLACEHOLDER} b"


def test_many_omission_markers_are_masked_quickly() -> None:
    flood = "[... lines 1-2 of 3 left out: 4 characters ...]\n" * 20_000 + "…" * 200_000
    secrets = Secrets([f"{TOKEN}{n}" for n in range(20)])
    began = time.process_time()
    assert secrets.mask(flood) == flood
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "hidden", ["\u200b", "\u00ad", "\ufe0f", "\U000e0041", "\r", "\x00", "\x1b[0m", "\u202e\u2066"]
)
def test_invisible_characters_do_not_protect_a_secret(hidden: str) -> None:
    secrets = Secrets(["sk-canary-4711"])
    split = hidden.join("sk-canary-4711")
    assert secrets.mask(f"{hidden}a {split} b{hidden}") == f"{hidden}a {SECRET_PLACEHOLDER} b{hidden}"
    assert secrets.mask(f"a {split} b".encode()) == f"a {SECRET_PLACEHOLDER} b".encode()
    # Positive control: comparing characters alone does not find it.
    assert "sk-canary-4711" not in split


def test_invisible_characters_outside_a_secret_stay(secrets: Secrets) -> None:
    text = "@\u200bname, \x1b[1mbold\x1b[0m, 👩\u200d💻\r\n"
    assert secrets.mask(text) == text
    assert secrets.mask(text.encode()) == text.encode()
    assert secrets.mask(b"\xff\x00binary") == b"\xff\x00binary"


def test_a_secret_with_invisible_characters_at_the_end_of_a_part_is_masked() -> None:
    secrets = Secrets(["sk-canary-4711"])
    first, second = "x sk-\u200bcan\u200bary", "-47\u200b11 y\u200b"
    assert secrets.mask_part(first, continues=True, is_continuation=False) == f"x {SECRET_PLACEHOLDER}"
    assert secrets.mask_part("-cana\u200bry-4711 y\u200b", continues=False, is_continuation=True) == (
        f"{SECRET_PLACEHOLDER} y\u200b"
    )
    assert secrets.mask_part(second, continues=False, is_continuation=False) == second


@pytest.mark.slow
def test_every_character_that_is_not_shown_counts_as_invisible() -> None:
    secrets = Secrets(["sk-canary-4711"])
    for char in filter(lambda char: not is_visible_character(char), map(chr, range(0x110000))):
        if char not in "\n\t":
            assert secrets.mask(f"sk-can{char}ary-4711") == SECRET_PLACEHOLDER, hex(ord(char))
