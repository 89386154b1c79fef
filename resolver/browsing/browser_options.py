"""The operator's options for the browser, and the tool with which the main agent uses the browser itself."""

import inspect
import logging
from collections.abc import Collection
from typing import Any, get_args

from patchwright.resolver.actions import Action, AnyObservation
from patchwright.resolver.llm.model import Model
from patchwright.resolver.run_events import BrowserOptions
from patchwright.resolver.settings.run_settings import RunSettings
from patchwright.resolver.tools.tool import ActionTool, Tool
from patchwright.runtime.actions import UseBrowser
from patchwright.runtime.browser.action_space import (
    WEB_CALLS,
    allowed_calls,
    describe_calls,
    needs_screenshot,
    select_calls,
)
from patchwright.runtime.features import SandboxFeature
from patchwright.runtime.observations import PageSnapshot, SnapshotOptions, SnapshotPart
from patchwright.runtime.sandbox import Sandbox

logger = logging.getLogger(__name__)

DEFAULT_OPTIONS = BrowserOptions(calls=WEB_CALLS, snapshot=SnapshotOptions(screenshot=True), reads_links=True)


def options_from_settings(settings: RunSettings) -> BrowserOptions:
    """Returns the options that the operator set."""
    parts = settings.browser_observation
    return BrowserOptions(
        calls=select_calls(settings.browser_calls),
        snapshot=SnapshotOptions.model_validate({part: part in parts for part in get_args(SnapshotPart)}),
        reads_links=settings.browse_links,
    )


def limit_to_model(options: BrowserOptions, supports_vision: bool) -> BrowserOptions:
    """Returns the options for a model. A model without vision gets no screenshots. Without screenshots, no call takes
    a point of the screenshot.
    """
    if supports_vision and options.snapshot.screenshot:
        return options
    calls = tuple(name for name in options.calls if not needs_screenshot(name))
    snapshot = options.snapshot.model_copy(update={"screenshot": False})
    return options.model_copy(update={"calls": calls, "snapshot": snapshot})


def build_action(options: BrowserOptions, code: str, tab_count: int) -> UseBrowser:
    """Returns the action that runs this code while the browser has `tab_count` tabs."""
    allowed = allowed_calls(options.calls, tab_count)
    return UseBrowser(code=code, allowed_calls=allowed, snapshot=options.snapshot)


class BrowserTool(ActionTool[UseBrowser]):
    """The tool `use_browser`. The model writes only the code; the options are the operator's."""

    def __init__(self, sandbox: Sandbox, options: BrowserOptions) -> None:
        super().__init__(UseBrowser, self._use)
        # The agent answers with its other tools.
        calls = tuple(name for name in options.calls if name != "send_msg_to_user")
        self._sandbox = sandbox
        self._options = options.model_copy(update={"calls": calls})
        self._tab_count = 1
        description = f"""{inspect.getdoc(UseBrowser)}

While several tabs are open, tab_focus(index) and tab_close() are also allowed. The other calls:

{describe_calls(calls)}"""
        code = self.spec.parameters["properties"]["code"]
        self.spec = self.spec.model_copy(
            update={
                "description": description,
                "parameters": {**self.spec.parameters, "properties": {"code": code}},
            }
        )

    def parse(self, arguments: dict[str, Any]) -> Action:
        if further := arguments.keys() - {"code"}:
            raise ValueError(f"`{min(further)}` is not a field")
        return super().parse(arguments)

    async def _use(self, action: UseBrowser) -> AnyObservation:
        result = await self._sandbox.act(build_action(self._options, action.code, self._tab_count))
        if isinstance(result, PageSnapshot):
            self._tab_count = len(result.tabs)
        return result


def build_browser_tools(
    settings: RunSettings, features: Collection[SandboxFeature], model: Model, sandbox: Sandbox
) -> tuple[Tool, ...]:
    """Returns `use_browser` if the operator allows it. The tool needs a browser and a model with vision."""
    if not settings.agent_uses_browser or "browser" not in features:
        return ()
    if not model.supports_vision:
        logger.warning("use_browser not offered, no vision", extra={"model": model.name})
        return ()
    return (BrowserTool(sandbox, limit_to_model(options_from_settings(settings), supports_vision=True)),)
