"""Which run somebody means: its name, a beginning of it that no other run has, or `last`."""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from resolver.domain import RunId
from resolver.errors import UsageError
from resolver.log import is_name

LAST = "last"
MOST_SHOWN = 5  # runs that a sentence names
_DELEGATE = re.compile(r"(.+)-(?:browse|sub)-\d+")  # as resolver/tools/handover.py names them


def named(given: str, directory: Path, elsewhere: Callable[[], Iterable[RunId]] = tuple) -> RunId:
    """The run that is meant.

    `elsewhere`: runs that are not in `directory`; asked only when what is there does not say it.
    Raises UsageError when there is none or it could be several, and names those that come near.
    """
    if not is_name(given):
        raise UsageError(f"`{given[:80]}` is not a run's name: letters, digits and `._-` only.")
    if (directory / given / "events.jsonl").is_file():
        return RunId(given)
    here = on_disk(directory)
    if given == LAST and here:
        return here[0]
    names = list(dict.fromkeys((*here, *elsewhere())))
    if given in names:
        return RunId(given)
    fitting = [name for name in names if name.startswith(given)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"`{given}` could be {_several(fitting)}: write more of its name.")
    near = difflib.get_close_matches(given, names[:1000], n=3, cutoff=0.5)
    hint = f" Near it: {_several(near)}." if near else ""
    raise UsageError(f"There is no run `{given}` below {directory}.{hint} `patchwright runs` lists them.")


def on_disk(directory: Path) -> list[RunId]:
    """The runs there, the newest first, without those that others asked for."""
    found = [(path.stat().st_mtime, path.parent.name) for path in directory.glob("*/events.jsonl")]
    names = {name for _, name in found}
    return [RunId(name) for _, name in sorted(found, reverse=True) if not is_delegate(name, names)]


def is_delegate(name: str, among: set[str]) -> bool:
    """Whether another of these runs asked for it."""
    return (match := _DELEGATE.fullmatch(name)) is not None and match[1] in among


def _several(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:MOST_SHOWN]) + more
