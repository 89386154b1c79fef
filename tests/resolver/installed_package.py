"""Installs a package with entry points into a directory, as pip would."""

from pathlib import Path


def install_package(directory: Path, module: str, code: str, group: str, *names: str) -> None:
    """Writes a module, and registers these names of it in an entry point group."""
    (directory / f"{module}.py").write_text(code)
    facts = directory / f"{module}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    entries = "".join(f"{name} = {module}:{name}\n" for name in names)
    (facts / "entry_points.txt").write_text(f"[{group}]\n{entries}")
