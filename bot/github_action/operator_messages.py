"""Rewords errors and warnings for the operator of a workflow, and shows them as annotations of the workflow
run.

Source: docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

import copy
import re
from typing import Literal

from patchwright.bot.errors import WriteAccessMissing
from patchwright.bot.terminal.output import strip_control_chars
from patchwright.resolver.errors import Forbidden, SettingsError
from patchwright.resolver.settings.server_settings import name_inputs
from patchwright.runtime.errors import ImageUnavailable

NO_MODEL_KEY = (
    "The input `model-api-key` is empty. Create the secret MODEL_API_KEY (Settings, Secrets and variables, Actions), "
    "pass it as this input, and remove and add the label again, or repeat your comment."
)
NO_KEY_NEEDED = " If the endpoint needs no key, pass any text."

NO_PERMISSION = "resource not accessible by integration"
"""Part of GitHub's message if the workflow's token lacks the permission for a request."""

REQUEST_PATHS = {"contents": "/git/refs", "issues": "/comments", "pull_requests": "/pulls"}
"""The required permissions. The value is text in the URLs of requests that need the permission. The text
is used if GitHub's message names only the rejected request.
"""


def word_for_workflow(error: Exception) -> Exception:
    """Rewords an error for the author of a workflow file. Replaces the names of environment variables with the
    names of the action's inputs, and says which lines are missing under `permissions:`. Returns other errors unchanged.
    """
    text = str(error)
    if isinstance(error, SettingsError) and "PATCHWRIGHT_MODEL_API_KEY" in text:
        return SettingsError(NO_MODEL_KEY + (NO_KEY_NEEDED if "any text" in text else ""))
    if isinstance(error, ImageUnavailable):
        cause = text.rstrip(".").removesuffix(": load it, or choose another")
        return ImageUnavailable(f"{cause}. Check the input `image`.")
    if isinstance(error, WriteAccessMissing):
        lines = ", ".join(f"`{name.replace('_', '-')}: write`" for name in REQUEST_PATHS)
        return Forbidden(
            f"{text} In the workflow file, add these lines to the `permissions:` of the job: {lines}."
        )
    if isinstance(error, Forbidden) and NO_PERMISSION in text.lower():
        return Forbidden(f"{text.rstrip('.')}. {_permissions_hint(text)}")
    named = name_inputs(text.replace(" or pass --model", ""))
    if named == text:
        return error
    reworded = copy.copy(error)
    reworded.args = (named,)
    return reworded


def _permissions_hint(text: str) -> str:
    """Returns a sentence that says which lines to add to `permissions:`. GitHub's message (`text`) names the
    permissions, or at least the rejected request.
    """
    names = re.findall(r"\b([a-z_]+)=write\b", text) or [
        permission for permission, path in REQUEST_PATHS.items() if path in text
    ]
    lines = " or ".join(f"`{name.replace('_', '-')}: write`" for name in names or REQUEST_PATHS)
    return f"In the workflow file, add the line {lines} to the `permissions:` of the job."


def annotation(level: Literal["error", "warning"], text: str) -> str:
    """Returns the workflow command that shows the text as an annotation of the workflow run.

    The text may be hostile. It stays on the command's line, so it cannot start another command.
    """
    line = strip_control_chars(text).replace("%", "%25").replace("\n", "%0A")
    return f"::{level}::{line}"


def escape_markdown(text: str) -> str:
    """Escapes untrusted text for a cell of a Markdown table, so that it contains no markup, links, images or
    line breaks.
    """
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))
