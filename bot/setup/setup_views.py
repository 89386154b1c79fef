"""The failures and the remaining steps that the pages of the setup show."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from patchwright.bot.dashboard.views import PageContext, render_page
from patchwright.bot.run_summary import RunSummary
from patchwright.bot.setup.model_probe import ModelProbeResult
from patchwright.bot.webhooks.triggers import label_command
from patchwright.resolver.rendering import jinja_templates
from patchwright.resolver.settings.server_settings import is_loopback
from patchwright.resolver.settings.settings import Settings

SetupProblem = Literal[
    "app_not_saved", "cross_site", "data_not_writable", "expired_code", "github_unavailable", "github_unreachable",
    "invalid_github_url", "invalid_model_address", "invalid_organization", "invalid_public_url", "login_required",
    "loopback_webhook", "manifest_code_expired", "model_access_denied", "model_name_missing", "model_probe_failed",
    "state_mismatch", "unknown_organization", "unreachable_url", "wrong_code",
]  # fmt: skip


_PROBLEM_STATUS: Mapping[SetupProblem, int] = {
    "app_not_saved": 507, "data_not_writable": 507, "expired_code": 403, "github_unavailable": 502,
    "github_unreachable": 502, "login_required": 401, "manifest_code_expired": 410, "wrong_code": 403,
}  # fmt: skip


@dataclass(frozen=True)
class StepFailure:
    """A step of the setup that failed, with the texts that the person sees."""

    problem: SetupProblem
    detail: str = ""
    retry_url: str = ""
    """The URL that repeats the failed step; "" if the step cannot be repeated."""

    @property
    def status(self) -> int:
        """The HTTP status code of the page that shows the failure."""
        return _PROBLEM_STATUS.get(self.problem, 400)


def probe_failure(probe: ModelProbeResult) -> StepFailure:
    """Returns the failure of a model test."""
    return StepFailure(
        "model_access_denied" if probe.is_access_denied else "model_probe_failed", probe.error or ""
    )


@dataclass(frozen=True)
class SetupStep:
    """A step that remains before the bot can answer its first issue."""

    kind: Literal["install", "webhook", "bad_signature", "poll", "worker", "first_issue"]
    is_done: bool
    detail: str = ""
    url: str = ""
    """The URL of the page on which a person completes the step."""
    error: str = ""
    """The reason why the step is not complete yet, for example an error; "" if unknown."""
    run: RunSummary | None = None
    """The first run; only the step `first_issue` shows it. None if no run has started."""


def render_welcome_page(context: PageContext, steps: tuple[SetupStep, ...], settings: Settings) -> str:
    """Renders the page with the remaining steps and the state of the first run."""
    return render_page(
        "welcome",
        context,
        steps=steps,
        settings=settings,
        label_command=label_command(settings.label),
        steps_left=sum(not step.is_done for step in steps),
    )


def render_start_notice(url: str, code: str) -> str:
    """Renders the notice that the server prints when it starts without configuration."""
    port = urlsplit(url).port if is_loopback(url) else None
    template = jinja_templates.get_environment().get_template("dashboard/setup_notice.txt.j2")
    return template.render(url=url, code=code, port=port)
