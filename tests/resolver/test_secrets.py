"""Secrets: hidden in every spelling, and nothing else touched."""

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

from resolver.secrets import HIDDEN, Masked, MaskingFilter, Secrets
from runtime.actions import ReadBytes, RunShell, SandboxAction, SendInput
from runtime.local import LocalSandboxes
from runtime.observations import Content, Edited, Executed, Failed, Observation, Ran, Viewed
from runtime.text import clip

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
def test_a_secret_is_hidden_however_it_is_spelled(secrets: Secrets, spelling: str) -> None:
    assert secrets.mask(f"a {spelling} b") == f"a {HIDDEN} b"
    assert secrets.mask(f"a {spelling} b".encode()) == f"a {HIDDEN} b".encode()


@given(before=st.binary(max_size=10), after=st.binary(max_size=10), url=st.booleans())
def test_base64_of_a_text_around_a_secret_does_not_give_it_away(
    before: bytes, after: bytes, url: bool
) -> None:
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    masked = Secrets([TOKEN]).mask(encode(before + TOKEN.encode() + after).decode())
    assert HIDDEN in masked
    assert len(masked) - len(HIDDEN) <= len(encode(before + after)) + 4


def test_what_is_no_secret_stays_as_it_is(secrets: Secrets) -> None:
    for text in ("short", "-----BEGIN PRIVATE KEY-----", "ghs_Ab", "", "a\nb"):
        assert secrets.mask(text) == text
    assert Secrets().mask("anything") == "anything"


def test_a_secret_that_is_added_later_is_hidden_from_then_on() -> None:
    secrets = Secrets()
    assert secrets.mask(TOKEN) == TOKEN
    secrets.add(TOKEN)
    assert secrets.mask(TOKEN) == HIDDEN


class Leaking:
    root = "/workspace"
    scratch = "/tmp/scratch"

    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    async def act(self, action: SandboxAction) -> Observation:
        return self._observation


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (
            Ran(output=TOKEN, exit_code=0, cwd=f"/{TOKEN}", seconds=1, note=TOKEN),
            Ran(output=HIDDEN, exit_code=0, cwd=f"/{HIDDEN}", seconds=1, note=HIDDEN),
        ),
        (Viewed(text=f"1 {TOKEN}"), Viewed(text=f"1 {HIDDEN}")),
        (Edited(path="a", diff=f"+{TOKEN}"), Edited(path="a", diff=f"+{HIDDEN}")),
        (Failed(reason="io", message=TOKEN), Failed(reason="io", message=HIDDEN)),
        (
            Executed(exit_code=0, stdout=TOKEN.encode(), stderr=b"\xff", seconds=1),
            Executed(exit_code=0, stdout=HIDDEN.encode(), stderr=b"\xff", seconds=1),
        ),
        (Content(content=TOKEN.encode(), size=9), Content(content=TOKEN.encode(), size=9)),
    ],
)
async def test_a_masked_sandbox_hides_secrets_in_its_words(
    secrets: Secrets, said: Observation, heard: Observation
) -> None:
    sandbox = Masked(Leaking(said), secrets)
    action = ReadBytes(path="a") if isinstance(said, Content) else RunShell(command="env")
    assert await sandbox.act(action) == heard
    assert (sandbox.root, sandbox.scratch) == ("/workspace", "/tmp/scratch")


