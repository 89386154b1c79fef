"""Masks secrets in texts, sandbox output and log records."""

import base64
import json
import logging
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar, overload
from urllib.parse import quote, quote_plus

from patchwright.runtime.actions import SandboxAction
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import (
    ActionFailure,
    CellResult,
    EditResult,
    ExecuteResult,
    Observation,
    PageSnapshot,
    ProcessOutput,
    ShellResult,
    TextResult,
)
from patchwright.runtime.sandbox import Sandbox, WrapperSandbox

SECRET_PLACEHOLDER = "<secret-hidden>"
_CLIP_MARKER = re.compile("…")
"""Matches the mark at the end of a line that `resolver/activity/summary.py` has truncated."""
_OMISSION_MARKER = re.compile(
    r"\n?\[\.\.\. [^\n]{1,99} left out: [\d,]{1,20} characters \.\.\.\]\n"
    r"|\n?\[the first [\d,]{1,20} of [\d,]{1,20} characters\b"
)
"""Matches the notes that mark omitted text. Such a note replaces the middle of an output
(`runtime/output_text.py`) or the end of a line or document.
"""
# ANSI sequences, control characters other than line breaks and tabs, and every character that is not shown:
# the categories Cf and Cs, and Default_Ignorable_Code_Point. Source: Unicode 15, DerivedCoreProperties.txt.
_INVISIBLE = re.compile(
    r"(?:\x1b\[[0-?]*+[ -/]*+[@-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160"
    r"\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff"
    r"\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff])++"
)
# Maximum number of cuts that are examined in one text. Texts that Patchwright truncates have fewer cuts. An
# attacker could write a text with so many cuts that examining all of them would take too long.
MAX_CUTS = 2_000
MIN_SECRET_LENGTH = 6
"""Minimum characters of a masked value. Masking shorter values would hide too much unrelated text."""
MIN_SECRET_LINE_LENGTH = 16
"""Minimum length of a line that is masked on its own, in characters. Each line of a multi-line secret, such as
a PEM key, is masked on its own.
"""

Value = TypeVar("Value", bound=FrozenModel)


