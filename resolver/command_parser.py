"""Parses the text after a mention into a command and its options. The functions are pure and take linear
time.
"""

import difflib
import re
from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, NamedTuple

from patchwright.resolver.branch_names import is_branch_name
from patchwright.resolver.comment_commands import COMMANDS_BY_WORD, WORK, Command
from patchwright.resolver.text.markdown import parse_spans
from patchwright.runtime.frozen_model import FrozenModel

OPTIONS = ("model", "budget", "base", "agent")

_COURTESIES = frozenset("please pls thanks thank thx you now kindly ahead".split())
_PUNCTUATION = ",:;.!?()"  # Characters that may surround a command.
_OPTION = re.compile(r"([A-Za-z][A-Za-z_-]{0,29})=(?![=>~])(\S*)")
_DOLLARS = re.compile(r"\$?(\d{1,6}(?:\.\d{1,4})?)\$?(?:usd)?", re.IGNORECASE)
_MONEY = re.compile(r"\$\d\S*|\d\S*\$")
# Words that resemble an option but are not misspelled options.
_NOT_OPTIONS = frozenset("mode models bases based bare bass case vase node".split())
# Git allows these characters in branch names, but they are more likely quotation marks around a name.
_INVALID_BRANCH = frozenset("`'\"<>()")
_AGENT_NAME = re.compile(r"`?([A-Za-z0-9][\w.-]{0,63})`?")
_MIN_OPTION_NAME = 3  # Minimum letters of an option's name. A shorter name is text, as in `a=b`.
_MAX_MODEL_NAME = 200  # characters of a model name
_MAX_BARE_WORDS = 12  # Maximum number of words in a comment with a single-word command.


class RunOptions(FrozenModel):
    """Options that a person sets for a run, within the operator's limits. None means that the option is not
    set.
    """

    model: str | None = None
    usd: Decimal | None = None
    """Maximum cost of the run in dollars."""
    base: str | None = None
    """The branch that the run starts from and that its pull request targets."""
    agent: str | None = None
    """Name of the agent that does the work."""

    def override(self, earlier: "RunOptions") -> "RunOptions":
        """Returns a copy of these options. Options that are not set are taken from `earlier`."""
        return RunOptions(**{name: value or getattr(earlier, name) for name, value in self})

    @property
    def as_text(self) -> str:
        """The options as a person would write them."""
        values = {"model": self.model, "budget": self.usd, "base": self.base, "agent": self.agent}
        return " ".join(f"{name}={value}" for name, value in values.items() if value is not None)


class CommandError(FrozenModel):
    """The reason why a command is invalid, usually a typing error."""

    kind: Literal["command", "option", "no_value", "dollars", "branch", "name", "agent", "twice"]
    text: str
    """The invalid word, shortened if it is long."""
    suggestion: str | None = None
    """The command or option that was probably meant."""


class Request(NamedTuple):
    """A parsed request."""

    verb: str
    text: str
    """The whole text except for the options at its start and end."""
    remainder: str
    """The text after the command word; "" if there is none."""
    options: RunOptions = RunOptions()
    error: CommandError | None = None

    @property
    def command(self) -> Command:
        return COMMANDS_BY_WORD.get(self.verb, WORK)


class _Word(NamedTuple):
    start: int
    end: int
    text: str

    @property
    def bare(self) -> str:
        return self.text.strip(_PUNCTUATION).lower()

    @property
    def is_courtesy(self) -> bool:
        return self.bare in _COURTESIES or not re.search(r"\w", self.text)


def parse_request(comment: str) -> Request:
    """Parses the text after a mention.

    Options are words such as `model=NAME` outside of code. Options at the start or end are removed from the
    text. At the start, an unknown option is an error. At the end, an unknown option is an error if it looks
    like a typing error. Elsewhere, an unknown option is text, such as `a=b` in a sentence.

    At the start, `use NAME:` is the same as `agent=NAME`, and so is `use NAME` without further text.
    """
    words = [_Word(match.start(), match.end(), match[0]) for match in re.finditer(r"\S+", comment)]
    parser = _OptionParser(comment)
    verb, start, first = parser.parse_head(words)
    last = parser.parse_tail(words, first)
    for word in words[first:last]:
        parser.parse_middle(word)
    rest = words[first:last]
    text = (
        comment[words[start].start : rest[-1].end if rest else words[first - 1].end] if start < last else ""
    )
    remainder = comment[rest[0].start : rest[-1].end] if rest else ""
    if verb is None:
        bare = [] if len(rest) > _MAX_BARE_WORDS else [word.bare for word in rest if not word.is_courtesy]
        if (command := COMMANDS_BY_WORD.get(" ".join(bare))) is not None:
            verb, remainder = command.verb, ""
        elif len(bare) == 1 and parser.error is None and (suggestion := _suggest_command(bare[0])):
            parser.error = CommandError(kind="command", text=bare[0][:60], suggestion=suggestion)
    elif all(word.is_courtesy for word in rest):
        remainder = ""
    return Request(verb or "work", text, remainder, RunOptions(**parser.options), parser.error)


