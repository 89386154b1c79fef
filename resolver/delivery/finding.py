"""What we say of a commit of ours: a check run with the tests before and after, where our token may make one."""

import logging
from typing import Literal

from resolver.delivery.delivery_prose import check_summary, check_title
from resolver.domain import Job, JobId, Verdict, VerdictKind
from resolver.errors import ForgeError
from resolver.forge import Forge
from resolver.summary import Summary
from runtime.frozen import Frozen

logger = logging.getLogger(__name__)

Conclusion = Literal["success", "neutral", "failure"]
CONCLUSIONS: dict[VerdictKind, Conclusion] = {"fixed": "success", "regressed": "failure"}
"""The others are neutral: nothing is proven."""


class Finding(Frozen):
    """One check run."""

    job: JobId
    """Whose run found it: on one commit it says one thing."""
    commit: str
    conclusion: Conclusion
    title: str
    """One line of plain text."""
    summary: str
    """Markdown."""
    page: str | None = None
    """Where the run is shown; None: nowhere."""


async def show_finding(job: Job, commit: str, verdict: Verdict, story: Summary, forge: Forge) -> None:
    """Put the verdict on the commit; nothing is lost where the forge does not take it."""
    finding = Finding(
        job=job.id,
        commit=commit,
        conclusion=CONCLUSIONS.get(verdict.kind, "neutral"),
        title=check_title(verdict),
        summary=check_summary(verdict, story),
        page=story.page,
    )
    try:
        if not await forge.show(job.repo, finding):
            logger.info("no check run: our token may not", extra={"job": job.id})
    except ForgeError as exc:  # the pull request and its comment say the same
        logger.warning("no check run", extra={"job": job.id, "error": str(exc)})
