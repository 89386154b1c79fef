"""`patchwright resolve` resolves one issue, or resumes a run."""

import argparse

from patchwright.bot.cli.options import add_settings_options
from patchwright.bot.terminal.exit_codes import JOB_EXIT_CODES
from patchwright.bot.terminal.help_screens import Subparsers, add_command


def add(commands: Subparsers) -> None:
    """Adds the command to the command line."""
    command = add_command(
        commands,
        "resolve",
        "resolve one issue and open a verified pull request",
        "Resolve one issue: reproduce it, fix it, verify the fix with the repository's own tests, and open a pull\n"
        "request.\n\n"
        "  patchwright resolve https://github.com/OWNER/REPO/issues/7\n"
        "  patchwright resolve --repo PATH --issue FILE.md --out FIX.diff\n"
        "  patchwright resolve --continue RUN [--answer TEXT]",
        JOB_EXIT_CODES,
    )
    command.add_argument(
        "url",
        nargs="?",
        metavar="ISSUE",
        help="URL of an issue or pull request, or OWNER/REPO#7; for a pull request, addresses its open reviews",
    )
    command.add_argument("--repo", metavar="PATH", help="a local git repository, instead of a GitHub issue")
    command.add_argument("--issue", metavar="FILE", help="with --repo: a file whose first line is the title")
    command.add_argument(
        "--include-changes", action="store_true", help="with --repo: include your uncommitted changes"
    )
    command.add_argument("--out", metavar="FILE", help="with --repo: also write the patch to this file")
    command.add_argument(
        "--continue", dest="run", metavar="RUN", help="resume this run (its name, or `last`)"
    )
    command.add_argument(
        "--answer",
        metavar="TEXT",
        help="with --continue: your answer to the question that the run asked, or approve or reject",
    )
    command.add_argument("--dry-run", action="store_true", help="show the pull request instead of opening it")
    verbosity = command.add_mutually_exclusive_group()
    verbosity.add_argument(
        "--quiet", "-q", action="store_true", help="print only notices, errors and the result"
    )
    verbosity.add_argument("--verbose", "-v", action="store_true", help="print everything in full")
    add_settings_options(command)
    command.set_defaults(handler=run)


async def run(options: argparse.Namespace) -> int:
    """Resolves one issue, or resumes a run. The issue is given as a URL or as the path of a file."""
    from patchwright.bot.cli.settings_loading import load_settings
    from patchwright.bot.commands.resolve_command import run_resolve

    return await run_resolve(options, load_settings(options))
