"""Renders the pages of the setup. Each template has one typed function."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from patchwright.bot.dashboard.views import PageContext, render_page
from patchwright.bot.run_summary import RunSummary
from patchwright.bot.setup.app_api import APP_PERMISSIONS
from patchwright.bot.setup.credential_store import RegisteredApp
from patchwright.bot.setup.image_preparation import ImagePreparation
from patchwright.bot.setup.model_probe import TIMEOUT_SECONDS, ModelProbeResult
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


@dataclass(frozen=True)
class StepFailure:
    """A step of the setup that failed, with the texts that the person sees."""

    problem: SetupProblem
    detail: str = ""
    retry_url: str = ""
    """The URL that repeats the failed step; "" if the step cannot be repeated."""


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


def render_code_page(context: PageContext, failure: StepFailure | None) -> str:
    """Renders the page on which the setup code is entered."""
    return render_page("setup_code", context, failure=failure)


def render_model_page(
    context: PageContext,
    failure: StepFailure | None,
    values: Mapping[str, str],
    data: str,
    image_preparation: ImagePreparation,
) -> str:
    """Renders the page on which the model is chosen; `data` is the data directory."""
    return render_page(
        "setup_model",
        context,
        failure=failure,
        values=values,
        data=data,
        image_preparation=image_preparation,
        timeout_seconds=round(TIMEOUT_SECONDS),
    )


def render_unpriced_page(context: PageContext, name: str, settings: Settings) -> str:
    """Renders the page that is shown if the price of the model is unknown. The page explains which limits
    apply, and how to continue.
    """
    return render_page("setup_unpriced", context, model=name, settings=settings)


def render_app_page(
    context: PageContext,
    failure: StepFailure | None,
    values: Mapping[str, str],
    unsaved_app: RegisteredApp | None,
    image_preparation: ImagePreparation,
    *,
    is_local: bool,
) -> str:
    """Renders the page on which a person describes the App to create.

    `unsaved_app` is an App that GitHub created, but whose credentials could not be saved. `is_local` is True
    if only this machine can reach the public URL in the form.
    """
    return render_page(
        "setup_app",
        context,
        failure=failure,
        values=values,
        unsaved_app=unsaved_app,
        image_preparation=image_preparation,
        is_local=is_local,
    )


def render_manifest_page(
    context: PageContext, form_url: str, manifest: Mapping[str, object], host: str
) -> str:
    """Renders the page that lists the App's permissions and posts the manifest to GitHub."""
    return render_page(
        "setup_manifest",
        context,
        form_url=form_url,
        manifest=json.dumps(manifest),
        host=host,
        permissions={name.replace("_", " "): level for name, level in APP_PERMISSIONS.items()},
        has_webhook="hook_attributes" in manifest,
    )


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
