import ast
import os
import re
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from runtime import VERSION
from runtime.docker.image import (
    RUNTIME,
    UID,
    Bundle,
    Layer,
    PluginBundle,
    archive,
    folder_hash,
    split_reference,
)
from runtime.errors import ImageUnavailable
from runtime.plugins import PLUGINS
from runtime.recipes import make_browser, make_bundle

LAYER = Layer("debian:bookworm-slim", "sha256:1", "patchwright-bundle:1")


def test_the_version_is_that_of_the_package() -> None:
    project = Path(__file__).parents[3] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == VERSION


def test_the_exact_tag_does_not_depend_on_times() -> None:
    before = LAYER.exact_tag
    os.utime(RUNTIME / "shell.py")
    assert (
        Layer("debian:bookworm-slim", "sha256:1", "patchwright-bundle:1", code=LAYER.code).exact_tag == before
    )
    assert re.fullmatch("patchwright-runtime:[0-9a-f]{32}", before)


def test_the_hash_of_a_folder_depends_on_names_and_bytes_and_on_nothing_else() -> None:
    assert folder_hash({"a": b"1", "b": b"2"}) == folder_hash({"b": b"2", "a": b"1"})
    assert (
        len({folder_hash(each) for each in ({"a": b"1"}, {"a": b"2"}, {"b": b"1"}, {"a": b"1", "b": b""})})
        == 4
    )


@pytest.mark.parametrize(
    "other",
    [
        Layer("debian:bookworm", "sha256:1", "patchwright-bundle:1"),
        Layer("debian:bookworm-slim", "sha256:2", "patchwright-bundle:1"),
        Layer("debian:bookworm-slim", "sha256:1", "patchwright-bundle:2"),
        Layer("debian:bookworm-slim", "sha256:1", "patchwright-bundle:1", ca_bundle=b"x"),
        Layer("debian:bookworm-slim", "sha256:1", "patchwright-bundle:1", plugins={"kernel": "kernel:1"}),
        Layer(
            "debian:bookworm-slim",
            "sha256:1",
            "patchwright-bundle:1",
            package_index="https://index.test/simple",
        ),
    ],
)
def test_another_content_has_another_exact_tag_and_another_foundation(other: Layer) -> None:
    assert other.exact_tag != LAYER.exact_tag
    assert other.foundation != LAYER.foundation


def test_other_code_of_ours_stands_on_the_same_foundation() -> None:
    code = {**LAYER.code, "new/app/runtime/server.py": b"#"}
    other = Layer(LAYER.base, LAYER.base_id, LAYER.bundle, code=code)
    assert other.exact_tag != LAYER.exact_tag
    assert (other.foundation, other.generic_tag) == (LAYER.foundation, LAYER.generic_tag)


def test_each_plugin_is_copied_from_its_own_bundle_and_named_in_the_generic_tag() -> None:
    layer = Layer("debian", "sha256:1", "bundle:1", plugins={"kernel": "kernel:1", "browser": "browser:1"})
    dockerfile = layer.files()["Dockerfile"].decode()
    copied = re.findall(r"^COPY --from=(\S+) (\S+) \2$", dockerfile, re.MULTILINE)
    assert copied == [
        ("bundle:1", "/opt/patchwright"),
        ("kernel:1", "/opt/patchwright/kernel"),
        ("browser:1", "/opt/patchwright/browser"),
    ]
    assert layer.generic_tag == f"patchwright-runtime:v{VERSION}_debian_tag_latest_with_kernel_browser"
    assert {layer.exact_tag} & {
        Layer("debian", "sha256:1", "bundle:1", plugins=other).exact_tag
        for other in ({}, {"kernel": "kernel:1"}, {"kernel": "kernel:2", "browser": "browser:1"})
    } == set()


def test_a_change_of_one_plugins_recipe_makes_no_other_anew() -> None:
    folders = {plugin: PluginBundle("debian", "x", plugin=plugin, bundle="b:1").files() for plugin in PLUGINS}
    for plugin, files in folders.items():
        own = {f"bundle/runtime/recipes/make_{plugin}.py", f"bundle/runtime/recipes/{plugin}.txt"}
        assert own <= files.keys()
        assert not any(own & other.keys() for name, other in folders.items() if name != plugin)
        assert not own & Bundle("debian", "x").files().keys()
        assert f"-m runtime.recipes.make_{plugin} ".encode() in files["Dockerfile"]


