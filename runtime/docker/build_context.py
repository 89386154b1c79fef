"""Creates the build contexts of Docker images in memory. There are two kinds of images.

A bundle contains an interpreter, bash and git, or the programs of one sandbox feature. A runtime layer adds bundles
and Patchwright's code to a base image.
"""

import io
import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from patchwright.runtime import VERSION
from patchwright.runtime.errors import ImageUnavailable
from patchwright.runtime.features import SandboxFeature
from patchwright.runtime.sandbox import CA_VARIABLES, INDEX_VARIABLES

LAYER_REPOSITORY = "patchwright-runtime"
BUNDLE_REPOSITORY = "patchwright-bundle"
SANDBOX_UID = 10001
WORKSPACE_DIR = "/workspace"
SCRATCH_DIR = "/tmp"  # a separate file system in the container
INSTALL_DIR = "/opt/patchwright"
APP_DIR = f"{INSTALL_DIR}/app"
PYTHON = f"{INSTALL_DIR}/python/bin/python3"
CA_FILE = f"{INSTALL_DIR}/ca.crt"

BASE_LABEL = "io.patchwright.base"
FEATURES_LABEL = "io.patchwright.features"
DEPENDENCIES_LABEL = "io.patchwright.dependencies"
GENERATION_LABEL = "io.patchwright.generation"
MAX_GENERATION = 20  # maximum number of updates of a layer; each adds image layers, and an image may have 127

DEFAULT_PACKAGE_INDEX = "https://pypi.org/simple"
RUNTIME_PACKAGE = Path(__file__).parents[1]
# Modules that run only on the host or in image builds. A change in one of them must not rebuild images.
HOST_ONLY = frozenset(
    {
        "docker",
        "egress",
        "errors.py",
        "ownership.py",
        "execution/local_sandboxes.py",
        "egress_policy.py",
        "image_build",
        "remote_sandbox.py",
        "sandbox.py",
        "monitored_sandbox.py",
    }
)

_BUNDLE_DOCKERFILE = """\
FROM {source}
# {source_id}
USER 0:0
LABEL {base_label}="{base}"
COPY bundle /tmp/bundle
RUN sh /tmp/bundle/prepare.sh && cd /tmp/bundle && \\
    {trust}python3 -E -s -m patchwright.runtime.image_build.make_{name} {install_dir} {index} && \\
    cd / && rm -rf /tmp/bundle
"""
_PREPARE_SCRIPT = Path(__file__).with_name("prepare.sh").read_text()
_LAYER_DOCKERFILE = """\
FROM {base}
# {base_id}
USER 0:0
ENV LANG=C.UTF-8 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/project/bin:$PATH:{install_dir}/bin{env}
COPY --from={bundle} {install_dir} {install_dir}
{features}LABEL {label}
"""
_COPY_FEATURE = "COPY --from={bundle} {install_dir}/{feature} {install_dir}/{feature}\n"
# User, working directory and entrypoint are set when a container is created, not in the image.
_INSTALL_CODE = """\
COPY new {install_dir}/new
RUN ["{python}", "-I", "{install_dir}/new/install_layer.py", "{install_dir}", "{uid}"]
"""


def read_container_code() -> dict[str, bytes]:
    """Read the files of the runtime package that are copied into containers. The result maps the path of each
    file in the build context to its content.
    """
    return {
        "new/app/patchwright/__init__.py": b"",
        **{
            f"new/app/patchwright/runtime/{name}": (RUNTIME_PACKAGE / name).read_bytes()
            for name in (
                path.relative_to(RUNTIME_PACKAGE).as_posix()
                for pattern in ("*.py", "*.scm")
                for path in RUNTIME_PACKAGE.rglob(pattern)
            )
            if not {name, name.partition("/")[0]} & HOST_ONLY
        },
    }


