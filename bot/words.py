"""What the bot says beyond a run's own words; the sentences are in `templates/`."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from bot.jobs import Why
from resolver.domain import Repo
from resolver.prose import reply

OverLimit = Literal["user_runs_per_day", "repository_runs_per_day", "usd_per_day"]
"""A setting whose limit is reached."""


def over_limit(reason: OverLimit, limit: int | Decimal) -> str:
    """Why a run is not begun today."""
    return reply("over_limit.md.j2", reason=reason, limit=limit).strip().replace("\n", " ")


def helped(mention: str, label: str) -> str:
    """What can be asked of us, and how."""
    return reply("help.md.j2", mention=mention, label=label)


def stopped(mention: str, *, unread: bool) -> str:
    """What a stop came to where nothing was going on or waited, or (`unread`) where some of it cannot be read."""
    return reply("stopped.md.j2", mention=mention, unread=unread)


def not_stopped_here(url: str) -> str:
    """How a run in a workflow is stopped; `url`: where the runs are listed."""
    return reply("not_stopped_here.md.j2", url=url)


def queued(ahead: int, mention: str, *, here: bool, preparing: bool = False) -> str:
    """That a job waits, and for how many others; `here`: in its own thread. `preparing`: first of all for images."""
    return reply("queued.md.j2", ahead=ahead, mention=mention, here=here, preparing=preparing)


def unread() -> str:
    """That a job waits for a worker of the version that has put it."""
    return reply("unread.md.j2")


def dropped(why: Why) -> str:
    """Why a job that waited is not begun any more."""
    return reply("dropped.md.j2", why=why).strip()


def lacking(permissions: Sequence[str], page: str, said: str) -> str:
    """What an owner has to grant, and where (`page`); `said`: where that was told in full, empty: nowhere."""
    return reply("lacking.md.j2", permissions=permissions, page=page, said=said).strip()


def not_listed(repo: Repo) -> str:
    """Why nothing is begun in a repository that the operator did not name."""
    return reply("not_listed.md.j2", repo=repo).strip()