def test_log_records_show_no_secret(secrets: Secrets, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test_secrets")
    masking = MaskingFilter(secrets)
    logger.addFilter(masking)
    try:
        raise ValueError(f"refused {TOKEN}")
    except ValueError:
        logger.exception("push of %s", TOKEN, extra={"url": f"https://x:{TOKEN}@forge"})
    logger.removeFilter(masking)
    (record,) = caplog.records
    assert record.getMessage() == f"push of {HIDDEN}"
    assert record.__dict__["url"] == f"https://x:{HIDDEN}@forge"
    assert TOKEN not in logging.Formatter().format(record)


@pytest.mark.parametrize("kept", [6, 10, 19])
def test_what_a_clipped_line_has_left_of_a_secret_is_hidden_too(kept: int) -> None:
    value = "a-token-of-20-signs!"
    secrets = Secrets([value])
    assert secrets.mask(f"$ echo {value[:kept]}… and more… end") == f"$ echo {HIDDEN}… and more… end"
    assert secrets.mask(f"$ echo {value[:3]}…") == f"$ echo {value[:3]}…"
    assert secrets.mask(f"$ echo {value[:kept]} is not clipped") == f"$ echo {value[:kept]} is not clipped"


@pytest.mark.parametrize("spelled", [TOKEN, base64.b64encode(TOKEN.encode()).decode(), TOKEN.encode().hex()])
@pytest.mark.parametrize("padding", range(0, 60, 7))
def test_where_the_middle_of_an_output_was_left_out_no_half_of_a_secret_stays(
    spelled: str, padding: int
) -> None:
    """As an output is clipped in the sandbox: it is masked after that."""
    secrets = Secrets([TOKEN])
    for clipped in (clip("a" * padding + spelled * 5_000), clip(f"{'a' * padding}{spelled}\n" * 5_000)):
        masked = secrets.mask(clipped)
        assert " left out: " in masked
        rest = masked.replace(HIDDEN, "")
        assert not [at for at in range(len(spelled) - 6) if spelled[at : at + 7] in rest]


def test_a_line_that_is_shown_in_part_ends_in_no_half_of_a_secret() -> None:
    shown = f"     1\t{TOKEN[:15]}\n[the first 30,000 of 60,028 characters of this line; see more of it with sed]\n"
    assert Secrets([TOKEN]).mask(shown) == shown.replace(TOKEN[:15], HIDDEN)


async def test_a_secret_that_comes_in_two_outputs_of_a_command_is_in_neither(short_tmp: Path) -> None:
    async with LocalSandboxes(short_tmp, os.environ).open("halves") as local:
        sandbox = Masked(local, Secrets([TOKEN]))
        command = f"printf '%s' 'a {TOKEN[:12]}'; read; printf '%s' '{TOKEN[12:]} b {TOKEN[12:]}'"
        first = await sandbox.act(RunShell(command=command, interactive=True, timeout=1))
        second = await sandbox.act(SendInput(text="", key="ctrl-d", timeout=5))
        third = await sandbox.act(RunShell(command=f"printf '%s' '{TOKEN[12:]} {TOKEN[:12]}'"))
    assert isinstance(first, Ran) and first.output == f"a {HIDDEN}"
    assert isinstance(second, Ran) and second.output == f"{HIDDEN} b {TOKEN[12:]}"
    assert isinstance(third, Ran) and third.output == f"{TOKEN[12:]} {TOKEN[:12]}", (
        "this command is one output"
    )


def test_half_of_a_secret_is_hidden_whole_where_half_of_a_longer_one_stands_in_it() -> None:
    secrets = Secrets(["key-of-the-model!", "the-mo-and-much-more", "much-more-and-of-the"])
    assert secrets.mask_part("a key-of-the-mo", goes_on=True, begun=False) == f"a {HIDDEN}"
    assert secrets.mask_part("of-the-model! b", goes_on=False, begun=True) == f"{HIDDEN} b"


async def test_the_second_part_of_a_secret_is_hidden_by_the_process_that_takes_over(short_tmp: Path) -> None:
    async with LocalSandboxes(short_tmp, os.environ).open("halves") as local:
        command = f"printf '%s' 'a {TOKEN[:12]}'; read; printf '%s' '{TOKEN[12:]} b'"
        await Masked(local, Secrets([TOKEN])).act(RunShell(command=command, interactive=True, timeout=1))
        heir = Masked(local, Secrets([TOKEN]), unfinished=True)
        second = await heir.act(SendInput(text="", key="ctrl-d", timeout=5))
    assert isinstance(second, Ran) and second.output == f"{HIDDEN} b"


def test_a_flood_of_cuts_costs_no_time() -> None:
    flood = "[... lines 1-2 of 3 left out: 4 characters ...]\n" * 20_000 + "…" * 200_000
    secrets = Secrets([f"{TOKEN}{n}" for n in range(20)])
    began = time.monotonic()
    assert secrets.mask(flood) == flood
    assert time.monotonic() - began < 2