@dataclass(frozen=True, slots=True)
class Bundle:
    """An interpreter, bash and git. They are copied from a source image, and run on any base image."""

    source: str
    source_id: str
    ca_bundle: bytes | None = None
    """Certificates that the build trusts. The bundle does not contain them."""
    package_index: str | None = None

    @property
    def description(self) -> str:
        return f"the interpreter bundle from {self.source}"

    @property
    def tags(self) -> tuple[str, ...]:
        return (f"{BUNDLE_REPOSITORY}:{hash_files(self.files())}",)

    def files(self) -> dict[str, bytes]:
        """Return the files of the build context: their contents by path."""
        scripts = ("make_bundle.py", "bytecode.py", "relocatable.py", "wheels.py")
        return self._build_context("bundle", scripts, self.source, self.source_id)

    def _build_context(self, name: str, scripts: Iterable[str], base: str, base_id: str) -> dict[str, bytes]:
        text = _BUNDLE_DOCKERFILE.format(
            source=base,
            source_id=base_id,
            base_label=BASE_LABEL,
            base=self.source,
            trust="" if self.ca_bundle is None else "SSL_CERT_FILE=/tmp/bundle/trusted ",
            name=name,
            install_dir=INSTALL_DIR,
            index=f"'{_check_index_url(self.package_index or DEFAULT_PACKAGE_INDEX)}'",
        )
        files = {
            "Dockerfile": text.encode(),
            "bundle/prepare.sh": _PREPARE_SCRIPT.encode(),
            "bundle/patchwright/__init__.py": b"",
            "bundle/patchwright/runtime/__init__.py": b"",
            "bundle/patchwright/runtime/image_build/__init__.py": b"",
            **{f"bundle/patchwright/runtime/image_build/{name}": _read_script(name) for name in scripts},
        }
        return files if self.ca_bundle is None else {**files, "bundle/trusted": self.ca_bundle}


@dataclass(frozen=True, slots=True)
class FeatureBundle(Bundle):
    """The programs of one sandbox feature. They run with the interpreter, the loader and the libraries of the
    base bundle.
    """

    feature: SandboxFeature = "kernel"
    bundle_tag: str = ""
    """Tag of the base bundle. The tag identifies the content of that bundle."""

    @property
    def description(self) -> str:
        return f"the sandbox feature `{self.feature}`"

    @property
    def tags(self) -> tuple[str, ...]:
        return (f"patchwright-{self.feature}:{hash_files(self.files())}",)

    def files(self) -> dict[str, bytes]:
        scripts = (
            "bytecode.py",
            "relocatable.py",
            "wheels.py",
            f"make_{self.feature}.py",
            f"{self.feature}.txt",
        )
        return self._build_context(self.feature, scripts, self.bundle_tag, self.bundle_tag)


