"""Builds the network access of sandboxes (`runtime/egress/`) from the settings."""

from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.egress.proxy import EgressConfig
from patchwright.runtime.egress_policy import UpstreamProxy, build_policy


def build_egress(settings: Settings) -> EgressConfig | None:
    """Returns the egress configuration, or None if sandboxes have no network."""
    allowed = build_policy(
        settings.network,
        settings.allowed_hosts,
        settings.package_index,
        settings.max_upload_mb,
        settings.allowed_addresses,
    )
    upstream = UpstreamProxy.from_url(settings.proxy.get_secret_value()) if settings.proxy else None
    return EgressConfig(allowed, upstream) if allowed else None
