"""Patchwright: label an issue `fix-me`, get a tested pull request.

This package exports the public Python API (`docs/library.md`). Each name is imported on first use, so that
`import patchwright` is fast. All other modules are internal.

In a checkout the subpackages are symbolic links to the folders at the top level, so that each module has one
name, `patchwright.resolver.pipeline.resolve` for instance, in a checkout, an editable install and a wheel alike.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patchwright.resolver.errors import (
        LogError,
        LogLocked,
        ModelAccessDenied,
        ModelError,
        SettingsError,
        UsageError,
        WorkspaceError,
    )
    from patchwright.resolver.events import (
        AgentStopped,
        AuxiliaryModelCall,
        Checkpoint,
        Entry,
        Message,
        ModelReply,
        SystemPrompt,
        ToolResult,
    )
    from patchwright.resolver.run_events import Condensation, NetworkAccess, Paused, SubagentSpawned
    from patchwright.runtime.errors import SandboxError
    from patchwright.sdk.agents import (
        Agent,
        AgentState,
        BaseAgent,
        CustomAgent,
        ToolRequest,
        default_agent,
    )
    from patchwright.sdk.api_remote_workspace import APIRemoteWorkspace
    from patchwright.sdk.base_workspace import BaseWorkspace, CommandOutput
    from patchwright.sdk.conversation import BaseConversation, ConversationState
    from patchwright.sdk.docker_workspace import DockerWorkspace
    from patchwright.sdk.factories import Conversation, Workspace
    from patchwright.sdk.llm import LLM, RouterLLM
    from patchwright.sdk.local_conversation import LocalConversation
    from patchwright.sdk.local_workspace import LocalWorkspace
    from patchwright.sdk.remote_conversation import RemoteConversation
    from patchwright.sdk.remote_workspace import RemoteWorkspace
    from patchwright.sdk.resolution import Resolution, aresolve_issue, resolve_issue
    from patchwright.sdk.server_client import ServerError
    from patchwright.sdk.tools import Tool, tool

_MODULES = {
    "sdk.agents": "Agent AgentState BaseAgent CustomAgent ToolRequest default_agent",
    "sdk.conversation": "BaseConversation ConversationState",
    "sdk.factories": "Conversation Workspace",
    "sdk.llm": "LLM RouterLLM",
    "sdk.local_conversation": "LocalConversation",
    "sdk.remote_conversation": "RemoteConversation",
    "resolver.errors": "LogError LogLocked ModelAccessDenied ModelError SettingsError UsageError WorkspaceError",
    "resolver.events": "AgentStopped AuxiliaryModelCall Checkpoint Entry Message ModelReply SystemPrompt ToolResult",
    "resolver.run_events": "Condensation NetworkAccess Paused SubagentSpawned",
    "runtime.errors": "SandboxError",
    "sdk.server_client": "ServerError",
    "sdk.resolution": "Resolution aresolve_issue resolve_issue",
    "sdk.tools": "Tool tool",
    "sdk.api_remote_workspace": "APIRemoteWorkspace",
    "sdk.base_workspace": "BaseWorkspace CommandOutput",
    "sdk.docker_workspace": "DockerWorkspace",
    "sdk.local_workspace": "LocalWorkspace",
    "sdk.remote_workspace": "RemoteWorkspace",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
_LAZY_CLASSES = {"LLM", "Agent"}
"""Classes with which most programs begin. They need pydantic, whose import takes longer than most imports."""

__all__ = [
    "LLM",
    "APIRemoteWorkspace",
    "Agent",
    "AgentState",
    "AgentStopped",
    "AuxiliaryModelCall",
    "BaseAgent",
    "BaseConversation",
    "BaseWorkspace",
    "Checkpoint",
    "CommandOutput",
    "Condensation",
    "Conversation",
    "ConversationState",
    "CustomAgent",
    "DockerWorkspace",
    "Entry",
    "LocalConversation",
    "LocalWorkspace",
    "LogError",
    "LogLocked",
    "Message",
    "ModelAccessDenied",
    "ModelError",
    "ModelReply",
    "NetworkAccess",
    "Paused",
    "RemoteConversation",
    "RemoteWorkspace",
    "Resolution",
    "RouterLLM",
    "SandboxError",
    "ServerError",
    "SettingsError",
    "SubagentSpawned",
    "SystemPrompt",
    "Tool",
    "ToolRequest",
    "ToolResult",
    "UsageError",
    "Workspace",
    "WorkspaceError",
    "aresolve_issue",
    "default_agent",
    "resolve_issue",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"{__name__}.{_MODULE_OF[name]}"
    if name in _LAZY_CLASSES:
        from patchwright.sdk.lazy_class import LazyClass

        value: Any = LazyClass(name, (), {"__module__": module})
    else:
        value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
