"""Values that nobody outside may see, and the wrapper that hides them in what a sandbox says."""

import base64
import json
import logging
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar, overload
from urllib.parse import quote, quote_plus

from runtime.actions import SandboxAction
from runtime.frozen import Frozen
from runtime.observations import Edited, Executed, Failed, Heard, Observation, Page, Ran, RanPython, Viewed
from runtime.sandbox import Around, Sandbox

HIDDEN = "<secret-hidden>"
_CLIPPED = re.compile("…")
"""How a line ends that was clipped (`resolver/summary.py`)."""
_LEFT_OUT = re.compile(
    r"\n?\[\.\.\. [^\n]{1,99} left out: [\d,]{1,20} characters \.\.\.\]\n"
    r"|\n?\[the first [\d,]{1,20} of [\d,]{1,20} characters\b"
)
"""What stands in the place of the middle of an output (`runtime/text.py`), or of the rest of a line or document."""
MOST_CUTS = 2_000  # no text of ours has more of either; a stranger's flood of them costs no time
SHORTEST = 6
"""Characters; a shorter value stands in too much text by chance to be hidden everywhere."""
SHORTEST_LINE = 16
"""Characters of one line of a value of several lines (a PEM key) that is hidden by itself too."""

Value = TypeVar("Value", bound=Frozen)


class Secrets:
    """The secrets of this process, in every spelling in which they are likely to appear."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._spellings: tuple[str, ...] = ()
        self._encoded: tuple[bytes, ...] = ()
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        """Hide this value from now on: a token that was just minted, say."""
        if len(value.strip()) < SHORTEST:
            return
        # The longest first: a spelling may be the beginning of another.
        found = {*self._spellings, *_spellings(value.strip())}
        self._spellings = tuple(sorted(found, key=lambda spelling: (-len(spelling), spelling)))
        self._encoded = tuple(spelling.encode() for spelling in self._spellings)

    @overload
    def mask(self, text: str) -> str: ...
    @overload
    def mask(self, text: bytes) -> bytes: ...

    def mask(self, text: str | bytes) -> str | bytes:
        """The text with each secret replaced by `<secret-hidden>`."""
        if isinstance(text, bytes):
            for encoded in self._encoded:
                text = text.replace(encoded, HIDDEN.encode())
            return text
        for spelling in self._spellings:
            text = text.replace(spelling, HIDDEN)
        for cut in (_CLIPPED, _LEFT_OUT):
            text = self._without_halves(text, cut)
        return text

    def mask_part(self, text: str, *, goes_on: bool, begun: bool) -> str:
        """The masked text of an output that `goes_on` in another one, or was `begun` in the one before."""
        text = self.mask(text)
        text = self._before(text) if goes_on else text
        return self._after(text) if begun else text

    def _without_halves(self, text: str, cut: re.Pattern[str]) -> str:
        """The text with what a cut has left of a secret hidden too, on both sides of it."""
        cuts = [match.span() for match in islice(cut.finditer(text), MOST_CUTS + 1)]
        if not cuts or len(cuts) > MOST_CUTS:
            return text
        shown: list[str] = []
        last = 0
        for start, end in cuts:
            part = self._before(text[last:start])
            shown += [self._after(part) if last else part, text[start:end]]
            last = end
        return "".join((*shown, self._after(text[last:])))

    def _before(self, text: str) -> str:
        """The text without the first part of a secret at its end."""
        kept = max((_begun(spelling, text) for spelling in self._spellings), default=0)
        return text[:-kept] + HIDDEN if kept else text

    def _after(self, text: str) -> str:
        """The text without the last part of a secret at its beginning."""
        kept = max((_ended(spelling, text) for spelling in self._spellings), default=0)
        return HIDDEN + text[kept:] if kept else text


def _begun(spelling: str, text: str) -> int:
    """How many characters of its first part end the text; 0: too few to be hidden."""
    if spelling[:SHORTEST] not in text[-len(spelling) :]:
        return 0
    lengths = range(min(len(spelling), len(text)), SHORTEST - 1, -1)
    return next((n for n in lengths if text.endswith(spelling[:n])), 0)


def _ended(spelling: str, text: str) -> int:
    """How many characters of its last part begin the text; 0: too few to be hidden."""
    if spelling[-SHORTEST:] not in text[: len(spelling)]:
        return 0
    lengths = range(min(len(spelling), len(text)), SHORTEST - 1, -1)
    return next((n for n in lengths if text.startswith(spelling[-n:])), 0)


def _spellings(value: str) -> Iterator[str]:
    yield value
    yield value.lower()  # as a part of a host's name
    yield value[::-1]
    yield value.encode().hex()
    yield value.encode().hex().upper()
    yield quote(value, safe="")
    yield quote_plus(value)
    yield json.dumps(value)[1:-1]
    yield from _base64(value.encode())
    lines = value.splitlines()
    if len(lines) > 1:
        for line in lines:
            if len(line) >= SHORTEST_LINE and not line.startswith("-----"):
                yield line


def _base64(value: bytes) -> Iterator[str]:
    """What base64 makes of it, at each of the three offsets that it can have in a longer text."""
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + value).decode()
        # The characters at both ends also depend on the neighbours: three bytes are four characters.
        start = (offset * 4 + 2) // 3
        whole = (offset + len(value)) * 8 // 6
        if whole - start >= SHORTEST:
            yield encoded[start:whole]
            yield encoded[start:whole].translate(str.maketrans("+/", "-_"))


class Masked(Around):
    """A sandbox whose words are masked before anybody reads or records them.

    Bytes of files are passed as they are: they go to the program, in pieces whose sizes it counts.
    """

    def __init__(self, sandbox: Sandbox, secrets: Secrets, *, unfinished: bool = False) -> None:
        """`unfinished`: a command may still run in it, and somebody have read the first part of its output."""
        super().__init__(sandbox)
        self._secrets = secrets
        self._unfinished = unfinished  # whether the last command still ran when its output was read

    async def act(self, action: SandboxAction) -> Observation:
        observation = await self._sandbox.act(action)
        if isinstance(observation, Ran):
            begun, self._unfinished = self._unfinished, observation.exit_code is None
            output = self._secrets.mask_part(observation.output, goes_on=self._unfinished, begun=begun)
            observation = observation.model_copy(update={"output": output})
        match observation:
            case Ran() | RanPython() | Viewed() | Edited() | Failed() | Executed() | Heard():
                return self._masked(observation)
            case Page(tabs=tabs, notes=notes):
                shown = {
                    "tabs": tuple(self._masked(tab) for tab in tabs),
                    "notes": tuple(map(self._secrets.mask, notes)),
                }
                return self._masked(observation.model_copy(update=shown))
            case _:
                return observation

    def _masked(self, observation: Value) -> Value:
        return masked(observation, self._secrets)


def masked(value: Value, secrets: Secrets) -> Value:
    """The same with each secret hidden in its texts."""
    found = {name: text for name, text in dict(value).items() if isinstance(text, str | bytes)}
    hidden = {name: secrets.mask(text) for name, text in found.items() if name not in ("kind", "reason")}
    return value if hidden.items() <= found.items() else value.model_copy(update=hidden)


class MaskingFilter(logging.Filter):
    """Hides secrets in log records: message, arguments, extra fields and traceback.

    It belongs on handlers: a logger's own filters do not see what its children log.
    """

    _OWN = frozenset(vars(logging.makeLogRecord({})))

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
            if name not in self._OWN and not isinstance(value, int | float | None):
                setattr(record, name, self._secrets.mask(str(value)))
        return True
