"""Pairs of published releases, of which the newer one fixes the older one, and the download of their files."""

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import httpx

from patchwright.runtime.frozen_model import FrozenModel

PAIRS = Path(__file__).parent / "pairs.json"
GENERATED = ("PKG-INFO", ".hgtags", ".hg_archival.txt")  # files that packaging tools add to a release

Registry = Literal["pypi", "npm"]
Files = dict[str, bytes]
"""Contents of files by path."""


class Release(FrozenModel):
    """A published source archive."""

    version: str
    sha256: str


class Pair(FrozenModel):
    """Two consecutive releases of a package, and the verdict that their difference should get."""

    registry: Registry
    name: str
    old: Release
    new: Release
    verdicts: tuple[str, ...] = ("fixed", "conditional")
    """Kinds of verdict that are right for the upstream change."""
    reason: str = ""
    """Why other kinds are right than usual; empty if they are the usual ones."""


def load_pairs() -> list[Pair]:
    return [Pair.model_validate(row) for row in json.loads(PAIRS.read_text())]


class Registries(FrozenModel):
    """Where releases are downloaded from, and where the downloads are kept."""

    cache: Path
    pypi_index: str = "https://pypi.org/simple"
    npm_registry: str = "https://registry.npmjs.org"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Registries":
        """Uses the variables of pip and npm, so that a mirror works without further settings."""
        cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".cache"
        return cls(
            cache=Path(cache) / "patchwright-releases",
            pypi_index=environ.get("PIP_INDEX_URL") or "https://pypi.org/simple",
            npm_registry=environ.get("NPM_CONFIG_REGISTRY") or "https://registry.npmjs.org",
        )

    def download(self, registry: Registry, name: str, release: Release) -> Files:
        """Returns the files of a release, without its top directory. Raises ValueError if its hash is wrong, and
        HTTPError if the registry does not respond.
        """
        content = self.fetch(self._find_url(registry, name, release))
        if hashlib.sha256(content).hexdigest() != release.sha256:
            raise ValueError(f"{name} {release.version} has another hash than expected")
        return read_archive(content)

    def _find_url(self, registry: Registry, name: str, release: Release) -> str:
        project = self.describe(registry, name)
        if registry == "npm":
            return str(project["versions"][release.version]["dist"]["tarball"])
        urls = [
            str(file["url"]) for file in project["files"] if file["hashes"].get("sha256") == release.sha256
        ]
        if not urls:
            raise ValueError(f"{name} {release.version} is not on the index any more")
        return urls[0]

    def describe(self, registry: Registry, name: str) -> Any:
        """Returns what the registry says about a package, in the registry's own format."""
        base = self.npm_registry if registry == "npm" else self.pypi_index
        url = f"{base.rstrip('/')}/{name}" + ("" if registry == "npm" else "/")
        headers = {"accept": "application/vnd.pypi.simple.v1+json, application/json;q=0.5"}
        return httpx.get(url, headers=headers, follow_redirects=True, timeout=60).raise_for_status().json()

    def fetch(self, url: str) -> bytes:
        """Returns the content of a URL, which is downloaded only once."""
        stored = self.cache / hashlib.sha256(url.encode()).hexdigest()
        if not stored.exists():
            content = httpx.get(url, follow_redirects=True, timeout=60).raise_for_status().content
            stored.parent.mkdir(parents=True, exist_ok=True)
            stored.with_suffix(".new").write_bytes(content)
            stored.with_suffix(".new").rename(stored)
        return stored.read_bytes()


def read_archive(content: bytes) -> Files:
    """Returns the regular files of a .tar.gz or .zip archive, without its top directory."""
    found: Files = {}
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            for name in packed.namelist():
                if not name.endswith("/"):
                    found[name] = packed.read(name)
    else:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None:
                    found[member.name] = file.read()
    return {
        str(path): text
        for name, text in found.items()
        if (path := _without_top(name)) and not _is_generated(path) and ".." not in path.parts
    }


def _without_top(name: str) -> PurePosixPath | None:
    parts = PurePosixPath(name).parts[1:]
    return PurePosixPath(*parts) if parts else None


def _is_generated(path: PurePosixPath) -> bool:
    return path.name in GENERATED or any(part == ".git" or part.endswith(".egg-info") for part in path.parts)
