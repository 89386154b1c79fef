"""Searches of a work tree: text, names and outlines; what is skipped, cut and stopped, and the notes on it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from patchwright.runtime.actions import SearchCode
from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.path_guard import PathGuard, ToolInputError
from patchwright.runtime.search.code_search import CodeSearch
from patchwright.runtime.search.grammars import LANGUAGE_BY_SUFFIX
from patchwright.runtime.search.source_files import glob_to_regex
from tests.runtime.sample_sources import SOURCES

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


class Work:
    """A work tree that can be searched."""

    def __init__(self, place: Path) -> None:
        self.root, self.scratch = place / "tree", place / "tmp"
        self.root.mkdir()
        self.scratch.mkdir()

    def has(self, **files: str | bytes) -> None:
        """Create files by name; `__` stands for a slash."""
        for name, content in files.items():
            self.write(name.replace("__", "/").replace("_dot_", "."), content)

    def write(self, name: str, content: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-C", self.root, *words], check=True, capture_output=True)

    async def search(
        self, query: str = "", seconds: float = 20, plugins: SandboxFeatures | None = None, **more: object
    ) -> str:
        searching = CodeSearch(PathGuard(self.root, self.scratch), ENV, plugins or SandboxFeatures(), seconds)
        return (await searching.search(SearchCode.model_validate({"query": query, **more}))).text


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


# Text


async def test_many_lines_of_a_file_share_one_line_with_its_path(work: Work) -> None:
    work.write("a.py", "x = 1\n" * 4)
    work.write("b.py", "\nx = 2\n")
    assert await work.search("x =") == (
        "a.py\n1: x = 1\n2: x = 1\n3: x = 1\n4: x = 1\nb.py:2: x = 2\n\n[5 lines in 2 files]"
    )


async def test_lines_are_named_by_file_and_number(work: Work) -> None:
    work.write("b.py", "import os\n\nx = os.getcwd()\n")
    work.write("a/c.txt", "os\r\n")
    assert await work.search(r"\bos\b") == (
        "a/c.txt:1: os\nb.py:1: import os\nb.py:3: x = os.getcwd()\n\n[3 lines in 2 files]"
    )
    assert await work.search("OS", ignore_case=True, path="a") == "a/c.txt:1: os\n\n[1 line in 1 file]"
    assert await work.search("os.getcwd()", literal=True) == "b.py:3: x = os.getcwd()\n\n[1 line in 1 file]"
    assert await work.search("nowhere") == "[no line found in 2 text files]"


async def test_a_search_without_hits_retries_a_more_lenient_reading(work: Work) -> None:
    work.write("a.py", "x = call(a[0])\n")
    assert "a.py:1: x = call(a[0])" in (found := await work.search("a[0]"))
    assert "[no line matches the query exactly; the lines above match it as plain text]" in found
    assert "a.py:1: x = call(a[0])" in (found := await work.search("call("))
    assert "not a valid regular expression (missing )" in found
    assert "the lines above match it if upper and lower case are ignored" in await work.search("CALL")


async def test_ignored_files_are_skipped_unless_named(work: Work) -> None:
    work.git("init", "-q")
    work.has(
        _dot_gitignore="built/\n*.log\n", a_dot_py="word\n", built__b_dot_py="word\n", c_dot_log="word\n"
    )
    assert await work.search("^word") == "a.py:1: word\n\n[1 line in 1 file]"  # an untracked file
    named = "\n\n[1 line in 1 file]\n[git ignores these files; they were searched because you named them]"
    assert await work.search("word", path="built") == f"built/b.py:1: word{named}"
    assert await work.search("word", path="c.log") == f"c.log:1: word{named}"
    assert await work.search("word", path="*.log") == "[no line found in 0 text files]"


async def test_without_git_everything_but_the_skipped_directories_is_searched(work: Work) -> None:
    work.has(a_dot_py="word\n", node_modules__b_dot_js="word\n", sub__c_dot_py="word\n")
    assert await work.search("word") == "a.py:1: word\nsub/c.py:1: word\n\n[2 lines in 2 files]"


async def test_no_program_from_the_repositorys_configuration_runs(work: Work) -> None:
    work.git("init", "-q")
    work.write("a.py", "word\n")
    work.git("config", "core.fsmonitor", f"touch {work.root}/ran; false")
    subprocess.run(["git", "-C", work.root, "ls-files", "--others"], check=True, capture_output=True)
    assert (work.root / "ran").exists()  # otherwise the test shows nothing
    (work.root / "ran").unlink()
    await work.search("word")
    assert not (work.root / "ran").exists()


async def test_binary_and_huge_files_and_links_are_not_searched(work: Work) -> None:
    work.write("a.bin", b"\0word\n")
    work.write("huge.txt", "word\n" * 500_000)
    work.write("latin.txt", "wört word\n".encode("latin-1"))
    (work.root / "link").symlink_to("/etc/passwd")
    (work.root / "loop").symlink_to("loop")
    os.mkfifo(work.root / "pipe")
    assert await work.search("word|root") == (
        "latin.txt:1: w\ufffdrt word\n\n[1 line in 1 file]\n[files over 2,000,000 bytes were not searched: huge.txt]"
    )


async def test_too_many_lines_are_counted_and_some_of_each_file_shown(work: Work) -> None:
    for number in range(30):
        work.write(f"src/{'ab'[number % 2]}/f{number}.py", "x = 1\n" * 20)
    found = await work.search("x", path="src")
    assert found.count("x = 1") == 150
    assert "[600 lines in 30 files; only 150 are shown above]" in found
    assert "[by directory: src/a 300, src/b 300]" in found and "narrow your search" in found
    for name in ("a", "b"):
        work.write(f"long/{name}", "y" * 100_000 + "\n" + "é" * 220 + "y\n" * 300)
    found = await work.search("y", path="long")
    assert len(found) < 30_000 and "..." in found


async def test_an_endless_pattern_is_stopped_with_the_hits_so_far(work: Work) -> None:
    work.write("a.py", "aaaab\n")
    work.write("b.py", "a" * 60 + "\n")
    found = await work.search("(a+)+b", seconds=0.5)  # without the limit it would take years
    assert found == (
        "a.py:1: aaaab\n\n[1 line in 1 file]\n"
        "[stopped in b.py at the time limit: search one directory (path), or use a simpler pattern]"
    )


async def test_a_line_of_the_tree_cannot_fake_another(work: Work) -> None:
    work.write("a\nb.py:1: fake.py", "word \x1b[2J\u202e\n")
    assert await work.search("word") == (
        "a\ufffdb.py:1: fake.py:1: word \ufffd[2J\ufffd\n\n[1 line in 1 file]"
    )


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("**/c.*", ["src/deep/c.py", "src/deep/c.ts"]),
        ("*.{ts,tsx}", ["src/deep/c.ts"]),
        ("./src/deep/", ["src/deep/c.py", "src/deep/c.ts"]),
        ("[!a].py", ["src/b.py", "src/deep/c.py"]),
        ("?.py", ["a.py", "src/b.py", "src/deep/c.py"]),
    ],
)
def test_globs_have_the_usual_meaning(glob: str, names: list[str]) -> None:
    files = ["a.py", "src/b.py", "src/deep/c.py", "src/deep/c.ts"]
    assert [name for name in files if re.fullmatch(glob_to_regex(glob), name)] == names


@pytest.mark.parametrize(
    ("arguments", "reason", "says"),
    [
        ({"query": " "}, "malformed", "query is empty"),
        ({"query": "a\nb"}, "malformed", "line by line"),
        ({"query": "a\0b"}, "malformed", "NUL"),
        ({"query": "a", "path": "gone"}, "not_found", "gone does not exist"),
        ({"query": "a", "path": "../x"}, "refused", "outside of the work tree"),
        ({"query": "a", "path": "/etc/*"}, "refused", "because it is a glob"),
        ({"query": "a", "path": "[z-a]*"}, "malformed", "not a valid glob"),
        ({"query": "a", "path": "{a"}, "malformed", "not a valid glob"),
        ({"what": "outline"}, "malformed", "an outline needs the path of one file"),
        ({"what": "outline", "path": "."}, "refused", ". is a directory"),
        ({"what": "outline", "path": "sub"}, "refused", "sub is a directory"),
        ({"what": "outline", "path": "bin"}, "malformed", "bin is not a text file"),
    ],
)
async def test_an_invalid_search_request_is_explained(
    work: Work, arguments: dict[str, object], reason: str, says: str
) -> None:
    work.write("bin", b"\0")
    (work.root / "sub").mkdir()
    with pytest.raises(ToolInputError) as unfit:
        await work.search(**arguments)  # type: ignore[arg-type]
    assert unfit.value.failure.reason == reason and says in unfit.value.failure.message


async def test_the_scratch_directory_is_searched_too(work: Work) -> None:
    (work.scratch / "out.log").write_text("an error\n")
    assert f"{work.scratch}/out.log:1: an error" in await work.search("error", path=str(work.scratch))
    assert "out.log:1: an error" in await work.search("error", path=str(work.scratch / "out.log"))


# Names


@pytest.mark.parametrize("language", sorted(set(LANGUAGE_BY_SUFFIX.values())))
async def test_definitions_are_found_in_every_language(work: Work, language: str) -> None:
    suffix = next(suffix for suffix, named in LANGUAGE_BY_SUFFIX.items() if named == language)
    source, outline = SOURCES[language]
    work.write(f"a.{suffix}", source)
    result = await work.search(what="outline", path=f"a.{suffix}")
    assert result.split("\n")[0] == f"[a.{suffix}, {source.count(chr(10))} lines; {language}]"
    assert result.split("\n")[1:] == outline


@pytest.mark.slow
async def test_a_definition_is_found_with_its_range_of_lines(work: Work) -> None:
    work.write(
        "a.py", "class A:\n    def run(self):\n        return 1\n\n\nclass B:\n    def run(self): ...\n"
    )
    work.write("b.py", "import a\na.A().run()\n'run'\n")
    assert await work.search("run", what="definitions") == (
        "a.py:2-3: def run(self):  [in A]\na.py:7: def run(self): ...  [in B]\n\n[2 definitions in 1 file]"
    )
    for name in ("A.run", "A::run", "A#run", "A.run()"):
        assert (await work.search(name, what="definitions")).startswith(
            "a.py:2-3: def run(self):  [in A]\n\n[1 "
        )
    near = await work.search("Ru", what="definitions")
    assert (
        "a.py:2-3" in near
        and "[no definition is named exactly Ru; the definitions above have similar names]" in near
    )
    work.write("c.py", "def rerunning(): ...\ndef rerun(): ...\n")
    near = await work.search("Run", what="definitions")
    assert [line.split(":")[0] for line in near.splitlines()[:4]] == ["a.py", "a.py", "c.py", "c.py"]
    assert near.splitlines()[2] == "c.py:2: def rerun(): ..."  # the most similar first
    assert await work.search("jump", what="definitions") == "[no definition found in 3 text files]"


async def test_a_reference_is_in_code_and_names_its_definition(work: Work) -> None:
    work.write("a.py", "def run():\n    # run\n    return 'run', f'{run}'\n\n\nrunner = rerun = run\n")
    work.write("b.ts", "class Q { go() {\n  return run(`run ${run}`);\n} }\n")
    assert await work.search("run", what="references") == (
        "a.py:1: def run():  [its definition]\na.py:3: return 'run', f'{run}'  [in run]\n"
        "a.py:6: runner = rerun = run\nb.ts:2: return run(`run ${run}`);  [in Q.go]\n\n[4 lines in 2 files]"
    )
    assert "the search was for run in any class or module" in await work.search("Q.run", what="references")


async def test_a_language_without_a_grammar_is_searched_with_a_pattern(work: Work, tmp_path: Path) -> None:
    source = "package a\n\nopen class Shop {\n    private fun sell(x: Int): Int { return buy(x) }\n}\nval LIMIT = 3\n"
    work.write("Shop.kt", source)
    found = await work.search("sell", what="definitions")
    assert found.startswith("Shop.kt:4: private fun sell(x: Int): Int { return buy(x) }\n")
    assert "[there is no parser for .kt files, so some results may be wrong or missing]" in found
    result = await work.search(what="outline", path="Shop.kt")
    assert "no parser for this language" in result
    assert result.split("\n")[1:] == [
        "1: package a",
        "3: open class Shop {",
        "4: private fun sell(x: Int): Int { return buy(x) }",
        "6: val LIMIT = 3",
    ]


async def test_hostile_source_is_parsed_in_bounded_time(work: Work) -> None:
    work.write("deep.py", "(" * 50_000)
    work.write("deep.js", "[" * 20_000 + "function f() {}")
    work.write("nested.js", "function f() {\n" * 50_000 + "}" * 50_000)
    work.write("odd.py", b"def \xff\xfe(): \x80\nclass f: pass\n")
    found = await work.search("f", what="definitions", seconds=60)
    assert "odd.py:2: class f: pass" in found and "stopped" not in found


def test_without_the_feature_no_language_is_known() -> None:
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]; "
        "from patchwright.runtime.search.grammars import detect_language as of; print(of('a.py'))"
    )
    command = [sys.executable, "-I", "-S", "-c", script, str(Path(__file__).parents[3])]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "None\n"
