"""What holds for every test: the same environment anywhere, and no silent skip where none is allowed."""

import errno
import functools
import gc
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import certifi
import hypothesis
import pytest
from cryptography.hazmat.primitives import serialization

if TYPE_CHECKING:
    from patchwright.demo.github import FakeGitHub

BASE_IMAGE = "debian:bookworm-slim"
AUTHORITY = Path(__file__).with_name("authority.pem")  # its private key does not exist
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")

# Read before the scrub below: a product process that a test starts must not see them.
RULES: dict[str, Any] = {
    "no_skip": os.environ.get("PATCHWRIGHT_NO_SKIP", "") not in ("", "0"),
    "deadline": float(os.environ.get("PATCHWRIGHT_TEST_DEADLINE", "inf")),
}
"""What applies to all processes of pytest-xdist. No test starts after the deadline, a Unix time."""

# On a closed network an image cannot be built without the first two. script/regenerate sets the third.
KEPT = ("PATCHWRIGHT_CA_BUNDLE", "PATCHWRIGHT_PACKAGE_INDEX", "PATCHWRIGHT_REGENERATE")

# script/regenerate and script/test-models ask the model that the outer shell names.
ASKING = os.environ.get("PATCHWRIGHT_REGENERATE", "keep") != "keep" or bool(
    os.environ.get("PATCHWRIGHT_TEST_MODELS")
)