def test_another_bundle_gives_another_plugin() -> None:
    one, two = (PluginBundle("debian", "x", plugin="kernel", bundle=f"b:{each}") for each in "12")
    assert one.tags != two.tags
    assert one.tags[0].startswith("patchwright-kernel:")


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_pins_of_a_plugin_are_what_the_extra_of_its_name_allows(plugin: str) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    recipes = RUNTIME / "recipes"
    lines = (recipes / f"{plugin}.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    for allowed in map(Requirement, project["optional-dependencies"][plugin]):
        pinned = [pin for pin in pins if canonicalize_name(pin.name) == canonicalize_name(allowed.name)]
        assert pinned
        for pin in pinned:
            assert allowed.specifier.contains(str(pin.specifier).removeprefix("=="))


def test_an_update_replaces_our_code_alone() -> None:
    update = LAYER.update("sha256:7", generation=3)
    assert update["Dockerfile"].startswith(b"FROM sha256:7\n")
    assert b"COPY --from" not in update["Dockerfile"]
    assert update.keys() == LAYER.files().keys()


def test_the_container_gets_its_own_side_of_the_package_and_nothing_else() -> None:
    names = set(LAYER.files())
    assert {
        "Dockerfile",
        "new/install_layer.py",
        "new/app/runtime/server.py",
        "new/app/runtime/shell.py",
    } <= names
    assert not any(
        name.endswith(("docker.py", "engine.py", "proxy.py", "remote.py", "local.py", "make_bundle.py"))
        for name in names
    )
    assert all(
        name in ("Dockerfile", "new/install_layer.py") or name.startswith("new/app/runtime/")
        for name in names
    )


def test_what_the_programs_in_the_container_import_is_there_and_nothing_else_of_ours() -> None:
    programs = ("server.py", "bridge.py", "documents/converter.py", "kernel/boot.py", "search/searcher.py")
    todo = [*(RUNTIME / name for name in programs), *RUNTIME.glob("skills/*.py")]
    needed: set[Path] = set()
    while todo:
        if (path := todo.pop()) not in needed:
            needed |= {path, path.with_name("__init__.py")}
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "runtime":
                    modules = (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
                    files = (RUNTIME.parent / f"{str(module).replace('.', '/')}.py" for module in modules)
                    todo += [file for file in files if file.is_file()]
    names = {f"new/app/{path.relative_to(RUNTIME.parent).as_posix()}" for path in needed}
    assert names == LAYER.code.keys()


def test_our_interpreter_looks_where_the_plugins_keep_their_libraries() -> None:
    assert make_bundle.PLUGINS == PLUGINS


def test_the_browsers_driver_finds_its_code_compiled_for_the_sandboxs_user() -> None:
    assert make_browser.SANDBOX_USER == UID


def test_the_archive_holds_the_folder() -> None:
    with tarfile.open(fileobj=archive(LAYER.files())) as tar:
        assert {entry.name: tar.extractfile(entry).read() for entry in tar} == LAYER.files()


@pytest.mark.parametrize(
    ("base", "tag"),
    [
        ("ubuntu:22.04", "ubuntu_tag_22.04"),
        ("ubuntu", "ubuntu_tag_latest"),
        ("ghcr.io/o/r/img:1.0-x", "ghcr.io_s_o_s_r_s_img_tag_1.0-x"),
        ("localhost:5000/img", "localhost_5000_s_img_tag_latest"),
        ("localhost:5000/a/b:c", "localhost_5000_s_a_s_b_tag_c"),
        ("img@sha256:abcd", "img_tag_sha256-abcd"),
        ("img:tag@sha256:abcd", "img_tag_tag_sha256-abcd"),
    ],
)
def test_the_generic_tag_names_base_and_version(base: str, tag: str) -> None:
    generic = Layer(base, "x", "b").generic_tag
    assert generic == f"patchwright-runtime:v{VERSION}_{tag}"
    assert re.fullmatch(r"[\w][\w.-]{0,127}", generic.partition(":")[2])


def test_a_generic_tag_is_never_too_long() -> None:
    tags = {Layer(f"registry.test/{'x' * 200}/{name}", "x", "b").generic_tag for name in "ab"}
    assert len(tags) == 2
    assert all(len(tag.partition(":")[2]) == 128 for tag in tags)


def test_a_reference_splits_at_its_tag_and_not_at_a_port() -> None:
    assert split_reference("host:5000/a/b:c") == ("host:5000/a/b", "c")
    assert split_reference("host:5000/a/b") == ("host:5000/a/b", "latest")
    assert split_reference("a@sha256:12") == ("a", "sha256:12")


@pytest.mark.parametrize(
    "url", ["https://user:secret@index.test", "file:///etc", "https://x y", "https://$HOME/", "https://x/'"]
)
def test_an_index_that_does_not_belong_into_an_image_is_refused(url: str) -> None:
    for made in (
        Layer("debian", "x", "b", package_index=url).files,
        Bundle("debian", "x", package_index=url).files,
    ):
        with pytest.raises(ImageUnavailable) as refused:
            made()
        assert "secret" not in str(refused.value)


def test_the_operators_certificates_are_used_for_the_bundle_and_do_not_stay_in_it() -> None:
    files = Bundle("debian", "x", ca_bundle=b"CERT").files()
    assert files["bundle/trusted"] == b"CERT"
    assert b"SSL_CERT_FILE=/tmp/bundle/trusted" in files["Dockerfile"]
    assert b"rm -rf /tmp/bundle" in files["Dockerfile"]
