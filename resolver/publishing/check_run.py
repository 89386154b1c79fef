"""Publishes a check run with the test results on the bot's commit, if the token may create check runs."""

import logging

from patchwright.resolver.activity.summary import Summary
from patchwright.resolver.domain import Job, Verdict, VerdictKind
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.forge import Forge
from patchwright.resolver.forge_writes import CheckRunReport, Conclusion
from patchwright.resolver.rendering.template_renderer import render, render_reply
from patchwright.runtime.output_text import clip_line

logger = logging.getLogger(__name__)

CONCLUSIONS: dict[VerdictKind, Conclusion] = {"fixed": "success", "regressed": "failure"}
"""Conclusion of the check run for each kind of verdict. Other kinds get "neutral", because their test results
prove nothing.
"""


async def publish_check_run(job: Job, commit: str, verdict: Verdict, summary: Summary, forge: Forge) -> None:
    """Publishes the verdict as a check run on the commit. Failures are only logged."""
    report = CheckRunReport(
        job=job.id,
        commit=commit,
        conclusion=CONCLUSIONS.get(verdict.kind, "neutral"),
        title=clip_line(render("replies/check_title.md.j2", verdict=verdict), 200),
        summary=render_reply("check_summary.md.j2", verdict=verdict, summary=summary),
        details_url=summary.dashboard_url,
    )
    try:
        if not await forge.create_check_run(job.repo, report):
            logger.info("check run not permitted", extra={"job": job.id})
    except ForgeError as exc:
        # The check run is optional: the pull request and its comment contain the same information.
        logger.warning("check run not created", extra={"job": job.id, "error": str(exc)})