# Without HTTPS_PROXY, because Patchwright reads it as a setting; most programs use ALL_PROXY for HTTPS, too.
NOWHERE = {
    **dict.fromkeys(("ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
}


# A shell lets a background job ignore Ctrl-C, and every process that the tests start would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_ours_to_set(name: str) -> bool:
    """True if only tests may set this variable, because a value of the outer shell would change the tests."""
    if name in KEPT or ASKING:
        return False
    return (
        name.startswith(("PATCHWRIGHT_", "GITHUB_"))
        or name.endswith("_API_KEY")
        # Set while git runs a hook: every git command below would work on the wrong repository.
        or name in ("REDIS_URL", "GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE")
    )


for _name in filter(_is_ours_to_set, tuple(os.environ)):
    del os.environ[_name]


# Checking a key takes 130 ms. All tests use the same few keys, and each client of an App loads its key twice.
serialization.load_pem_private_key = functools.cache(serialization.load_pem_private_key)


# The same examples anywhere, and no failure because the machine was busy: the time of a test is limited elsewhere.
hypothesis.settings.register_profile(
    "everywhere", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("everywhere")


@functools.cache
def missing_for_docker() -> str | None:
    """Why no Docker test can run here; None when they can."""
    import docker.errors  # not at the top, because the tests of some layers run without it

    try:
        client = docker.from_env(timeout=10)
        client.ping()
    except (docker.errors.DockerException, OSError) as exc:
        return f"no Docker engine answers: {exc}"
    try:
        client.images.get(BASE_IMAGE)
    except docker.errors.ImageNotFound:
        return f"the base image {BASE_IMAGE} is not here: `docker pull {BASE_IMAGE}`, or see .ci/run"
    except docker.errors.DockerException as exc:
        return f"the Docker engine does not list its images: {exc}"
    finally:
        client.close()
    return None


@functools.cache
def missing_for_browser() -> str | None:
    """Why no browser test can run here; None when they can."""
    if any(map(shutil.which, CHROMIUM)):
        return None
    return "no Chromium on PATH: `apt-get install chromium`"


@functools.cache
def missing_for_redis() -> str | None:
    """Why no test with an embedded Redis can run here; None when they can."""
    from patchwright.bot.redis.embedded_redis import find_redis_server
    from patchwright.resolver.errors import SettingsError

    try:
        find_redis_server()
    except SettingsError as exc:
        return str(exc)
    return None


@functools.cache
def missing_for_compose() -> str | None:
    """Why compose.yaml cannot be started here; None when it can."""
    if shutil.which("docker-compose"):
        return None
    if shutil.which("docker"):
        result = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if result.returncode == 0:
            return None
    return "no Docker Compose: `apt-get install docker-compose`"


NO_TIME = "the time of PATCHWRIGHT_TEST_DEADLINE has passed"
SLOW_FILE = re.compile(r"^pytestmark = .*\bmark\.slow\b", re.MULTILINE)
MISSING = {
    "browser": missing_for_browser,
    "compose": missing_for_compose,
    "docker": missing_for_docker,
    "redis": missing_for_redis,
}


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["rules"] = RULES


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # what the collection makes stays
    RULES.update(getattr(config, "workerinput", {}).get("rules", {}))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not import files of slow tests if those are not selected."""
    if not config.option.markexpr.endswith("not slow") or collection_path.suffix != ".py":
        return None
    return SLOW_FILE.search(collection_path.read_text()) is not None or None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > RULES["deadline"]:
        pytest.skip(NO_TIME)
    for marker, missing in MISSING.items():
        if item.get_closest_marker(marker) and (reason := missing()):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if (
        RULES["no_skip"]
        and report.skipped
        and not hasattr(report, "wasxfail")
        and NO_TIME not in str(report.longrepr)
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped, where PATCHWRIGHT_NO_SKIP allows no skip: {report.longrepr}"


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shortens ids of megabytes: the processes send them to each other, and the system rejects them as variables."""
    if not isinstance(val, str | bytes) or len(val) <= 200:
        return None
    start = val[:60] if isinstance(val, str) else val[:60].decode("latin-1")
    return f"{start}... ({len(val)} characters)"


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each test belongs to one of the tiers unit, llm and bench.

    Docker cases run one after the other, in one worker: they share images and the names of containers.

    They come first, so that this worker is not alone at the end. The controls come last: a deadline may leave them out.
    """
    for item in items:
        if not (item.get_closest_marker("llm") or item.get_closest_marker("bench")):
            item.add_marker("unit")
    docker = [item for item in items if item.get_closest_marker("docker")]
    for item in docker:
        item.add_marker(pytest.mark.xdist_group("docker"))
    first = frozenset(docker)
    items.sort(key=lambda item: (item not in first, item.get_closest_marker("control") is not None))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """What a test sets for the loggers of this process (bot/observe/logging_setup.py) holds for no other."""
    loggers = [logging.getLogger(name) for name in ("", "bot", "demo", "resolver", "runtime")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def one_authority(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets a certificate file with one authority, because every new client reads it, and a whole one takes 40 ms.

    Tests that may contact other machines keep the system's file.
    """
    if not any(map(request.node.get_closest_marker, ("docker", "internet", "llm"))):
        monkeypatch.setenv("SSL_CERT_FILE", str(AUTHORITY))
        monkeypatch.setattr(certifi, "where", lambda: str(AUTHORITY))


def _is_on_this_machine(address: object) -> bool:
    """True for a Unix socket, and for an address of this machine."""
    if not isinstance(address, tuple):
        return True
    return address[0] == "localhost" or (
        isinstance(address[0], str) and address[0].startswith(("127.", "::1", "0.0.0.0", "::ffff:127."))
    )


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects connections of this process to other machines. Slow tests also set proxies that lead nowhere, for the
    processes that they start; script/test-bare runs the others without any network.

    Tests with a real model, with Docker (image builds install packages) or with the marker `internet` may contact
    other machines.
    """
    if ASKING or any(map(request.node.get_closest_marker, ("llm", "bench", "docker", "internet"))):
        return
    if request.node.get_closest_marker("slow"):
        for name, value in NOWHERE.items():
            monkeypatch.setenv(name, value)

    for name in ("connect", "connect_ex"):
        original = getattr(socket.socket, name)

        def guarded(self: socket.socket, address: Any, original: Any = original) -> Any:
            if not _is_on_this_machine(address):
                raise OSError(
                    errno.ENETUNREACH, f"a test must not connect to {address[0]}: see tests/conftest.py"
                )
            return original(self, address)

        monkeypatch.setattr(socket.socket, name, guarded)


@pytest.fixture
async def fake_github() -> AsyncIterator["FakeGitHub"]:
    """the fake GitHub server, with nothing in it."""
    from patchwright.demo.github import FakeGitHub  # most tests need none of it

    async with FakeGitHub() as fake_github:
        yield fake_github


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A directory with a short name: a Unix socket's path may have 107 bytes, and `tmp_path` is long."""
    path = Path(tempfile.mkdtemp(prefix="pw-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
