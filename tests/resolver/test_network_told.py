"""What people and the model hear of the agent's network."""

from pathlib import Path

import pytest

from bot.compose import read_settings
from resolver import prose
from resolver.circumstances import Connected
from resolver.domain import Issue, Spent, User, Verdict
from resolver.errors import SettingsError
from resolver.events import Ended, Judged
from resolver.log import FileLogs
from resolver.summary import Summary
from runtime.egress.egress import Visit

PYPI = Visit(host="pypi.org", port=443, times=2, sent=12_300, received=3_400_000)
REFUSED = Visit(host="github.com", port=443, refused="unlisted", times=1)


def body(**story: object) -> str:
    thread = Issue(
        number=7, title="t", body="", author=User(id=1, login="o"), trusted=True, open=True, url=""
    )
    told = Summary(
        **{
            "account": None,
            "ending": "Out of steps.",
            "steps": (),
            "spent": Spent(),
            "model": "m",
            "sandbox": "docker",
            **story,
        }
    )
    return prose.pull_body(thread, Verdict(kind="untested", reason="No tests."), told, ("a.py",), ())


def test_a_pull_request_says_where_its_agent_went_and_where_it_was_not_let() -> None:
    text = body(network="allow-list", visits=(PYPI, REFUSED))
    assert (
        "\nNetwork: `pypi.org` (12 kB up, 3.4 MB down); "
        "refused: `github.com` (it is not on the allow-list (setting `allow_hosts`))\n"
    ) in text
    assert "no network" not in text
    assert "\n\n\n" not in text


def test_a_pull_request_of_a_sandbox_without_network_says_so() -> None:
    assert "docker sandbox, no network\n" in body(network="none")
    assert "Network:" not in body(network="none") + body(network="allow-list")


def test_a_hosts_name_cannot_speak_in_a_pull_request() -> None:
    loud = Visit(host="x`](http://evil.test) @team fixes #3", port=443, refused="literal")
    text = body(network="open", visits=(loud,))
    line = next(line for line in text.splitlines() if line.startswith("Network:"))
    assert line.count("`") == 2 and "@team" not in line and "fixes #3" not in line


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("none", "It has no network"),
        ("allow-list", "the usual package indexes"),
        ("open", "a proxy that leads to public hosts"),
    ],
)
def test_the_model_is_told_the_network_that_it_has(network: prose.Network, said: str) -> None:
    prompt = prose.system("/w", "/tmp", "docker", network)
    assert said in prompt
    assert ("you are not root" in prompt) == (network != "none")  # without one, nothing can be installed


def test_the_settings_of_the_network_are_strict(tmp_path: Path) -> None:
    environ = {
        "PATCHWRIGHT_NETWORK": "open",
        "PATCHWRIGHT_ALLOW_HOSTS": "a.example.org, *.example.net",
        "PATCHWRIGHT_ALLOW_ADDRESSES": "10.1.0.0/16",
        "PATCHWRIGHT_PROXY": "http://me:canary@proxy:3128",
    }
    settings = read_settings({}, environ, None, tmp_path)
    assert settings.network == "open"
    assert settings.allow_hosts == ("a.example.org", "*.example.net")
    assert settings.allow_addresses == ("10.1.0.0/16",)
    assert "canary" not in repr(settings) + settings.model_dump_json()
    for name, value, problem in (
        ("NETWORK", "all", "network (PATCHWRIGHT_NETWORK)"),
        ("ALLOW_HOSTS", "https://x.org/", "https://x.org/ is not a host name"),
        ("ALLOW_ADDRESSES", "0.0.0.0/0", "a metadata service"),
        ("PROXY", "socks5://x:1", "a proxy is given as http://host:port"),
        ("DISK_MB", "1", "disk_mb (PATCHWRIGHT_DISK_MB)"),
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
    "line", ['network = "open"', 'allow_hosts = ["evil.test"]', 'proxy = "http://evil.test"']
)
def test_a_file_in_somebodys_repository_opens_no_network(line: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "patchwright.toml").write_text(line)
    with pytest.raises(SettingsError, match="what leaves the sandbox"):
        read_settings({}, {}, None, tmp_path)


async def test_the_log_keeps_what_each_round_did_and_adds_it_up(tmp_path: Path) -> None:
    async with FileLogs(tmp_path).open("run") as log:
        await log.append(Ended(reason="finished", detail="Done."))
        await log.append(Connected(visits=(PYPI,)))
        await log.append(Judged(verdict=Verdict(kind="untested")))
        await log.append(Connected(visits=(PYPI, REFUSED)))
    kept = FileLogs(tmp_path).read("run")
    assert kept.visits() == (
        PYPI.model_copy(update={"times": 4, "sent": 24_600, "received": 6_800_000}),
        REFUSED,
    )