class _OptionParser:
    """Collects the options of a request, and remembers the first invalid option."""

    def __init__(self, comment: str) -> None:
        self.options: dict[str, object] = {}
        self.error: CommandError | None = None
        self._spans = tuple(parse_spans(comment)) if "=" in comment else ()
        self._starts = [span.start for span in self._spans]

    def parse_head(self, words: Sequence[_Word]) -> tuple[str | None, int, int]:
        """Returns the command at the start, the index of its word, and the index of the first word after it.

        If there is no command, both indexes refer to the first word after the options.
        """
        verb: str | None = None
        start = index = 0
        while index < len(words):
            text = words[index].text
            if _MONEY.fullmatch(amount := text.rstrip(",;:.!?")):
                self._set_option("budget", amount)
            elif (match := _OPTION.fullmatch(text)) and len(match[1]) >= _MIN_OPTION_NAME:
                self._set_or_reject(match[1], match[2], text)
            elif name := _find_agent_name(words[index:]):
                self._set_option("agent", name)
                index += 1
            elif verb is None:
                next_word = next((n for n in range(index, len(words)) if not words[n].is_courtesy), index)
                command = COMMANDS_BY_WORD.get(words[next_word].bare)
                if command is None:
                    return None, index, index
                if not command.takes_text:
                    self._reject_unknown_option(words[next_word + 1 : next_word + 2])
                    return None, index, index
                verb, start, index = command.verb, next_word, next_word
            else:
                return verb, start, index
            index += 1
        return verb, start if verb else index, index

    def parse_tail(self, words: Sequence[_Word], first: int) -> int:
        """Parses the options at the end. Returns the index of the first word of these options, or the number
        of words if there are no options at the end.
        """
        last = index = len(words)
        while index > first:
            word = words[index - 1]
            if not word.is_courtesy:
                match = self._match_option(word)
                if match is None:
                    break
                name = match[1].lower()
                if name not in OPTIONS and (name in _NOT_OPTIONS or not _one_edit_from(name, OPTIONS)):
                    break
                self._set_or_reject(match[1], match[2], word.text)
                last = index - 1
            index -= 1
        return last

    def parse_middle(self, word: _Word) -> None:
        """Applies an option in the middle of the text. The option remains part of the sentence."""
        match = self._match_option(word)
        if match is not None and match[1].lower() in OPTIONS:
            self._set_option(match[1].lower(), match[2])

    def _reject_unknown_option(self, words: Sequence[_Word]) -> None:
        for word in words:
            match = self._match_option(word)
            if match is not None and len(match[1]) >= _MIN_OPTION_NAME and match[1].lower() not in OPTIONS:
                self._set_or_reject(match[1], match[2], word.text)

    def _match_option(self, word: _Word) -> re.Match[str] | None:
        match = _OPTION.fullmatch(word.text)
        if match is None or self._spans[bisect_right(self._starts, word.start) - 1].kind != "prose":
            return None
        return match

    def _set_or_reject(self, name: str, value: str, text: str) -> None:
        if name.lower() in OPTIONS:
            self._set_option(name.lower(), value)
            return
        matches = difflib.get_close_matches(name.lower(), OPTIONS, n=1, cutoff=0.6)
        self._set_error(
            CommandError(kind="option", text=text[:60], suggestion=matches[0] if matches else None)
        )

    def _set_option(self, name: str, value: str) -> None:
        value = value.strip("`'\"*").rstrip(".,;:!?)").strip("`'\"*")
        assignment = f"{name}={value}"[:60]
        parsed: object = value
        if not value:
            self._set_error(CommandError(kind="no_value", text=assignment))
            return
        if name == "budget":
            dollars = _DOLLARS.fullmatch(value)
            parsed = Decimal(dollars[1]) if dollars else Decimal(0)
            if not parsed:
                self._set_error(CommandError(kind="dollars", text=assignment))
                return
        elif name == "base" and (not is_branch_name(value) or set(value) & _INVALID_BRANCH):
            self._set_error(CommandError(kind="branch", text=assignment))
            return
        elif name == "agent" and not _AGENT_NAME.fullmatch(value):
            self._set_error(CommandError(kind="agent", text=assignment))
            return
        elif len(value) > _MAX_MODEL_NAME or not value.isprintable():
            self._set_error(CommandError(kind="name", text=assignment))
            return
        key = "usd" if name == "budget" else name
        if self.options.setdefault(key, parsed) != parsed:
            self._set_error(CommandError(kind="twice", text=f"{name}="))

    def _set_error(self, error: CommandError) -> None:
        self.error = self.error or error


def _find_agent_name(words: Sequence[_Word]) -> str | None:
    """Returns the name if the text starts with `use NAME:` or contains only `use NAME` and options. In other texts,
    "use" belongs to the request, as in "use the new parser".
    """
    if len(words) < 2 or words[0].text.lower() != "use":
        return None
    name = _AGENT_NAME.fullmatch(words[1].text.rstrip(":.,!"))
    is_alone = all(word.is_courtesy or _OPTION.fullmatch(word.text) for word in words[2:])
    return name[1] if name and (words[1].text.endswith(":") or is_alone) else None


def may_be_sentence(comment: str, agent: str) -> bool:
    """Returns True if `use NAME:` chose the agent and text follows, as in "use pathlib: os.path is old"."""
    return re.search(rf"(?i)(^|\s)use\s+`?{re.escape(agent)}`?:\s+\S", comment) is not None


def _suggest_command(word: str) -> str | None:
    """Suggests a command for a single mistyped word. Never suggests `go`, because too many words are similar
    to `go`.
    """
    return _one_edit_from(word, [name for name in COMMANDS_BY_WORD if name != "go" and " " not in name])


def _one_edit_from(word: str, names: Sequence[str]) -> str | None:
    return next((name for name in names if _is_one_edit(word, name)), None)


def _is_one_edit(one: str, other: str) -> bool:
    """Returns True if the words differ by one inserted, missing, wrong or transposed letter."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    first_difference = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if first_difference is None:
        return True  # The longer word has one more letter at its end.
    left, right = one[first_difference:], other[first_difference:]
    return (
        left[1:] == right[1:]
        or left[1:] == right
        or left == right[1:]
        or (left[:2] == right[1::-1] and left[2:] == right[2:])
    )
