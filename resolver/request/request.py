"""What the words after a mention ask for: the one reader of commands and their options. Pure, linear in the text."""

import difflib
import re
from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, NamedTuple

from resolver.git.branches import is_branch_name
from resolver.words.spans import spans_of
from runtime.frozen import Frozen

Verb = Literal["work", "plan", "go", "explain", "stop", "retry", "resume", "rebase", "run-ci", "help"]

LEADING: dict[str, Verb] = {
    "plan": "plan",
    "explain": "explain",
    "resume": "resume",
    "go": "go",
    "approve": "go",
}
"""Commands that begin what is said, and may say more."""
ALONE: dict[str, Verb] = {
    "stop": "stop",
    "retry": "retry",
    "rebase": "rebase",
    "run-ci": "run-ci",
    "run ci": "run-ci",
    "help": "help",
}
"""Commands that stand alone but for courtesies and options: "stop using tabs" is work."""
OPTIONS = ("model", "budget", "base")

_COURTESIES = frozenset("please pls thanks thank thx you now kindly ahead".split())
_AROUND = ",:;.!?()"  # what may touch a command's word
_OPTION = re.compile(r"([A-Za-z][A-Za-z_-]{0,29})=(?![=>~])(\S*)")
_DOLLARS = re.compile(r"\$?(\d{1,6}(?:\.\d{1,4})?)\$?(?:usd)?", re.IGNORECASE)
_MONEY = re.compile(r"\$\d\S*|\d\S*\$")
_OTHER_WORDS = frozenset("mode models bases based bare bass case vase node".split())  # beside an option
_NO_BRANCH = frozenset("`'\"<>()")  # git would take them; whoever writes them means no branch
_SHORTEST = 3  # letters that an option would have: `a=b` is text
_LONGEST_NAME = 200  # characters of a model's name
_FEW = 12  # words; a command that stands alone has no more courtesies


class Options(Frozen):
    """What a person sets for a run, within what the operator allows; None: nothing was said of it."""

    model: str | None = None
    usd: Decimal | None = None
    """Dollars that the run may cost."""
    base: str | None = None
    """The branch that work begins from, and its pull request goes to."""

    def over(self, earlier: "Options") -> "Options":
        """Both, where what this says goes before what was said earlier."""
        return Options(
            model=self.model or earlier.model, usd=self.usd or earlier.usd, base=self.base or earlier.base
        )

    @property
    def written(self) -> str:
        """As a person would write them."""
        said = {"model": self.model, "budget": self.usd, "base": self.base}
        return " ".join(f"{name}={value}" for name, value in said.items() if value is not None)


class Unclear(Frozen):
    """Why nothing is begun: what was said can be no more than a slip."""

    kind: Literal["command", "option", "no_value", "dollars", "branch", "name", "twice"]
    said: str
    """The word, clipped."""
    near: str | None = None
    """What was probably meant."""


class Request(NamedTuple):
    """What somebody asked for."""

    verb: Verb
    text: str
    """All that was said but the options at its ends."""
    words: str
    """What was said beyond the command itself; "" where the verb says all."""
    options: Options = Options()
    unclear: Unclear | None = None


class _Word(NamedTuple):
    start: int
    end: int
    text: str

    @property
    def bare(self) -> str:
        return self.text.strip(_AROUND).lower()

    @property
    def is_courtesy(self) -> bool:
        return self.bare in _COURTESIES or not re.search(r"\w", self.text)


def request(said: str) -> Request:
    """What the words after a mention ask for.

    Options are words such as `model=NAME`, outside code; those at the ends are no part of the text. An unknown one is
    unclear where it stands in front, or looks like a slip at the end; elsewhere it is text, as `a=b` in a sentence.
    """
    words = [_Word(found.start(), found.end(), found[0]) for found in re.finditer(r"\S+", said)]
    reader = _Reader(said)
    verb, begin, first = reader.head(words)
    last = reader.tail(words, first)
    for word in words[first:last]:
        reader.middle(word)
    rest = words[first:last]
    text = said[words[begin].start : rest[-1].end if rest else words[first - 1].end] if begin < last else ""
    beyond = said[rest[0].start : rest[-1].end] if rest else ""
    if verb is None:
        bare = [] if len(rest) > _FEW else [word.bare for word in rest if not word.is_courtesy]
        if (alone := ALONE.get(" ".join(bare))) is not None:
            verb, beyond = alone, ""
        elif len(bare) == 1 and reader.unclear is None and (near := _near_command(bare[0])):
            reader.unclear = Unclear(kind="command", said=bare[0][:60], near=near)
    elif all(word.is_courtesy for word in rest):
        beyond = ""
    return Request(verb or "work", text, beyond, Options(**reader.options), reader.unclear)


