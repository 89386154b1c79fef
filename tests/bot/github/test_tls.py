"""SSL contexts for requests to GitHub."""

import os
from pathlib import Path

from patchwright.bot.github.tls import create_ssl_context
from tests.conftest import AUTHORITY


def test_clients_share_a_context_until_the_file_with_authorities_changes(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(AUTHORITY.read_bytes())
    first = create_ssl_context(bundle)
    assert create_ssl_context(bundle) is first
    assert create_ssl_context(None) is not first
    os.utime(bundle, ns=(1, 1))
    assert create_ssl_context(bundle) is not first
