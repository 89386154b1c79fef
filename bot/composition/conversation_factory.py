"""Builds the conversations of a server from its settings."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from patchwright.bot.composition.sandbox_factory import build_docker_sandboxes
from patchwright.bot.conversation_models import WorkspaceSpec
from patchwright.bot.conversations.conversation_service import ConversationService
from patchwright.bot.redis.conversation_records import ConversationRecords
from patchwright.bot.redis.shared_run_log import SharedLogStore
from patchwright.bot.setup.credential_key import find_or_create_key, key_settings
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.egress_policy import NetworkMode

_NETWORKS: tuple[NetworkMode, ...] = ("none", "allowlist", "open")
"""From the least access to the most."""


@contextlib.asynccontextmanager
async def open_conversations(
    settings: Settings, environ: Mapping[str, str], redis_url: str
) -> AsyncIterator[ConversationService]:
    """Opens the conversations of a server. Conversations always work in Docker, whatever sandbox jobs use."""
    key = await asyncio.to_thread(find_or_create_key, settings.data, key_settings(settings))
    records = ConversationRecords(redis_url)
    logs = SharedLogStore(FileLogStore(settings.data / "conversations"), redis_url, read_archived=None)

    def build_sandboxes(spec: WorkspaceSpec) -> DockerSandboxes:
        network = min(settings.network, spec.network, key=_NETWORKS.index)
        chosen = settings.model_copy(update={"image": spec.image or settings.image, "network": network})
        return build_docker_sandboxes(chosen, environ, lambda _: None)

    service = ConversationService(records, logs, build_sandboxes, key)
    try:
        yield service
    finally:
        await service.close()
        await logs.close()
        await records.close()
