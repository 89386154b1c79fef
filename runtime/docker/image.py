"""Images as build folders made in memory: bundles, which are made once, and the runtime layer on a base image."""

import io
import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from runtime import VERSION
from runtime.errors import ImageUnavailable
from runtime.plugins import Plugin
from runtime.sandbox import CA_VARIABLES, INDEX_VARIABLES

REPOSITORY = "patchwright-runtime"
BUNDLES = "patchwright-bundle"
UID = 10001
ROOT = "/workspace"
SCRATCH = "/tmp"  # in the container, where it is a file system of its own
OURS = "/opt/patchwright"
APP = f"{OURS}/app"
PYTHON = f"{OURS}/python/bin/python3"
CERTIFICATES = f"{OURS}/ca.crt"

BASE = "io.patchwright.base"
WITH = "io.patchwright.plugins"
FOUNDATION = "io.patchwright.foundation"
GENERATION = "io.patchwright.generation"
OLDEST = 20  # updates on top of each other; an image may have 127 layers

INDEX = "https://pypi.org/simple"
RUNTIME = Path(__file__).parents[1]
# What of it runs on the host only, or in builds; a change there must not rebuild anybody's image.
HOST_ONLY = frozenset(
    {
        "docker",
        "egress",
        "errors.py",
        "lease.py",
        "local.py",
        "recipes",
        "remote.py",
        "sandbox.py",
        "watched.py",
    }
)

_BUNDLE = """\
FROM {source}
# {source_id}
USER 0:0
LABEL {base}="{name}"
COPY bundle /tmp/bundle
RUN sh /tmp/bundle/prepare.sh && cd /tmp/bundle && \\
    {trust}python3 -E -s -m runtime.recipes.make_{what} {ours} {index} && cd / && rm -rf /tmp/bundle
"""
_PREPARE = """\
set -eu
missing=
command -v bash >/dev/null || missing="$missing bash"
command -v git >/dev/null || missing="$missing git"
command -v python3 >/dev/null || missing="$missing python3"
[ -s /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"
[ -n "$missing" ] || exit 0
command -v apt-get >/dev/null || { echo "error: no apt-get in this image, which lacks:$missing"; exit 1; }
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
rm -rf /var/lib/apt/lists/*
"""
_LAYER = """\
FROM {base}
# {base_id}
USER 0:0
ENV LANG=C.UTF-8 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/project/bin:$PATH:{ours}/bin{env}
COPY --from={bundle} {ours} {ours}
{plugins}LABEL {label}
"""
_PLUGIN = "COPY --from={bundle} {ours}/{plugin} {ours}/{plugin}\n"
# User, directory and first process are those of each container, not of the image.
_CODE = """\
COPY new {ours}/new
RUN ["{python}", "-I", "{ours}/new/install_layer.py", "{ours}", "{uid}"]
"""


def our_code() -> dict[str, bytes]:
    """What of this package goes into the container: path below the build folder -> content."""
    return {
        f"new/app/runtime/{path.relative_to(RUNTIME).as_posix()}": path.read_bytes()
        for path in RUNTIME.rglob("*.py")
        if path.relative_to(RUNTIME).parts[0] not in HOST_ONLY
    }


@dataclass(frozen=True, slots=True)
class Bundle:
    """An interpreter, bash and git that run on any base image, taken from one image that has them."""

    source: str
    source_id: str
    ca_bundle: bytes | None = None
    """Certificates that the build trusts; none of them stays in the bundle."""
    package_index: str | None = None

    @property
    def what(self) -> str:
        return f"the interpreter's bundle from {self.source}"

    @property
    def tags(self) -> tuple[str, ...]:
        return (f"{BUNDLES}:{folder_hash(self.files())}",)

    def files(self) -> dict[str, bytes]:
        """The build folder: path -> content."""
        recipes = ("make_bundle.py", "bytecode.py", "independent.py", "wheels.py")
        return self._folder("bundle", recipes, self.source, self.source_id)

    def _folder(self, what: str, recipes: Iterable[str], start: str, start_id: str) -> dict[str, bytes]:
        text = _BUNDLE.format(
            source=start,
            source_id=start_id,
            base=BASE,
            name=self.source,
            trust="" if self.ca_bundle is None else "SSL_CERT_FILE=/tmp/bundle/trusted ",
            what=what,
            ours=OURS,
            index=f"'{_index(self.package_index or INDEX)}'",
        )
        files = {
            "Dockerfile": text.encode(),
            "bundle/prepare.sh": _PREPARE.encode(),
            "bundle/runtime/__init__.py": b"",
            "bundle/runtime/recipes/__init__.py": b"",
            **{f"bundle/runtime/recipes/{name}": _recipe(name) for name in recipes},
        }
        return files if self.ca_bundle is None else {**files, "bundle/trusted": self.ca_bundle}


