"""The operator's settings of the network as the sandboxes' way out."""

from resolver.settings.settings import Settings
from runtime.egress.egress import Upstream, policy
from runtime.egress.proxy import Egress


def egress(settings: Settings) -> Egress | None:
    """How a sandbox that is opened online gets out; None: it does not."""
    allowed = policy(
        settings.network,
        settings.allow_hosts,
        settings.package_index,
        settings.upload_mb,
        settings.allow_addresses,
    )
    upstream = Upstream.of(settings.proxy.get_secret_value()) if settings.proxy else None
    return Egress(allowed, upstream) if allowed else None
