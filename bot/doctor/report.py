"""All checks of a server by its settings, and how what they find is told."""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import aclosing

from pydantic import SecretStr

from bot.doctor import engine, github, machine, model, redis
from bot.doctor.examine import Check, Finding, State, examined
from bot.terminal.ink import size_of
from bot.terminal.lines import plain, print_json
from resolver.secrets import Secrets
from resolver.settings.settings import Settings

WIDE = 18  # of a requirement's name
BEFORE = 9 + WIDE  # cells of a line before what was seen
NARROWEST = 24  # cells for that; on less, lines are broken by the terminal
COLOURS: Mapping[State, str] = {"ok": "32", "warning": "33", "failed": "31"}


def all_checks(settings: Settings, key: SecretStr | None, environ: Mapping[str, str]) -> list[Check]:
    """In the order in which a run meets them."""
    return [
        *machine.checks(settings),
        *github.checks(settings, key.get_secret_value() if key else None),
        *redis.checks(settings),
        *engine.checks(settings, environ),
        *model.checks(settings),
    ]


async def told(
    checks: Sequence[Check], secrets: Secrets, environ: Mapping[str, str], *, as_json: bool
) -> bool:
    """Print what is found; whether nothing has failed."""
    width = size_of(sys.stdout).columns if sys.stdout.isatty() else None
    colour = width is not None and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    found: list[Finding] = []
    async with aclosing(examined(checks)) as seen:
        async for finding in seen:
            words = {name: secrets.mask(plain(word)) for name, word in finding.model_dump().items()}
            found.append(Finding.model_validate(words))
            if not as_json:
                print(line(found[-1], colour=colour, width=width), flush=True)
    healthy = all(finding.state != "failed" for finding in found)
    if as_json:
        print_json({"healthy": healthy, "findings": [finding.model_dump() for finding in found]})
    else:
        print(f"\n{summary(found)}")
    return healthy


def line(finding: Finding, *, colour: bool, width: int | None = None) -> str:
    """One requirement for a person: how it is, what was seen, and below it what to do.

    `width`: cells of the window; None: there is none.
    """
    state = f"{finding.state:<8}"
    shown = f"\033[{COLOURS[finding.state]}m{state}\033[0m" if colour else state
    mend = f"\n{'':{BEFORE}}{_folded(f'-> {finding.mend}', width)}" if finding.mend else ""
    return f"{shown} {finding.name:<{WIDE}}{_folded(finding.seen, width)}{mend}"


def _folded(text: str, width: int | None) -> str:
    """As lines of the last column; addresses are not broken, so that they can be copied."""
    if width is None:
        return text
    room = max(width - 1 - BEFORE, NARROWEST)
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return f"\n{'':{BEFORE}}".join(lines)


def summary(found: Sequence[Finding]) -> str:
    count = {state: sum(finding.state == state for finding in found) for state in COLOURS}
    return f"{count['ok']} ok, {count['warning']} to look at, {count['failed']} failed."