@dataclass(frozen=True, slots=True)
class PluginBundle(Bundle):
    """A plugin, made on the bundle: it runs by the bundle's interpreter, and shares its loader and libraries."""

    plugin: Plugin = "kernel"
    bundle: str = ""
    """The bundle's tag, which names its content."""

    @property
    def what(self) -> str:
        return f"the plugin {self.plugin}"

    @property
    def tags(self) -> tuple[str, ...]:
        return (f"patchwright-{self.plugin}:{folder_hash(self.files())}",)

    def files(self) -> dict[str, bytes]:
        recipes = (
            "bytecode.py",
            "independent.py",
            "wheels.py",
            f"make_{self.plugin}.py",
            f"{self.plugin}.txt",
        )
        return self._folder(self.plugin, recipes, self.bundle, self.bundle)


@dataclass(frozen=True, slots=True)
class Layer:
    """The runtime layer on one base image."""

    base: str
    base_id: str
    """Identity of the base image, so that a base that moved gets a new layer."""
    bundle: str
    """The bundle's tag."""
    ca_bundle: bytes | None = None
    """Certificates that sandboxes trust beside the base image's own."""
    package_index: str | None = None
    plugins: Mapping[Plugin, str] = field(default_factory=dict)
    """Each plugin that it has, and the tag of that plugin's bundle."""
    code: Mapping[str, bytes] = field(default_factory=our_code)

    @property
    def what(self) -> str:
        return f"the runtime layer on {self.base}"

    @property
    def exact_tag(self) -> str:
        """Names the content: the same folder has the same tag anywhere, one other byte another."""
        return f"{REPOSITORY}:{folder_hash(self.files())}"

    @property
    def generic_tag(self) -> str:
        """Names the latest layer of this version on this base image with the same plugins, for people."""
        return f"{REPOSITORY}:{_generic(self.base, tuple(self.plugins))}"

    @property
    def tags(self) -> tuple[str, ...]:
        return (self.exact_tag, self.generic_tag)

    @property
    def foundation(self) -> str:
        """Names all but our own code: what an update can be put on."""
        return folder_hash({"Dockerfile": self._beginning("").encode(), **self._installer()})

    def files(self) -> dict[str, bytes]:
        """The build folder from scratch: path -> content."""
        label = f'{BASE}="{self.base}" {WITH}="{" ".join(self.plugins)}" {FOUNDATION}="{self.foundation}"'
        return self._folder(self._beginning(label))

    def update(self, on: str, generation: int) -> dict[str, bytes]:
        """The build folder on an earlier layer of the same foundation: only our code is replaced."""
        return self._folder(f'FROM {on}\nLABEL {GENERATION}="{generation}"\n')

    def _folder(self, beginning: str) -> dict[str, bytes]:
        end = _CODE.format(ours=OURS, python=PYTHON, uid=UID)
        return {"Dockerfile": (beginning + end).encode(), **self._installer(), **self.code}

    def _installer(self) -> dict[str, bytes]:
        files = {"new/install_layer.py": _recipe("install_layer.py")}
        return files if self.ca_bundle is None else {**files, "new/ca.crt": self.ca_bundle}

    def _beginning(self, label: str) -> str:
        env = dict.fromkeys(CA_VARIABLES, CERTIFICATES)
        if self.package_index is not None:
            env |= dict.fromkeys(INDEX_VARIABLES, _index(self.package_index))
        return _LAYER.format(
            base=self.base,
            base_id=self.base_id,
            bundle=self.bundle,
            ours=OURS,
            label=label,
            plugins="".join(
                _PLUGIN.format(bundle=bundle, ours=OURS, plugin=plugin)
                for plugin, bundle in self.plugins.items()
            ),
            env="".join(f" {name}={value}" for name, value in env.items()),
        )


def folder_hash(files: Mapping[str, bytes]) -> str:
    """The same for the same names and contents, whatever their times and order."""
    digest = sha256()
    for name, content in sorted(files.items()):
        digest.update(b"%d %s %d\n" % (len(name), name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()[:32]


def archive(files: Mapping[str, bytes]) -> io.BytesIO:
    """A build folder as a tar archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    packed.seek(0)
    return packed


def split_reference(image: str) -> tuple[str, str]:
    """Repository and tag (or digest) of an image's name; no tag means `latest`."""
    if "@" in image:
        repository, _, digest = image.partition("@")
        return repository, digest
    repository, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:  # the colon of a registry's port
        return image, "latest"
    return repository, tag


def _generic(base: str, plugins: tuple[Plugin, ...]) -> str:
    repository, tag = split_reference(base)
    repository = re.sub(r"[^A-Za-z0-9.-]", "_", repository.replace("/", "_s_"))
    tag = re.sub(r"[^A-Za-z0-9_.-]", "-", tag)
    name = "_".join((f"v{VERSION}", repository, "tag", tag, *(("with", *plugins) if plugins else ())))
    if len(name) <= 128:  # characters; the longest tag that an engine takes
        return name
    return f"{name[:111]}_{sha256((base + name).encode()).hexdigest()[:16]}"


def _recipe(name: str) -> bytes:
    return (RUNTIME / "recipes" / name).read_bytes()


def _index(url: str) -> str:
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise ImageUnavailable("the package index carries a password, which would be left in the image")
    if (
        parts.scheme not in ("http", "https")
        or not re.fullmatch(r"[!-~]+", url)
        or re.search(r"[\\$\"'`]", url)
    ):
        raise ImageUnavailable(f"the package index is not a plain http(s) URL: {url!r}")
    return url
