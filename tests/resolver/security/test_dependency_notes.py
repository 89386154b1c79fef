"""Notes for reviewers that name the dependencies that a patch changes."""

import pytest

from patchwright.resolver.security.dependency_notes import describe_dependency_changes

PYPROJECT = """
[project]
version = "{}"
dependencies = [{}]
[dependency-groups]
test = [{}, {{include-group = "lint"}}]
"""


def test_added_changed_and_removed_dependencies_are_named() -> None:
    old = PYPROJECT.format("1.0", '"httpx>=0.27", "attrs"', '"pytest"')
    new = PYPROJECT.format(
        "1.0", '"HTTPX>=0.28", "requests[socks]>=2.31; python_version>\'3\'"', '"pytest==8.4"'
    )
    assert describe_dependency_changes("pyproject.toml", old, new) == (
        "Dependencies in pyproject.toml: added `requests >=2.31`; changed `httpx` from `>=0.27` to `>=0.28` "
        "and `pytest` from any version to `==8.4`; removed `attrs`."
    )


def test_a_package_from_another_host_is_a_change_although_its_version_is_the_same() -> None:
    lock = '{{"packages": {{"node_modules/b": {{"version": "1", "resolved": "https://{}/b-1.tgz"}}}}}}'
    old, new = lock.format("registry.npmjs.org"), lock.format("evil.test")
    assert describe_dependency_changes("package-lock.json", old, new) == (
        "Dependencies in package-lock.json: changed `b` from `1` to `1 from evil.test`."
    )
    assert "from an invalid address" in describe_dependency_changes(
        "package-lock.json", old, lock.format("[")
    )


def test_a_change_of_other_data_names_no_dependency() -> None:
    old, new = (PYPROJECT.format(version, '"httpx"', '"pytest"') for version in ("1.0", "1.1"))
    assert describe_dependency_changes("pyproject.toml", old, new) == ""
    assert describe_dependency_changes("setup.py", "", "install_requires=['x']") == ""


@pytest.mark.parametrize(
    ("path", "text", "added"),
    [
        ("requirements-dev.txt", "# tools\n-r base.txt\nTyped_Ast ~= 1.5  # old\n", "`typed-ast ~= 1.5`"),
        ("requirements/test.in", "x==1 \\\n    --hash=sha256:abc\n", "`x ==1`"),
        ("setup.cfg", "[options]\ninstall_requires =\n  six>=1\n[options.extras_require]\nt = nose",
         "`six >=1` and `nose`"),
        ("a/pyproject.toml", '[tool.poetry.group.dev.dependencies]\nx = "^1"\ny = {git = "https://g/y"}',
         "`x ^1` and `y https://g/y`"),
        ("Pipfile", '[packages]\nx = "*"', "`x *`"),
        ("package.json", '{"devDependencies": {"@types/node": "^20"}}', "`@types/node ^20`"),
        ("Cargo.toml", '[target.\'cfg(unix)\'.dependencies]\nlibc = {version = "0.2"}', "`libc 0.2`"),
        ("go.mod", "module a.b/c\ngo 1.22\nrequire (\n\tgithub.com/x/y v1.2.3 // indirect\n)\n",
         "`github.com/x/y v1.2.3`"),
        ("Gemfile", "gem 'rails', '~> 7'\ngem \"rake\"\n", "`rails ~> 7` and `rake`"),
        ("composer.json", '{"require": {"php": ">=8"}}', "`php >=8`"),
        ("uv.lock", '[[package]]\nname = "x"\nversion = "1"\n[[package]]\nname = "x"\nversion = "2"', "`x 1, 2`"),
        ("package-lock.json", '{"packages": {"": {}, "node_modules/a/node_modules/b": {"version": "1"}}}', "`b 1`"),
        ("composer.lock", '{"packages-dev": [{"name": "p/q", "version": "v3"}]}', "`p/q v3`"),
        ("requirements.txt", "\n".join(f"p{n}" for n in range(8)), "`p0`, `p1`, `p2`, `p3`, `p4` and 3 more"),
    ],
)  # fmt: skip
def test_manifests_and_lock_files_of_many_languages_are_read(path: str, text: str, added: str) -> None:
    assert describe_dependency_changes(path, "", text) == f"Dependencies in {path}: added {added}."


@pytest.mark.parametrize("path", ["pyproject.toml", "package.json", "uv.lock", "setup.cfg", "go.mod"])
@pytest.mark.parametrize("text", ["[[[", '{"dependencies": [1], "package": 3}', "project = 1\ntool = 2"])
def test_an_invalid_file_names_no_dependency(path: str, text: str) -> None:
    assert describe_dependency_changes(path, "", text) == ""


def test_a_name_cannot_leave_its_inline_code() -> None:
    text = '{"dependencies": {"a` [x](http://evil)\\n": "1"}}'
    assert describe_dependency_changes("package.json", "", text) == (
        "Dependencies in package.json: added `a' [x](http://evil) 1`."
    )
