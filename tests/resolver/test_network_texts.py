"""What people and the model read about the network of the agent's sandbox."""

from pathlib import Path

import pytest

from patchwright.bot.composition.composition_root import read_settings
from patchwright.resolver.activity.summary import Summary
from patchwright.resolver.domain import Issue, Usage, User, Verdict
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.events import AgentStopped, VerificationCompleted
from patchwright.resolver.pipeline.run_start import find_usable_network
from patchwright.resolver.prompts.system_prompt import SandboxDescription, render_system_prompt
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.run_events import NetworkAccess
from patchwright.resolver.run_log import FileLogStore
from patchwright.runtime.egress_policy import ConnectionSummary, NetworkMode
from tests.resolver.sample_runs import run_of, started

PYPI = ConnectionSummary(host="pypi.org", port=443, count=2, bytes_sent=12_300, bytes_received=3_400_000)
REFUSED = ConnectionSummary(host="github.com", port=443, denied="unlisted", count=1)


def body(**story: object) -> str:
    thread = Issue(
        number=7, title="t", body="", author=User(id=1, login="o"), trusted=True, open=True, url=""
    )
    summary = Summary(
        **{
            "finish": None,
            "stop_detail": "Out of steps.",
            "steps": (),
            "usage": Usage(),
            "model": "m",
            "sandbox": "docker",
            **story,
        }
    )
    return reply_texts.render_pull_request_body(
        thread,
        Verdict(kind="untested", reason="No tests."),
        summary,
        reply_texts.PullRequestRemarks(notes=("a.py",)),
    )


def test_a_pull_request_lists_allowed_and_blocked_connections() -> None:
    text = body(network="allowlist", visits=(PYPI, REFUSED))
    assert (
        "\nNetwork: `pypi.org` (12 kB up, 3.4 MB down); "
        "blocked: `github.com` (it is not on the allowlist (setting `allowed_hosts`))\n"
    ) in text
    assert "no network" not in text
    assert "\n\n\n" not in text


def test_a_pull_request_of_a_sandbox_without_network_says_so() -> None:
    assert "docker sandbox, no network\n" in body(network="none")
    assert "Network:" not in body(network="none") + body(network="allowlist")


def test_a_host_name_is_neutralized_in_a_pull_request() -> None:
    loud = ConnectionSummary(host="x`](http://evil.test) @team fixes #3", port=443, denied="literal")
    text = body(network="open", visits=(loud,))
    line = next(line for line in text.splitlines() if line.startswith("Network:"))
    assert line.count("`") == 2 and "@team" not in line and "fixes #3" not in line


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("none", "It has no network"),
        ("allowlist", "the usual package indexes"),
        ("open", "a proxy that leads to public hosts"),
    ],
)
def test_the_system_prompt_describes_the_network(network: NetworkMode, expected: str) -> None:
    prompt = render_system_prompt(SandboxDescription("/w", "/tmp", "docker", network))
    assert expected in prompt
    assert ("You are not root" in prompt) == (
        network != "none"
    )  # Without a network, nothing can be installed.


@pytest.mark.parametrize(
    ("visits", "expected"),
    [
        ((), "allowlist"),
        ((PYPI,), "allowlist"),
        ((REFUSED,), "allowlist"),
        ((REFUSED.model_copy(update={"host": "pypi.org", "denied": "private"}),), "none"),
        ((PYPI, REFUSED.model_copy(update={"denied": "private"})), "allowlist"),
    ],
)
def test_the_model_is_promised_no_network_that_refused_the_setup(
    visits: tuple[ConnectionSummary, ...], expected: NetworkMode
) -> None:
    run = run_of(started(), NetworkAccess(visits=visits))
    assert find_usable_network(run, "allowlist") == expected


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


async def test_network_visits_add_up_over_the_log(tmp_path: Path) -> None:
    async with FileLogStore(tmp_path).open("run") as log:
        await log.append(AgentStopped(reason="finished", detail="Done."))
        await log.append(NetworkAccess(visits=(PYPI,)))
        await log.append(VerificationCompleted(verdict=Verdict(kind="untested")))
        await log.append(NetworkAccess(visits=(PYPI, REFUSED)))
    kept = FileLogStore(tmp_path).read("run")
    assert kept.network_visits() == (
        PYPI.model_copy(update={"count": 4, "bytes_sent": 24_600, "bytes_received": 6_800_000}),
        REFUSED,
    )
