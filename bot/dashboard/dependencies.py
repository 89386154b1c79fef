"""The dependencies of the dashboard: the stores and clients that its routes use."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from patchwright.bot.dashboard.access_control import AccessControl
from patchwright.bot.dashboard.github_oauth import GitHubOAuth
from patchwright.bot.dashboard.live_runs import LiveRuns
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.engine_health import EngineHealth
from patchwright.bot.redis.heartbeats import Heartbeats
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.redis.sessions import Sessions
from patchwright.bot.redis.shared_run_index import SharedRunIndex
from patchwright.runtime.frozen_model import FrozenModel


class ComponentHealth(FrozenModel):
    """Health of one component of the server."""

    name: str
    is_healthy: bool
    details: str
    """The state of the component in a few words. The dashboard shows this text only to the operator."""


@dataclass(frozen=True)
class DashboardDependencies:
    """The stores and clients that the dashboard's routes use."""

    runs: SharedRunIndex
    sessions: Sessions
    queue: ArqQueue
    inbox: DeliveryInbox
    heartbeats: Heartbeats
    engine_health: EngineHealth
    leader_lease: LeaderLease
    live_runs: LiveRuns
    access_control: AccessControl
    oauth: GitHubOAuth | None
    """The client for sign-in with GitHub; None if sign-in with GitHub is not configured."""
    operator_token: str
    """Token with which the operator signs in; "" if the operator cannot sign in."""
    public_url: str
    """The base URL of the dashboard, without a trailing slash. If it is "", people may use any host name of the
    server.
    """
    github_url: str
    """The URL of GitHub's website, without a trailing slash."""
    mention: str
    """The name with which people mention the bot in comments, such as `@agent`."""
    delivery_counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Number of webhook deliveries since the process started, by event and result."""
