"""Settings of the network: strict, and never from a repository's file."""

from pathlib import Path

import pytest

from patchwright.bot.composition.composition_root import read_settings
from patchwright.resolver.errors import SettingsError


def test_the_settings_of_the_network_are_strict(tmp_path: Path) -> None:
    environ = {
        "PATCHWRIGHT_NETWORK": "open",
        "PATCHWRIGHT_ALLOWED_HOSTS": "a.example.org, *.example.net",
        "PATCHWRIGHT_ALLOWED_ADDRESSES": "10.1.0.0/16",
        "PATCHWRIGHT_PROXY": "http://me:canary@proxy:3128",
    }
    settings = read_settings({}, environ, None, tmp_path)
    assert settings.network == "open"
    assert settings.allowed_hosts == ("a.example.org", "*.example.net")
    assert settings.allowed_addresses == ("10.1.0.0/16",)
    assert "canary" not in repr(settings) + settings.model_dump_json()
    for name, value, problem in (
        ("NETWORK", "all", "PATCHWRIGHT_NETWORK: 'all' is not one of none, allowlist, open"),
        ("ALLOWED_HOSTS", "https://x.org/", "https://x.org/ is not a host name"),
        ("ALLOWED_ADDRESSES", "0.0.0.0/0", "a metadata service"),
        ("PROXY", "socks5://x:1", "write a proxy as http://host:port"),
        ("DISK_MB", "1", "PATCHWRIGHT_DISK_MB: it must be greater than or equal to 16"),
    ):
        with pytest.raises(SettingsError) as refused:
            read_settings({}, {f"PATCHWRIGHT_{name}": value}, None, tmp_path)
        assert problem in str(refused.value)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_the_machines_own_proxy_is_used_where_it_can_be(name: str, tmp_path: Path) -> None:
    proxy = read_settings({}, {name: "http://proxy:3128"}, None, tmp_path).proxy
    assert proxy is not None and proxy.get_secret_value() == "http://proxy:3128"
    assert read_settings({}, {"HTTPS_PROXY": "socks5://proxy:1"}, None, tmp_path).proxy is None


@pytest.mark.parametrize(
    "line", ['network = "open"', 'allowed_hosts = ["evil.test"]', 'proxy = "http://evil.test"']
)
def test_a_repository_file_cannot_open_the_network(line: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "patchwright.toml").write_text(line)
    with pytest.raises(SettingsError, match="what leaves the sandbox"):
        read_settings({}, {}, None, tmp_path)
