"""Secrets: hidden in every spelling, and nothing else touched."""

import base64
import json
import logging
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolver.secrets import HIDDEN, Masked, MaskingFilter, Secrets
from runtime.actions import ReadBytes, RunShell, SandboxAction
from runtime.observations import Content, Edited, Executed, Failed, Observation, Ran, Viewed

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
