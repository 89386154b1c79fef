"""Collects the checks of `patchwright doctor`, and prints their results."""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import aclosing

from pydantic import SecretStr

from patchwright.bot.doctor import docker_checks, github_checks, host_checks, model_checks, redis_checks
from patchwright.bot.doctor.runner import CheckResult, CheckState, DoctorCheck, run_checks
from patchwright.bot.terminal.output import print_json, strip_control_chars
from patchwright.bot.terminal.style import terminal_size
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings

NAME_WIDTH = 18  # width of a check's name
DETAIL_COLUMN = 9 + NAME_WIDTH  # width of the columns before the details
MIN_DETAIL_WIDTH = 24  # minimum width of the details; narrower terminals wrap the lines themselves
COLORS: Mapping[CheckState, str] = {"ok": "32", "warning": "33", "failed": "31"}


def all_checks(settings: Settings, key: SecretStr | None, environ: Mapping[str, str]) -> list[DoctorCheck]:
    """Returns all checks. They are sorted in the order in which a run needs the checked resources."""
    return [
        *host_checks.build_checks(settings),
        *github_checks.build_checks(settings, key.get_secret_value() if key else None),
        *redis_checks.build_checks(settings),
        *docker_checks.build_checks(settings, environ),
        *model_checks.build_checks(settings),
    ]


async def print_report(
    checks: Sequence[DoctorCheck], secrets: Secrets, environ: Mapping[str, str], *, as_json: bool
) -> bool:
    """Prints the results of the checks as they arrive. Returns False if a check failed."""
    width = terminal_size(sys.stdout).columns if sys.stdout.isatty() else None
    color = width is not None and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    results: list[CheckResult] = []
    async with aclosing(run_checks(checks)) as stream:
        async for result in stream:
            masked = {
                name: secrets.mask(strip_control_chars(text)) for name, text in result.model_dump().items()
            }
            results.append(CheckResult.model_validate(masked))
            if not as_json:
                print(format_result(results[-1], color=color, width=width), flush=True)
    healthy = all(result.state != "failed" for result in results)
    if as_json:
        print_json({"healthy": healthy, "checks": [result.model_dump() for result in results]})
    else:
        print(f"\n{format_summary(results)}")
    return healthy


def format_result(result: CheckResult, *, color: bool, width: int | None = None) -> str:
    """Formats one result as text: its state, its details, and how to fix it.

    `width` is the width of the terminal in cells; None if the output is not a terminal.
    """
    state = f"{result.state:<8}"
    label = f"\033[{COLORS[result.state]}m{state}\033[0m" if color else state
    fix = f"\n{'':{DETAIL_COLUMN}}{_wrap(f'-> {result.fix}', width)}" if result.fix else ""
    return f"{label} {result.name:<{NAME_WIDTH}}{_wrap(result.detail, width)}{fix}"


def _wrap(text: str, width: int | None) -> str:
    """Wraps a text to the details column. URLs are not split, so that they can be copied."""
    if width is None:
        return text
    text_width = max(width - 1 - DETAIL_COLUMN, MIN_DETAIL_WIDTH)
    lines = textwrap.wrap(text, text_width, break_long_words=False, break_on_hyphens=False)
    return f"\n{'':{DETAIL_COLUMN}}".join(lines)


def format_summary(results: Sequence[CheckResult]) -> str:
    count = {state: sum(result.state == state for result in results) for state in COLORS}
    warnings = "1 warning" if count["warning"] == 1 else f"{count['warning']} warnings"
    return f"{count['ok']} ok, {warnings}, {count['failed']} failed."
