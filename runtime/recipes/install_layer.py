"""Installs the runtime layer on a base image; run by the bundle's own interpreter, so it needs nothing of the base.

Runs as root in a build, again when only our own code is new. Arguments: our directory, the sandbox's user id.
"""

import compileall
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

WORK = Path("/workspace")
PROJECT = Path("/opt/project")
CERTIFICATES = (  # of Debian, Alpine and Arch; Fedora and its kin; SUSE
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
POLICIES = Path("/etc/chromium/policies/managed")
PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")

# What a newer Python has in its standard library.
FOR_OLDER = ("tomli-", "exceptiongroup-", "typing_extensions-")


def main() -> None:
    ours, uid = Path(sys.argv[1]), int(sys.argv[2])
    take_code(ours)
    compile_for_project(ours)
    if not WORK.is_dir() or WORK.stat().st_uid != uid:
        add_user(uid)
        WORK.mkdir(exist_ok=True)
        os.chown(WORK, uid, uid)
        scratch()
        collect_certificates(ours)
        add_test_runner(ours / "wheels", uid)


def take_code(ours: Path) -> None:
    """Our code in the place of what an earlier build left."""
    shutil.rmtree(ours / "app", ignore_errors=True)
    shutil.move(ours / "new" / "app", ours / "app")
    compileall.compile_dir(ours / "app", quiet=2)


def compile_for_project(ours: Path) -> None:
    """Spare each session of a project's Python the compiling of what it imports: the kernel, and our skills."""
    python = shutil.which("python3")
    if python is None or not (ours / "kernel").is_dir():
        return
    asked = [python, "-c", "import sys; print(*sys.version_info[:2], sep='')"]
    version = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    places = [
        place
        for place in (ours / "kernel" / f"cp{version}", ours / "app" / "runtime" / "skills")
        if place.is_dir()
    ]
    # What is for a newer version cannot be compiled by an older one; it is not imported either.
    subprocess.run([python, "-m", "compileall", "-q", *places], stdout=subprocess.DEVNULL, check=False)


def add_user(uid: int) -> None:
    """A name and a home for the sandbox's user, where the base image knows no such id."""
    home = Path("/home/agent")
    for file, first, line in (
        ("/etc/passwd", "root:x:0:0::/root:/bin/sh\n", f"agent:x:{uid}:{uid}::{home}:/bin/sh\n"),
        ("/etc/group", "root:x:0:\n", f"agent:x:{uid}:\n"),
    ):
        known = Path(file).read_text() if Path(file).exists() else first
        if not any(entry.split(":")[2:3] == [str(uid)] for entry in known.splitlines()):
            Path("/etc").mkdir(exist_ok=True)
            Path(file).write_text(known + ("" if known.endswith("\n") else "\n") + line)
    home.mkdir(parents=True, exist_ok=True)
    os.chown(home, uid, uid)


def scratch() -> None:
    for directory in (Path("/tmp"), Path("/var/tmp")):
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o777 | stat.S_ISVTX)


def collect_certificates(ours: Path) -> None:
    """One file that programs can be pointed to: the operator's certificates and the base image's, or else ours."""
    own = ours / "new" / "ca.crt"
    base = next((Path(path) for path in CERTIFICATES if Path(path).is_file()), ours / "certificates.crt")
    parts = [path.read_bytes().rstrip() + b"\n" for path in (own, base) if path.is_file()]
    (ours / "ca.crt").write_bytes(b"".join(parts))
    if own.is_file() and (ours / "browser").is_dir():
        usual = (base, ours / "certificates.crt")
        trust_in_chromium(own.read_bytes(), b"".join(path.read_bytes() for path in usual if path.is_file()))


def trust_in_chromium(own: bytes, usual: bytes) -> None:
    """Chromium reads no file of certificates: those of the operator reach it as a policy, less what all know.

    Source: chromeenterprise.google/policies/#CACertificates
    """
    known = set(certificates(usual))
    wanted = [each for each in dict.fromkeys(certificates(own)) if each not in known]
    if wanted:
        POLICIES.mkdir(parents=True, exist_ok=True)
        (POLICIES / "patchwright.json").write_text(json.dumps({"CACertificates": wanted}))


def certificates(bundle: bytes) -> list[str]:
    """The certificates of a PEM file, each as DER in Base64."""
    return [b"".join(body.split()).decode() for body in PEM.findall(bundle)]


def add_test_runner(wheels: Path, uid: int) -> None:
    """Where the repository's Python tests run: what the base has, pytest, and what is installed later.

    Only where the base image has a Python of 3.9 or newer without pytest.
    """
    python = shutil.which("python3")
    if python is None:
        print("this base image has no python3: Python tests cannot be run on it")
        return
    told = subprocess.run(
        [python, "-c", "import sys, venv; print(*sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=False,
    )
    version = tuple(map(int, told.stdout.split())) if told.returncode == 0 else (0, 0)
    if version < (3, 9):
        print(f"this base image's python3 is too old or has no venv module ({told.stdout.strip()})")
        return
    if (
        subprocess.run([python, "-m", "pytest", "--version"], capture_output=True, check=False).returncode
        == 0
    ):
        return
    make = [python, "-m", "venv", "--without-pip", "--system-site-packages", str(PROJECT)]
    subprocess.run(make, check=True)
    packages = PROJECT / "lib" / f"python{version[0]}.{version[1]}" / "site-packages"
    for wheel in sorted(wheels.glob("*.whl")):
        if version < (3, 11) or not wheel.name.startswith(FOR_OLDER):
            zipfile.ZipFile(wheel).extractall(packages)
    if version < (3, 10):
        # Else pip looks for distutils there, which Debian keeps in a package of its own. pip asks for this
        # very name (pip/_internal/locations/__init__.py, _should_use_sysconfig).
        (packages / "sysconfig.pth").write_text("import sysconfig; sysconfig._PIP_USE_SYSCONFIG = True\n")
    interpreter = PROJECT / "bin" / "python3"
    for name, module in (("pip", "pip"), ("pip3", "pip"), ("pytest", "pytest"), ("py.test", "pytest")):
        script = PROJECT / "bin" / name
        script.write_text(
            f"#!{interpreter}\nimport runpy\nrunpy.run_module({module!r}, run_name='__main__')\n"
        )
        script.chmod(0o755)
    compiled = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging")
    subprocess.run(
        [interpreter, "-m", "compileall", "-q", *(packages / each for each in compiled)], check=True
    )
    for path in (PROJECT, *PROJECT.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


if __name__ == "__main__":
    main()
