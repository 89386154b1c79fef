import ast
import os
import re
import tarfile
import tomllib
from pathlib import Path
from typing import cast

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from patchwright.runtime import VERSION
from patchwright.runtime.docker.build_context import (
    DEPENDENCIES_LABEL,
    RUNTIME_PACKAGE,
    SANDBOX_UID,
    Bundle,
    FeatureBundle,
    RuntimeLayer,
    hash_files,
    pack_files,
    split_reference,
)
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.engine_models import ImageInfo
from patchwright.runtime.docker.runtime_layer import build_runtime_layer
from patchwright.runtime.errors import ImageUnavailable
from patchwright.runtime.features import ALL_FEATURES
from patchwright.runtime.image_build import install_layer, make_browser, make_bundle

LAYER = RuntimeLayer("debian:bookworm-slim", "sha256:1", "patchwright-bundle:1")


def test_the_content_tag_does_not_depend_on_times() -> None:
    def tags() -> list[str]:
        """The tags of images that are built now, from files that are read now."""
        layer = RuntimeLayer(LAYER.base, LAYER.base_id, LAYER.bundle_tag)
        feature = FeatureBundle("debian", "x", feature="kernel", bundle_tag="b:1")
        return [*layer.tags, layer.dependencies_hash, *Bundle("debian", "x").tags, *feature.tags]

    before = tags()
    files = [
        RUNTIME_PACKAGE / name
        for name in ("shell.py", "image_build/make_bundle.py", "image_build/kernel.txt")
    ]
    times = {file: file.stat() for file in files}
    try:
        for file in files:
            os.utime(file, (1, 1))
        assert tags() == before
    finally:
        for file, old in times.items():
            os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert re.fullmatch("patchwright-runtime:[0-9a-f]{32}", before[0])


def test_the_hash_of_a_folder_depends_on_names_and_bytes_and_on_nothing_else() -> None:
    assert hash_files({"a": b"1", "b": b"2"}) == hash_files({"b": b"2", "a": b"1"})
    assert (
        len({hash_files(each) for each in ({"a": b"1"}, {"a": b"2"}, {"b": b"1"}, {"a": b"1", "b": b""})})
        == 4
    )


@pytest.mark.parametrize(
    "other",
    [
        RuntimeLayer("debian:bookworm", "sha256:1", "patchwright-bundle:1"),
        RuntimeLayer("debian:bookworm-slim", "sha256:2", "patchwright-bundle:1"),
        RuntimeLayer("debian:bookworm-slim", "sha256:1", "patchwright-bundle:2"),
        RuntimeLayer("debian:bookworm-slim", "sha256:1", "patchwright-bundle:1", ca_bundle=b"x"),
        RuntimeLayer(
            "debian:bookworm-slim", "sha256:1", "patchwright-bundle:1", features={"kernel": "kernel:1"}
        ),
        RuntimeLayer(
            "debian:bookworm-slim",
            "sha256:1",
            "patchwright-bundle:1",
            package_index="https://index.test/simple",
        ),
    ],
)
def test_other_content_has_another_tag_and_dependencies_hash(other: RuntimeLayer) -> None:
    assert other.content_tag != LAYER.content_tag
    assert other.dependencies_hash != LAYER.dependencies_hash


