"""The pairs of releases, and their source files, which are downloaded when they are needed."""

import hashlib
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict

PAIRS = Path(__file__).parent / "pairs.json"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "patchwright-real-fixes"
PYPI_INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
NPM_REGISTRY = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org").rstrip("/")
GENERATED = ("PKG-INFO", ".hgtags", ".hg_archival.txt")  # files that packaging tools add to a release

Registry = Literal["pypi", "npm"]
Files = dict[str, bytes]
"""Contents of files by path."""


class Release(BaseModel):
    """A published source archive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    sha256: str


class Pair(BaseModel):
    """Two consecutive releases of a package, and the verdict that their difference should get."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


def save_pairs(pairs: list[Pair]) -> None:
    rows = [pair.model_dump(exclude_defaults=True) for pair in pairs]
    PAIRS.write_text(json.dumps(rows, indent=1) + "\n")


def download(registry: Registry, name: str, release: Release) -> Files:
    """Returns the files of a release, without its top directory. Raises ValueError if its hash is wrong."""
    content = fetch(find_url(registry, name, release))
    if hashlib.sha256(content).hexdigest() != release.sha256:
        raise ValueError(f"{name} {release.version} has another hash than expected")
    return read_archive(content)


def find_url(registry: Registry, name: str, release: Release) -> str:
    if registry == "npm":
        package: dict[str, Any] = get_json(f"{NPM_REGISTRY}/{name}")
        return str(package["versions"][release.version]["dist"]["tarball"])
    files = get_json(f"{PYPI_INDEX}/{name}/")["files"]
    urls = [str(file["url"]) for file in files if file["hashes"].get("sha256") == release.sha256]
    if not urls:
        raise ValueError(f"{name} {release.version} is not on the index any more")
    return urls[0]


def get_json(url: str) -> Any:
    headers = {"accept": "application/vnd.pypi.simple.v1+json, application/json;q=0.5"}
    return httpx.get(url, headers=headers, follow_redirects=True, timeout=60).raise_for_status().json()


def fetch(url: str) -> bytes:
    """Returns the content of a URL, which is downloaded only once."""
    stored = CACHE / hashlib.sha256(url.encode()).hexdigest()
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
    return path.name in GENERATED or any(part.endswith(".egg-info") for part in path.parts)