@dataclass(frozen=True, slots=True)
class RuntimeLayer:
    """An image layer that adds bundles and Patchwright's code to one base image."""

    base: str
    base_id: str
    """Id of the base image. If the tag of the base image moves to another image, a new layer is built."""
    bundle_tag: str
    """Tag of the bundle."""
    ca_bundle: bytes | None = None
    """Certificates that sandboxes trust in addition to those of the base image."""
    package_index: str | None = None
    features: Mapping[SandboxFeature, str] = field(default_factory=dict)
    """The features in the layer. Each key is the name of a feature, and its value is the tag of the feature's
    bundle."""
    code: Mapping[str, bytes] = field(default_factory=read_container_code)

    @property
    def description(self) -> str:
        return f"the runtime layer on {self.base}"

    @property
    def content_tag(self) -> str:
        """Return the tag that identifies the content. Equal build contexts have equal tags on all machines."""
        return f"{LAYER_REPOSITORY}:{hash_files(self.files())}"

    @property
    def readable_tag(self) -> str:
        """Return the readable tag. It points to the latest layer for this version, base image and set of features."""
        return f"{LAYER_REPOSITORY}:{_readable_tag(self.base, tuple(self.features))}"

    @property
    def tags(self) -> tuple[str, ...]:
        return (self.content_tag, self.readable_tag)

    @property
    def dependencies_hash(self) -> str:
        """Return a hash of everything in the layer except our own code.

        An earlier layer can be updated only if it has the same hash.
        """
        return hash_files({"Dockerfile": self._dockerfile_head("").encode(), **self._installer_files()})

    def files(self) -> dict[str, bytes]:
        """Return the files of the complete build context: their contents by path."""
        features = " ".join(self.features)
        label = (
            f'{BASE_LABEL}="{self.base}" {FEATURES_LABEL}="{features}" '
            f'{DEPENDENCIES_LABEL}="{self.dependencies_hash}"'
        )
        return self._build_context(self._dockerfile_head(label))

    def update_files(self, earlier: str, generation: int) -> dict[str, bytes]:
        """Return the build context for an update. An update reuses an earlier layer, and replaces only our code in it.

        The earlier layer must have the same dependencies.
        """
        return self._build_context(f'FROM {earlier}\nLABEL {GENERATION_LABEL}="{generation}"\n')

    def _build_context(self, head: str) -> dict[str, bytes]:
        end = _INSTALL_CODE.format(install_dir=INSTALL_DIR, python=PYTHON, uid=SANDBOX_UID)
        return {"Dockerfile": (head + end).encode(), **self._installer_files(), **self.code}

    def _installer_files(self) -> dict[str, bytes]:
        files = {"new/install_layer.py": _read_script("install_layer.py")}
        return files if self.ca_bundle is None else {**files, "new/ca.crt": self.ca_bundle}

    def _dockerfile_head(self, label: str) -> str:
        env = dict.fromkeys(CA_VARIABLES, CA_FILE)
        if self.package_index:
            env |= dict.fromkeys(INDEX_VARIABLES, _check_index_url(self.package_index))
        return _LAYER_DOCKERFILE.format(
            base=self.base,
            base_id=self.base_id,
            bundle=self.bundle_tag,
            install_dir=INSTALL_DIR,
            label=label,
            features="".join(
                _COPY_FEATURE.format(bundle=bundle, install_dir=INSTALL_DIR, feature=feature)
                for feature, bundle in self.features.items()
            ),
            env="".join(f" {name}={value}" for name, value in env.items()),
        )


def hash_files(files: Mapping[str, bytes]) -> str:
    """Hash the names and contents of files. The order and the times of the files do not affect the hash."""
    digest = sha256()
    for name, content in sorted(files.items()):
        digest.update(b"%d %s %d\n" % (len(name), name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()[:32]


def pack_files(files: Mapping[str, bytes]) -> io.BytesIO:
    """Pack the files of a build context into a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def split_reference(image: str) -> tuple[str, str]:
    """Split an image name into repository and tag (or digest). The default tag is `latest`."""
    if "@" in image:
        repository, _, digest = image.partition("@")
        return repository, digest
    repository, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:  # the colon precedes the port of a registry, not a tag
        return image, "latest"
    return repository, tag


def _readable_tag(base: str, features: tuple[SandboxFeature, ...]) -> str:
    repository, tag = split_reference(base)
    repository = re.sub(r"[^A-Za-z0-9.-]", "_", repository.replace("/", "_s_"))
    tag = re.sub(r"[^A-Za-z0-9_.-]", "-", tag)
    name = "_".join((f"v{VERSION}", repository, "tag", tag, *(("with", *features) if features else ())))
    if len(name) <= 128:  # the longest tag that an engine accepts has 128 characters
        return name
    return f"{name[:111]}_{sha256((base + name).encode()).hexdigest()[:16]}"


def _read_script(name: str) -> bytes:
    return (RUNTIME_PACKAGE / "image_build" / name).read_bytes()


def _check_index_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise ImageUnavailable(
            "the URL of the package index contains a password, which would stay in the image"
        )
    if (
        parts.scheme not in ("http", "https")
        or not re.fullmatch(r"[!-~]+", url)
        or re.search(r"[\\$\"'`]", url)
    ):
        raise ImageUnavailable(f"the package index is not a plain http(s) URL: {url!r}")
    return url
