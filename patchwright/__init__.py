"""Patchwright: label an issue `fix-me`, get a tested pull request.

This package exports the public Python API (`docs/library.md`). Each name is imported on first use, so that
`import patchwright` is fast. All other modules are internal.

In a checkout the subpackages are symbolic links to the folders at the top level, so that each module has one
name, `patchwright.resolver.pipeline.resolve` for instance, in a checkout, an editable install and a wheel alike.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patchwright.sdk.agents import (
        Agent,
        AgentState,
        BaseAgent,
        CustomAgent,
        ToolRequest,
        default_agent,
    )
    from patchwright.sdk.conversation import Conversation, ConversationState
    from patchwright.sdk.llm import LLM, RouterLLM
    from patchwright.sdk.local_conversation import LocalConversation
    from patchwright.sdk.resolution import Resolution, resolve_issue
    from patchwright.sdk.tools import Tool, tool
    from patchwright.sdk.workspaces.base import BaseWorkspace, CommandOutput
    from patchwright.sdk.workspaces.docker import DockerWorkspace
    from patchwright.sdk.workspaces.factory import Workspace
    from patchwright.sdk.workspaces.local import LocalWorkspace
    from patchwright.sdk.workspaces.remote import RemoteWorkspace

_MODULES = {
    "sdk.agents": "Agent AgentState BaseAgent CustomAgent ToolRequest default_agent",
    "sdk.conversation": "Conversation ConversationState",
    "sdk.llm": "LLM RouterLLM",
    "sdk.local_conversation": "LocalConversation",
    "sdk.resolution": "Resolution resolve_issue",
    "sdk.tools": "Tool tool",
    "sdk.workspaces.base": "BaseWorkspace CommandOutput",
    "sdk.workspaces.docker": "DockerWorkspace",
    "sdk.workspaces.factory": "Workspace",
    "sdk.workspaces.local": "LocalWorkspace",
    "sdk.workspaces.remote": "RemoteWorkspace",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "LLM",
    "Agent",
    "AgentState",
    "BaseAgent",
    "BaseWorkspace",
    "CommandOutput",
    "Conversation",
    "ConversationState",
    "CustomAgent",
    "DockerWorkspace",
    "LocalConversation",
    "LocalWorkspace",
    "RemoteWorkspace",
    "Resolution",
    "RouterLLM",
    "Tool",
    "ToolRequest",
    "Workspace",
    "default_agent",
    "resolve_issue",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
