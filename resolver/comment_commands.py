"""The commands that people can write in comments. The parser, the reply to `help`, and the pipeline read this table."""

from dataclasses import dataclass
from typing import Literal

Task = Literal["work", "plan", "explain", "setup"]


@dataclass(frozen=True)
class Command:
    """A command that people can write in a comment."""

    verb: str
    effect: str
    """What the bot does, as the reply to `help` shows it."""
    text: str = ""
    """What people write after the command, as the reply to `help` shows it."""
    server_effect: str = ""
    """What the bot also does on a server, but not in a workflow."""
    aliases: tuple[str, ...] = ()
    takes_text: bool = False
    """False if the command is recognized only without other text: "stop using tabs" is a request for work. Polite
    words and options are allowed.
    """
    threads: Literal["all", "issues", "pull_requests"] = "all"
    task: Task = "work"
    needs_earlier_run: bool = False
    """True if the command continues or repeats an earlier run of the thread."""
    works_in_workflow: bool = True
    needs_write_access: bool = True
    starts_run: bool = True
    """False if the module `bot/triggers/VERB_command.py` executes the command when it is received."""


WORK = Command(
    "work", "work on the request", "request", "; during a run, I read the comment before my next step"
)
"""The command of a comment that contains no command word."""

COMMANDS = (
    WORK,
    Command("plan", "reply with a plan", "request", " and wait for approval", takes_text=True, task="plan"),
    Command(
        "go",
        "carry out my plan; you can add instructions",
        takes_text=True,
        needs_earlier_run=True,
        works_in_workflow=False,
    ),
    Command(
        "approve",
        "run the call that waits for your approval, or carry out my plan",
        takes_text=True,
        needs_earlier_run=True,
        works_in_workflow=False,
    ),
    Command(
        "reject",
        "continue without the call that waits for your approval; you can add a reason",
        takes_text=True,
        needs_earlier_run=True,
        works_in_workflow=False,
    ),
    Command(
        "explain",
        "answer with links into the code; I change nothing",
        "question",
        takes_text=True,
        task="explain",
    ),
    Command("stop", "stop and save the work so far to a branch", works_in_workflow=False, starts_run=False),
    Command(
        "resume",
        "continue a stopped run; you can add instructions",
        takes_text=True,
        needs_earlier_run=True,
        works_in_workflow=False,
    ),
    Command("retry", "start over with your last request", needs_earlier_run=True),
    Command("rebase", "merge the base branch into it and resolve conflicts", threads="pull_requests"),
    Command("run-ci", "start the checks that I put on hold", aliases=("run ci",), threads="pull_requests"),
    Command(
        "setup",
        "propose a configuration file with a test command that I ran",
        aliases=("set up",),
        threads="issues",
        task="setup",
    ),
    Command("help", "show this list", needs_write_access=False, starts_run=False),
)
"""All commands, in the order of the reply to `help`. Only the first one is not a word in a comment."""
COMMANDS_BY_WORD = {word: command for command in COMMANDS[1:] for word in (command.verb, *command.aliases)}
