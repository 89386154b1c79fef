"""Installs Patchwright's programs and code on a base image, so that the image can be used as a sandbox.

Runs as root while a sandbox image is built, and again when only our own code changes. The interpreter is the
one that `make_bundle.py` packed, because the base image may contain no Python. The arguments are the install
directory and the user id of the sandbox.
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

WORKSPACE = Path("/workspace")
PROJECT_ENV = Path("/opt/project")
# where distributions keep their certificates: Debian, Alpine and Arch; Fedora and its derivatives; SUSE
SYSTEM_CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
CHROMIUM_POLICY_DIR = Path("/etc/chromium/policies/managed")
PEM_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")

# Packages that newer Pythons contain in their standard library.
BACKPORTS = ("tomli-", "exceptiongroup-", "typing_extensions-")


def main() -> None:
    install_dir, uid = Path(sys.argv[1]), int(sys.argv[2])
    replace_code(install_dir)
    compile_for_project(install_dir)
    if not WORKSPACE.is_dir() or WORKSPACE.stat().st_uid != uid:
        add_user(uid)
        WORKSPACE.mkdir(exist_ok=True)
        os.chown(WORKSPACE, uid, uid)
        create_scratch_dirs()
        collect_certificates(install_dir)
        install_test_runner(install_dir / "wheels", uid)


def replace_code(install_dir: Path) -> None:
    """Replace Patchwright's code from an earlier build with the new code."""
    shutil.rmtree(install_dir / "app", ignore_errors=True)
    shutil.move(install_dir / "new" / "app", install_dir / "app")
    compileall.compile_dir(install_dir / "app", quiet=2)


def compile_for_project(install_dir: Path) -> None:
    """Compile IPython, the code of our kernel and the skills in advance. They run on the base image's own Python."""
    python = shutil.which("python3")
    if python is None or not (install_dir / "kernel").is_dir():
        return
    command = [python, "-c", "import sys; print(*sys.version_info[:2], sep='')"]
    version = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    runtime = install_dir / "app" / "patchwright" / "runtime"
    places = [install_dir / "kernel" / f"cp{version}", runtime / "kernel", runtime / "skills"]
    # Errors are ignored. An older Python cannot compile code that only newer Pythons use, and it does not
    # import that code.
    subprocess.run(
        [python, "-m", "compileall", "-q", *filter(Path.is_dir, places)],
        stdout=subprocess.DEVNULL,
        check=False,
    )


def add_user(uid: int) -> None:
    """Create a user with a home directory. Does nothing if the base image already has a user with this id."""
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


def create_scratch_dirs() -> None:
    for directory in (Path("/tmp"), Path("/var/tmp")):
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o777 | stat.S_ISVTX)


def collect_certificates(install_dir: Path) -> None:
    """Write one file that contains the operator's certificates and those of the base image.

    If the base image has no certificates, uses those that `make_bundle.py` packed.
    """
    own = install_dir / "new" / "ca.crt"
    base = next(
        (Path(path) for path in SYSTEM_CA_FILES if Path(path).is_file()), install_dir / "certificates.crt"
    )
    parts = [path.read_bytes().rstrip() + b"\n" for path in (own, base) if path.is_file()]
    (install_dir / "ca.crt").write_bytes(b"".join(parts))
    if own.is_file() and (install_dir / "browser").is_dir():
        usual = (base, install_dir / "certificates.crt")
        write_chromium_policy(
            own.read_bytes(), b"".join(path.read_bytes() for path in usual if path.is_file())
        )


def write_chromium_policy(operator_certificates: bytes, system_certificates: bytes) -> None:
    """Write a policy for Chromium with the operator's certificates. Leaves out those that the system already
    trusts.

    A policy is needed because Chromium reads no certificate files. Source:
    chromeenterprise.google/policies/#CACertificates
    """
    known = set(parse_certificates(system_certificates))
    wanted = [each for each in dict.fromkeys(parse_certificates(operator_certificates)) if each not in known]
    if wanted:
        CHROMIUM_POLICY_DIR.mkdir(parents=True, exist_ok=True)
        (CHROMIUM_POLICY_DIR / "patchwright.json").write_text(json.dumps({"CACertificates": wanted}))


def parse_certificates(pem: bytes) -> list[str]:
    """Return the certificates in a PEM file. Each one is in DER form, encoded as Base64."""
    return [b"".join(body.split()).decode() for body in PEM_CERTIFICATE.findall(pem)]


def install_test_runner(wheels: Path, uid: int) -> None:
    """Create an environment for Python tests. It contains the base image's packages and pytest. Packages that
    are installed later go there, too.

    Does this only if the base image has Python 3.9 or newer, and this Python has no pytest.
    """
    python = shutil.which("python3")
    if python is None:
        print("this base image has no python3: Python tests cannot run on it")
        return
    completed = subprocess.run(
        [python, "-c", "import sys, venv; print(*sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=False,
    )
    version = tuple(map(int, completed.stdout.split())) if completed.returncode == 0 else (0, 0)
    if version < (3, 9):
        print(f"this base image's python3 is too old or has no venv module ({completed.stdout.strip()})")
        return
    if (
        subprocess.run([python, "-m", "pytest", "--version"], capture_output=True, check=False).returncode
        == 0
    ):
        return
    make = [python, "-m", "venv", "--without-pip", "--system-site-packages", str(PROJECT_ENV)]
    subprocess.run(make, check=True)
    packages = PROJECT_ENV / "lib" / f"python{version[0]}.{version[1]}" / "site-packages"
    for wheel in sorted(wheels.glob("*.whl")):
        if version < (3, 11) or not wheel.name.startswith(BACKPORTS):
            zipfile.ZipFile(wheel).extractall(packages)
    if version < (3, 10):
        # Without this file, pip looks for distutils, which is in a separate package on Debian. pip checks
        # exactly this file name (pip/_internal/locations/__init__.py, _should_use_sysconfig).
        (packages / "sysconfig.pth").write_text("import sysconfig; sysconfig._PIP_USE_SYSCONFIG = True\n")
    interpreter = PROJECT_ENV / "bin" / "python3"
    for name, module in (("pip", "pip"), ("pip3", "pip"), ("pytest", "pytest"), ("py.test", "pytest")):
        script = PROJECT_ENV / "bin" / name
        script.write_text(
            f"#!{interpreter}\nimport runpy\nrunpy.run_module({module!r}, run_name='__main__')\n"
        )
        script.chmod(0o755)
    compiled = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging")
    subprocess.run(
        [interpreter, "-m", "compileall", "-q", *(packages / each for each in compiled)], check=True
    )
    for path in (PROJECT_ENV, *PROJECT_ENV.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


if __name__ == "__main__":
    main()