def test_the_content_tag_changes_with_each_byte_and_not_with_the_order_of_paths() -> None:
    files = LAYER.files()
    assert {"Dockerfile", "new/install_layer.py"} <= files.keys()
    assert hash_files(dict(reversed(files.items()))) == hash_files(files)
    for name, content in files.items():
        for at in {0, len(content) // 2, len(content) - 1} if content else ():
            edited = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
            assert hash_files({**files, name: edited}) != hash_files(files), name
    reordered = dict(reversed(LAYER.code.items()))
    assert (
        RuntimeLayer(LAYER.base, LAYER.base_id, LAYER.bundle_tag, code=reordered).content_tag
        == LAYER.content_tag
    )


def test_other_code_has_the_same_dependencies_hash() -> None:
    code = {**LAYER.code, "new/app/patchwright/runtime/execution/action_server.py": b"#"}
    other = RuntimeLayer(LAYER.base, LAYER.base_id, LAYER.bundle_tag, code=code)
    assert other.content_tag != LAYER.content_tag
    assert (other.dependencies_hash, other.readable_tag) == (LAYER.dependencies_hash, LAYER.readable_tag)


class RecordingEngine:
    """Has these images, by tag, and records each call."""

    def __init__(self) -> None:
        self.images: dict[str, ImageInfo] = {}
        self.calls: list[tuple[str, ...]] = []
        self.dockerfile = ""

    async def find_image(self, name: str) -> ImageInfo | None:
        self.calls.append(("find_image", name))
        return self.images.get(name)

    async def list_images(self, repository: str, label: str) -> list[ImageInfo]:
        self.calls.append(("list_images", repository, label))
        return []

    async def build(
        self, description: str, files: dict[str, bytes], tags: tuple[str, ...], log_dir: None
    ) -> None:
        self.calls.append(("build", *tags))
        self.dockerfile = files["Dockerfile"].decode()
        self.images |= dict.fromkeys(tags, ImageInfo("sha256:new", tags, {}, 0, 0))


@pytest.mark.parametrize("found", ["nothing", "other dependencies", "other code", "the same content"])
async def test_each_state_of_the_engine_leads_to_exactly_these_calls(found: str) -> None:
    hashes = {"other dependencies": "x", "other code": LAYER.dependencies_hash}
    engine = RecordingEngine()
    if found in hashes:
        labels = {DEPENDENCIES_LABEL: hashes[found]}
        engine.images[LAYER.readable_tag] = ImageInfo("sha256:7", (LAYER.readable_tag,), labels, 0, 0)
    elif found == "the same content":
        engine.images[LAYER.content_tag] = ImageInfo("sha256:7", LAYER.tags, {}, 0, 0)
    how = await build_runtime_layer(cast(Engine, engine), LAYER)
    look, *others = engine.calls
    assert look == ("find_image", LAYER.content_tag)
    if found == "the same content":
        assert (how, others) == ("reused", [])
        return
    assert others == [
        ("find_image", LAYER.readable_tag),
        ("build", LAYER.content_tag, LAYER.readable_tag),
        ("find_image", LAYER.content_tag),
        ("list_images", "patchwright-runtime", f"io.patchwright.base={LAYER.base}"),
    ]
    assert how == ("updated" if found == "other code" else "built")
    assert engine.dockerfile.startswith("FROM sha256:7\n") == (found == "other code")


def test_each_feature_is_copied_from_its_bundle_and_named_in_the_readable_tag() -> None:
    layer = RuntimeLayer(
        "debian", "sha256:1", "bundle:1", features={"kernel": "kernel:1", "browser": "browser:1"}
    )
    dockerfile = layer.files()["Dockerfile"].decode()
    copied = re.findall(r"^COPY --from=(\S+) (\S+) \2$", dockerfile, re.MULTILINE)
    assert copied == [
        ("bundle:1", "/opt/patchwright"),
        ("kernel:1", "/opt/patchwright/kernel"),
        ("browser:1", "/opt/patchwright/browser"),
    ]
    assert layer.readable_tag == f"patchwright-runtime:v{VERSION}_debian_tag_latest_with_kernel_browser"
    assert {layer.content_tag} & {
        RuntimeLayer("debian", "sha256:1", "bundle:1", features=other).content_tag
        for other in ({}, {"kernel": "kernel:1"}, {"kernel": "kernel:2", "browser": "browser:1"})
    } == set()


def test_a_change_of_one_features_script_rebuilds_no_other() -> None:
    folders = {
        plugin: FeatureBundle("debian", "x", feature=plugin, bundle_tag="b:1").files()
        for plugin in ALL_FEATURES
    }
    for plugin, files in folders.items():
        own = {
            f"bundle/patchwright/runtime/image_build/{name}"
            for name in (f"make_{plugin}.py", f"{plugin}.txt")
        }
        assert own <= files.keys()
        assert not any(own & other.keys() for name, other in folders.items() if name != plugin)
        assert not own & Bundle("debian", "x").files().keys()
        assert f"-m patchwright.runtime.image_build.make_{plugin} ".encode() in files["Dockerfile"]


def test_another_bundle_gives_another_feature_tag() -> None:
    one, two = (FeatureBundle("debian", "x", feature="kernel", bundle_tag=f"b:{each}") for each in "12")
    assert one.tags != two.tags
    assert one.tags[0].startswith("patchwright-kernel:")


@pytest.mark.parametrize("plugin", ALL_FEATURES)
def test_the_pins_of_a_feature_satisfy_its_extra(plugin: str) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    recipes = RUNTIME_PACKAGE / "image_build"
    lines = (recipes / f"{plugin}.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    for allowed in map(Requirement, project["optional-dependencies"][plugin]):
        pinned = [pin for pin in pins if canonicalize_name(pin.name) == canonicalize_name(allowed.name)]
        assert pinned
        for pin in pinned:
            assert allowed.specifier.contains(str(pin.specifier).removeprefix("=="))


def test_an_update_replaces_only_our_code() -> None:
    update = LAYER.update_files("sha256:7", generation=3)
    assert update["Dockerfile"].startswith(b"FROM sha256:7\n")
    assert b"COPY --from" not in update["Dockerfile"]
    assert update.keys() == LAYER.files().keys()


def test_the_container_gets_its_own_side_of_the_package_and_nothing_else() -> None:
    names = set(LAYER.files())
    assert {
        "Dockerfile",
        "new/install_layer.py",
        "new/app/patchwright/runtime/execution/action_server.py",
        "new/app/patchwright/runtime/shell.py",
    } <= names
    assert not any(
        name.endswith(
            (
                "docker.py",
                "engine.py",
                "proxy.py",
                "remote_sandbox.py",
                "local_sandboxes.py",
                "make_bundle.py",
            )
        )
        for name in names
    )
    assert all(
        name in ("Dockerfile", "new/install_layer.py") or name.startswith("new/app/patchwright/")
        for name in names
    )


def test_the_container_has_exactly_the_modules_that_its_programs_import() -> None:
    programs = (
        "execution/action_server.py",
        "stdio_relay.py",
        "documents/converter.py",
        "kernel/ipykernel_main.py",
        "kernel/skill_kernel.py",
        "search/search_main.py",
    )
    root = RUNTIME_PACKAGE.parents[1]
    todo = [*(RUNTIME_PACKAGE / name for name in programs), *RUNTIME_PACKAGE.glob("skills/*.py")]
    needed: set[Path] = set()
    while todo:
        if (path := todo.pop()) not in needed:
            needed |= {path, path.with_name("__init__.py")}
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("patchwright.runtime"):
                    modules = (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
                    files = (root / f"{str(module).replace('.', '/')}.py" for module in modules)
                    todo += [file for file in files if file.is_file()]
    names = {f"new/app/{path.relative_to(root).as_posix()}" for path in needed}
    queries = (root / "patchwright" / "runtime" / "search" / "queries").glob("*.scm")
    names |= {f"new/app/{path.relative_to(root).as_posix()}" for path in queries}
    assert names | {"new/app/patchwright/__init__.py"} == LAYER.code.keys()


def test_what_runs_on_the_repositorys_python_is_compiled_for_it(tmp_path: Path) -> None:
    runtime = tmp_path / "app" / "patchwright" / "runtime"
    modules = [runtime / "kernel" / "skill_kernel.py", runtime / "skills" / "host.py"]
    for module in (*modules, tmp_path / "kernel" / "other_versions.py"):
        module.parent.mkdir(parents=True)
        module.write_text("x = 1\n")
    install_layer.compile_for_project(tmp_path)
    compiled = sorted(path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc"))
    assert compiled == ["host", "skill_kernel"]


def test_our_interpreter_finds_the_libraries_of_features() -> None:
    assert make_bundle.FEATURES == ALL_FEATURES


def test_the_browsers_driver_finds_its_code_compiled_for_the_sandboxs_user() -> None:
    assert make_browser.SANDBOX_UID == SANDBOX_UID


def test_the_archive_holds_the_folder() -> None:
    with tarfile.open(fileobj=pack_files(LAYER.files())) as tar:
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
def test_the_readable_tag_names_base_and_version(base: str, tag: str) -> None:
    generic = RuntimeLayer(base, "x", "b").readable_tag
    assert generic == f"patchwright-runtime:v{VERSION}_{tag}"
    assert re.fullmatch(r"[\w][\w.-]{0,127}", generic.partition(":")[2])


def test_a_readable_tag_is_never_too_long() -> None:
    tags = {RuntimeLayer(f"registry.test/{'x' * 200}/{name}", "x", "b").readable_tag for name in "ab"}
    assert len(tags) == 2
    assert all(len(tag.partition(":")[2]) == 128 for tag in tags)


def test_a_reference_splits_at_its_tag_and_not_at_a_port() -> None:
    assert split_reference("host:5000/a/b:c") == ("host:5000/a/b", "c")
    assert split_reference("host:5000/a/b") == ("host:5000/a/b", "latest")
    assert split_reference("a@sha256:12") == ("a", "sha256:12")


@pytest.mark.parametrize(
    "url", ["https://user:secret@index.test", "file:///etc", "https://x y", "https://$HOME/", "https://x/'"]
)
def test_an_unsafe_package_index_url_is_rejected(url: str) -> None:
    for made in (
        RuntimeLayer("debian", "x", "b", package_index=url).files,
        Bundle("debian", "x", package_index=url).files,
    ):
        with pytest.raises(ImageUnavailable) as refused:
            made()
        assert "secret" not in str(refused.value)


def test_an_empty_package_index_url_counts_as_unset() -> None:
    unset, empty = (RuntimeLayer("debian", "x", "b", package_index=url).files() for url in (None, ""))
    assert unset == empty


def test_the_operators_certificates_are_used_for_the_bundle_and_do_not_stay_in_it() -> None:
    files = Bundle("debian", "x", ca_bundle=b"CERT").files()
    assert files["bundle/trusted"] == b"CERT"
    assert b"SSL_CERT_FILE=/tmp/bundle/trusted" in files["Dockerfile"]
    assert b"rm -rf /tmp/bundle" in files["Dockerfile"]
