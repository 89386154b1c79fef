# The other scripts source this file. Do not run it directly.
#
# Each script works right after `git clone`, on a machine with only Python 3.11, venv, and
# git. It calls `environment EXTRA`, which creates .venv in the checkout if necessary and
# sets $bin to the directory of its programs.

set -eu
# With this variable, each of the many Python processes of a test run would compile all modules again.
unset PYTHONDONTWRITEBYTECODE
# Tests that only read the repository's own files: script/check runs them, script/test does not.
repository_tests='tests/test_architecture.py tests/test_packages.py tests/test_docs_site.py tests/test_layer_imports.py
    tests/test_model_names.py tests/test_release.py tests/test_repository.py tests/test_settings_docs.py
    tests/test_troubleshooting.py tests/action/test_lint.py tests/resolver/rendering/test_template_contexts.py
    tests/resolver/text/test_reply_templates.py'
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd -- "$root"
bin=$root/.venv/bin

refuse() {
    printf '%s\n' "$1" >&2
    exit 2
}

find_python() {
    # `python3` first, because the machine's owner chose it.
    for name in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

# environment EXTRA: creates .venv with this project and its extra EXTRA ("" for none).
environment() {
    python=$(find_python) ||
        refuse 'Python 3.11 or newer is needed: install it with "apt-get install python3 python3-venv".'
    if command -v uv >/dev/null; then
        installer=uv
    elif "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        installer=pip
    else
        refuse 'Python has no pip and venv here: install them with "apt-get install python3-venv".'
    fi
    # Directory, Python, and installer of .venv. A moved checkout needs a new one.
    origin="$root $("$python" -V) $installer"
    stamp="$(cksum <pyproject.toml) $origin"
    if [ -x "$bin/python" ] && grep -qsxF -- "$stamp" ".venv/installed-$1" .venv/installed-dev; then
        return
    fi
    printf 'Installing dependencies (once; takes about a minute) ...\n' >&2
    install "$1" || refuse 'The dependencies could not be installed: fix the error above and run this again.'
    printf '%s\n' "$stamp" >".venv/installed-$1"
}

install() {
    # Written last and removed first, so an interrupted installation starts over.
    if [ "$(cat .venv/origin 2>/dev/null)" = "$origin" ]; then
        rm .venv/origin
    else
        rm -rf .venv
        "make_with_$installer" || return 1
    fi
    "install_with_$installer" ".${1:+[$1]}" || return 1
    printf '%s\n' "$origin" >.venv/origin
}

make_with_pip() { "$python" -m venv .venv; }

install_with_pip() { "$bin/python" -m pip install --quiet --disable-pip-version-check --editable "$1"; }

make_with_uv() { uv venv --quiet --python "$python" .venv; }

install_with_uv() {
    # uv does not read pip's variables for restricted networks.
    if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"; fi
    if [ -n "${PIP_CERT:-}" ]; then export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"; fi
    uv pip install --quiet --python "$bin/python" --editable "$1"
}