class Secrets:
    """The secrets of this process, in every encoding in which they are likely to appear."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._spellings: tuple[str, ...] = ()
        self._encoded: tuple[bytes, ...] = ()
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        """Adds a value, for example a new token, that is masked from now on."""
        if len(value.strip()) < MIN_SECRET_LENGTH:
            return
        # Longest first, because one encoding may be a prefix of another.
        spellings = {*self._spellings, *_encoded_forms(value.strip())}
        self._spellings = tuple(sorted(spellings, key=lambda spelling: (-len(spelling), spelling)))
        self._encoded = tuple(spelling.encode() for spelling in self._spellings)

    @overload
    def mask(self, text: str) -> str: ...
    @overload
    def mask(self, text: bytes) -> bytes: ...

    def mask(self, text: str | bytes) -> str | bytes:
        """Returns the text with each secret replaced by `<secret-hidden>`. If a string was truncated within a
        secret, the remaining part of the secret is replaced, too.

        A secret is also found if invisible characters were inserted into it. In bytes, such a changed secret
        is found only if the bytes are UTF-8 text.
        """
        if isinstance(text, bytes):
            for encoded in self._encoded:
                text = text.replace(encoded, SECRET_PLACEHOLDER.encode())
            return self._mask_interrupted_bytes(text)
        for spelling in self._spellings:
            text = text.replace(spelling, SECRET_PLACEHOLDER)
        text = self._mask_interrupted(text)
        for cut in (_CLIP_MARKER, _OMISSION_MARKER):
            text = self._mask_partial(text, cut)
        return text

    def _mask_interrupted_bytes(self, content: bytes) -> bytes:
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return content
        masked = self._mask_interrupted(text)
        return content if masked is text else masked.encode()

    def _mask_interrupted(self, text: str) -> str:
        """Masks secrets into which invisible characters were inserted. Invisible characters elsewhere stay,
        such as those that neutralize a mention.
        """
        visible = _INVISIBLE.sub("", text)
        if len(visible) == len(text):
            return text
        spans = list(self._find_secrets(visible))
        if not spans:
            return text
        positions = _visible_positions(text)
        parts, last = [], 0
        for start, end in _merge_spans(spans):
            parts += [text[last : positions[start]], SECRET_PLACEHOLDER]
            last = positions[end - 1] + 1
        return "".join((*parts, text[last:]))

    def _find_secrets(self, text: str) -> Iterator[tuple[int, int]]:
        for spelling in self._spellings:
            start = text.find(spelling)
            while start != -1:
                yield start, start + len(spelling)
                start = text.find(spelling, start + len(spelling))

    def mask_part(self, text: str, *, continues: bool, is_continuation: bool) -> str:
        """Masks the secrets in one part of a longer output. `continues` is True if another part follows.
        `is_continuation` is True if another part came before.
        """
        text = self.mask(text)
        text = self._mask_prefix_at_end(text) if continues else text
        return self._mask_suffix_at_start(text) if is_continuation else text

    def _mask_partial(self, text: str, cut: re.Pattern[str]) -> str:
        """Masks incomplete secrets next to a mark such as `…`, which says that text was left out there.

        The rest of the secret may have been in the text that was left out. `cut` matches such marks.
        """
        cuts = [match.span() for match in islice(cut.finditer(text), MAX_CUTS + 1)]
        if not cuts or len(cuts) > MAX_CUTS:
            return text
        parts: list[str] = []
        last = 0
        for start, end in cuts:
            part = self._mask_prefix_at_end(text[last:start])
            parts += [self._mask_suffix_at_start(part) if last else part, text[start:end]]
            last = end
        return "".join((*parts, self._mask_suffix_at_start(text[last:])))

    def _mask_prefix_at_end(self, text: str) -> str:
        """If the text ends with the first part of a secret, replaces this part with the placeholder."""
        visible = _INVISIBLE.sub("", text)
        length = max((_prefix_length_at_end(spelling, visible) for spelling in self._spellings), default=0)
        return text[: _visible_positions(text)[-length]] + SECRET_PLACEHOLDER if length else text

    def _mask_suffix_at_start(self, text: str) -> str:
        """If the text starts with the last part of a secret, replaces this part with the placeholder."""
        visible = _INVISIBLE.sub("", text)
        length = max((_suffix_length_at_start(spelling, visible) for spelling in self._spellings), default=0)
        return SECRET_PLACEHOLDER + text[_visible_positions(text)[length - 1] + 1 :] if length else text


def _visible_positions(text: str) -> list[int]:
    """Returns the index of each visible character."""
    positions: list[int] = []
    last = 0
    for start, end in (*(match.span() for match in _INVISIBLE.finditer(text)), (len(text), len(text))):
        positions.extend(range(last, start))
        last = end
    return positions


def _merge_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the spans in order, with overlapping ones joined."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _prefix_length_at_end(spelling: str, text: str) -> int:
    """Returns how many characters at the end of the text are the first characters of a secret.

    `spelling` is the secret in one encoding. Fewer than MIN_SECRET_LENGTH characters count as 0.
    """
    if spelling[:MIN_SECRET_LENGTH] not in text[-len(spelling) :]:
        return 0
    lengths = range(min(len(spelling), len(text)), MIN_SECRET_LENGTH - 1, -1)
    return next((n for n in lengths if text.endswith(spelling[:n])), 0)


def _suffix_length_at_start(spelling: str, text: str) -> int:
    """Returns how many characters at the start of the text are the last characters of a secret.

    `spelling` is the secret in one encoding. Fewer than MIN_SECRET_LENGTH characters count as 0.
    """
    if spelling[-MIN_SECRET_LENGTH:] not in text[: len(spelling)]:
        return 0
    lengths = range(min(len(spelling), len(text)), MIN_SECRET_LENGTH - 1, -1)
    return next((n for n in lengths if text.startswith(spelling[-n:])), 0)


def _encoded_forms(value: str) -> Iterator[str]:
    yield value
    yield value.lower()  # The value may appear in lower case in a host name.
    yield value[::-1]
    yield value.encode().hex()
    yield value.encode().hex().upper()
    yield quote(value, safe="")
    yield quote_plus(value)
    yield json.dumps(value)[1:-1]
    yield from _base64_forms(value.encode())
    lines = value.splitlines()
    if len(lines) > 1:
        for line in lines:
            if len(line) >= MIN_SECRET_LINE_LENGTH and not line.startswith("-----"):
                yield line


def _base64_forms(value: bytes) -> Iterator[str]:
    """Yields the forms that the value can have inside a longer base64 text. The form depends on the value's
    offset modulo 3, and on the base64 alphabet.
    """
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + value).decode()
        # Three bytes become four characters, so the characters at both ends also depend on adjacent bytes.
        start = (offset * 4 + 2) // 3
        end = (offset + len(value)) * 8 // 6
        if end - start >= MIN_SECRET_LENGTH:
            yield encoded[start:end]
            yield encoded[start:end].translate(str.maketrans("+/", "-_"))


class MaskingSandbox(WrapperSandbox):
    """A sandbox whose output is masked before it is read or logged. File contents are not masked, because
    only Patchwright's own code reads them and needs their exact number of bytes.
    """

    def __init__(self, sandbox: Sandbox, secrets: Secrets, *, has_running_command: bool = False) -> None:
        """`has_running_command` is True if an earlier command may still be running. Part of the output of
        that command may already have been read.
        """
        super().__init__(sandbox)
        self._secrets = secrets
        # True if the last command was still running when its output was read.
        self._has_running_command = has_running_command

    async def act(self, action: SandboxAction) -> Observation:
        observation = await self._sandbox.act(action)
        if isinstance(observation, ShellResult):
            is_continuation, self._has_running_command = (
                self._has_running_command,
                observation.exit_code is None,
            )
            output = self._secrets.mask_part(
                observation.output, continues=self._has_running_command, is_continuation=is_continuation
            )
            observation = observation.model_copy(update={"output": output})
        match observation:
            case (
                ShellResult()
                | CellResult()
                | TextResult()
                | EditResult()
                | ActionFailure()
                | ExecuteResult()
                | ProcessOutput()
            ):
                return self._mask_observation(observation)
            case PageSnapshot(tabs=tabs, notes=notes):
                masked = {
                    "tabs": tuple(self._mask_observation(tab) for tab in tabs),
                    "notes": tuple(map(self._secrets.mask, notes)),
                }
                return self._mask_observation(observation.model_copy(update=masked))
            case _:
                return observation

    def _mask_observation(self, observation: Value) -> Value:
        return mask_secrets(observation, self._secrets)


def mask_secrets(value: Value, secrets: Secrets) -> Value:
    """Returns the value with all secrets in its strings and bytes masked."""
    texts = {name: text for name, text in dict(value).items() if isinstance(text, str | bytes)}
    masked = {name: secrets.mask(text) for name, text in texts.items() if name not in ("kind", "reason")}
    return value if masked.items() <= texts.items() else value.model_copy(update=masked)


class MaskingFilter(logging.Filter):
    """Masks secrets in log records: message, arguments, extra fields and traceback.

    Add this filter to handlers, not to loggers: the filter of a logger does not process the records of child
    loggers.
    """

    _STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({})))

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = self._secrets.mask(record.getMessage())
        record.args = None
        if record.exc_info:
            text = record.exc_text or logging.Formatter().formatException(record.exc_info)
            record.exc_text = self._secrets.mask(text)
        for name, value in tuple(vars(record).items()):
            if name not in self._STANDARD_FIELDS and not isinstance(value, int | float | None):
                setattr(record, name, self._secrets.mask(str(value)))
        return True