class _Reader:
    """Collects the options, and the first of them that cannot be meant as it stands."""

    def __init__(self, said: str) -> None:
        self.options: dict[str, object] = {}
        self.unclear: Unclear | None = None
        self._spans = tuple(spans_of(said)) if "=" in said else ()
        self._starts = [span.start for span in self._spans]

    def head(self, words: Sequence[_Word]) -> tuple[Verb | None, int, int]:
        """The command in front; and the index of its word, or of the first one, and of the first one behind it."""
        verb: Verb | None = None
        begin = at = 0
        while at < len(words):
            text = words[at].text
            if _MONEY.fullmatch(money := text.rstrip(",;:.!?")):
                self._take("budget", money)
            elif (found := _OPTION.fullmatch(text)) and len(found[1]) >= _SHORTEST:
                self._known_or_unclear(found[1], found[2], text)
            elif verb is None:
                ahead = next((n for n in range(at, len(words)) if not words[n].is_courtesy), at)
                verb = LEADING.get(words[ahead].bare)
                if verb is None:
                    return None, at, at
                begin, at = ahead, ahead
            else:
                return verb, begin, at
            at += 1
        return verb, begin if verb else at, at

    def tail(self, words: Sequence[_Word], first: int) -> int:
        """The index behind the last word that is no option at the end."""
        last = at = len(words)
        while at > first:
            word = words[at - 1]
            if not word.is_courtesy:
                found = self._option(word)
                if found is None:
                    break
                name = found[1].lower()
                if name not in OPTIONS and (name in _OTHER_WORDS or not _one_edit_from(name, OPTIONS)):
                    break
                self._known_or_unclear(found[1], found[2], word.text)
                last = at - 1
            at -= 1
        return last

    def middle(self, word: _Word) -> None:
        """An option in the middle of what is said counts, and stays part of the sentence."""
        found = self._option(word)
        if found is not None and found[1].lower() in OPTIONS:
            self._take(found[1].lower(), found[2])

    def _option(self, word: _Word) -> re.Match[str] | None:
        found = _OPTION.fullmatch(word.text)
        if found is None or self._spans[bisect_right(self._starts, word.start) - 1].kind != "prose":
            return None
        return found

    def _known_or_unclear(self, name: str, value: str, text: str) -> None:
        if name.lower() in OPTIONS:
            self._take(name.lower(), value)
            return
        near = difflib.get_close_matches(name.lower(), OPTIONS, n=1, cutoff=0.6)
        self._slip(Unclear(kind="option", said=text[:60], near=near[0] if near else None))

    def _take(self, name: str, value: str) -> None:
        value = value.strip("`'\"*").rstrip(".,;:!?)").strip("`'\"*")
        said = f"{name}={value}"[:60]
        read: object = value
        if not value:
            self._slip(Unclear(kind="no_value", said=said))
            return
        if name == "budget":
            dollars = _DOLLARS.fullmatch(value)
            read = Decimal(dollars[1]) if dollars else Decimal(0)
            if not read:
                self._slip(Unclear(kind="dollars", said=said))
                return
        elif name == "base" and (not is_branch_name(value) or set(value) & _NO_BRANCH):
            self._slip(Unclear(kind="branch", said=said))
            return
        elif len(value) > _LONGEST_NAME or not value.isprintable():
            self._slip(Unclear(kind="name", said=said))
            return
        key = "usd" if name == "budget" else name
        if self.options.setdefault(key, read) != read:
            self._slip(Unclear(kind="twice", said=f"{name}="))

    def _slip(self, unclear: Unclear) -> None:
        self.unclear = self.unclear or unclear


def _near_command(word: str) -> str | None:
    """The command that somebody who wrote this alone has mistyped; `go` is beside too many words."""
    return _one_edit_from(word, [name for name in (*LEADING, *ALONE) if name != "go" and " " not in name])


def _one_edit_from(word: str, names: Sequence[str]) -> str | None:
    return next((name for name in names if _is_one_edit(word, name)), None)


def _is_one_edit(one: str, other: str) -> bool:
    """Whether a letter was added, left out, mistaken for another, or changed places with the next one."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if same is None:
        return True  # one letter more at the end
    left, right = one[same:], other[same:]
    return (
        left[1:] == right[1:]
        or left[1:] == right
        or left == right[1:]
        or (left[:2] == right[1::-1] and left[2:] == right[2:])
    )
