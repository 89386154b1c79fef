"""Where a sandbox's plugins lie, and what is said of one that is not there."""

from pathlib import Path

import pytest

from runtime.plugins import PLUGINS, Plugins


def test_a_plugin_is_there_if_its_packages_are(tmp_path: Path) -> None:
    plugins = Plugins(tmp_path)
    (tmp_path / "kernel" / "lib").mkdir(parents=True)
    assert [plugin for plugin in PLUGINS if plugins.has(plugin)] == ["kernel"]
    assert plugins.packages("kernel") == tmp_path / "kernel" / "lib"


def test_each_version_of_python_has_its_own_kernel(tmp_path: Path) -> None:
    (tmp_path / "kernel" / "cp39").mkdir(parents=True)
    assert Plugins(tmp_path).kernel_packages((3, 9)) == tmp_path / "kernel" / "cp39"
    assert Plugins(tmp_path).kernel_packages((3, 8)) is None
    assert Plugins().kernel_packages((3, 9)) is None


def test_chromium_is_the_plugins_own_or_the_machines(tmp_path: Path) -> None:
    program = tmp_path / "browser" / "bin" / "chromium"
    assert Plugins(tmp_path).chromium("/usr/bin") is None
    program.parent.mkdir(parents=True)
    program.touch()
    assert Plugins(tmp_path).chromium() == str(program)

    assert Plugins().chromium(str(tmp_path)) is None
    (tmp_path / "google-chrome").touch(0o755)
    assert Plugins().chromium(str(tmp_path)) == str(tmp_path / "google-chrome")


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_is_missing_is_told_with_how_to_get_it(plugin: str, tmp_path: Path) -> None:
    assert f"pip install patchwright[{plugin}]" in Plugins().missing(plugin)
    assert "setting `plugins`" in Plugins(tmp_path).missing(plugin)
