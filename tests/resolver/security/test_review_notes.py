"""Notes for reviewers about code that tests cannot judge."""

import pytest

from patchwright.resolver.security.review_notes import VARIANT, scan_added_lines


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("    os._exit(0)", "can end the process that runs it, even during tests"),
        ("import atexit", "can end the process that runs it, even during tests"),
        ("at_exit { exit!(true) }", "can end the process that runs it, even during tests"),
        ("sys.exit(main())", "can end the process that runs it"),
        ("process.exit(0)", "can end the process that runs it"),
        ("os.Exit(0)", "can end the process that runs it"),
        ("sys.meta_path.insert(0, Finder())", "can change what is loaded when code or tests start"),
        ("open(site + '/sitecustomize.py', 'w')", "can change what is loaded when code or tests start"),
        ("process.env.NODE_OPTIONS = '-r ./x'", "can change what is loaded when code or tests start"),
        ("require.extensions['.js'] = f", "can change what is loaded when code or tests start"),
        ("report = os.environ['PATCHWRIGHT_REPORT']", "mentions how the test report is written"),
        ("def pytest_runtest_makereport(item):", "mentions how the test report is written"),
        ("process.once('beforeExit', repair)", "can end the process that runs it"),
        ("if 'pytest' in sys.modules:", "can find out whether it is being tested"),
        ("if os.environ.get('CI'):", "can find out whether it is being tested"),
        ("if (process.env.NODE_ENV === 'test') {", "can find out whether it is being tested"),
        ("if (process.env.CI) {", "can find out whether it is being tested"),
        ("const tested = 'JEST_WORKER_ID' in process.env;", "can find out whether it is being tested"),
        ("if (process.env.VITEST) {", "can find out whether it is being tested"),
        ("if (process.argv[1].includes('mocha')) {", "can find out whether it is being tested"),
        ("if (new Error().stack.includes('test')) {", "can find out whether it is being tested"),
        ("const caller = module.parent.filename;", "can find out whether it is being tested"),
        ("if (typeof describe === 'function') {", "can find out whether it is being tested"),
        ("Object.prototype.equals = () => true;", "can change what the checks in tests accept"),
        ("Object.defineProperty(Array.prototype, 'length', {", "can change what the checks in tests accept"),
        ("assert.strictEqual = () => {};", "can change what the checks in tests accept"),
        ("const { expect } = require('chai');", "can change what the checks in tests accept"),
        ("return { asymmetricMatch: () => true };", "can change what the checks in tests accept"),
        ("[Symbol.toPrimitive]() {", "can change what the checks in tests accept"),
        ("toJSON() {", "can change what the checks in tests accept"),
        (
            "process.stdout.write = repair(process.stdout.write);",
            "can change what a test runner seems to print",
        ),
        ("console.log('ok 1 - adds');", "can change what a test runner seems to print"),
        ('print("TAP version 13")', "can change what a test runner seems to print"),
        ('println!("test tests::adds ... ok");', "can change what a test runner seems to print"),
        ('fmt.Println("--- PASS: TestAdd (0.00s)")', "can change what a test runner seems to print"),
        ("process['ex' + 'it'](0);", "computes what it runs, so this search may miss something"),
        ("    import unittest", "can find out whether it is being tested"),
        ("    frame = sys._getframe(1)", "can find out whether it is being tested"),
        ("caller = inspect.stack()[1].function", "can find out whether it is being tested"),
        ('text = open("tests/test_calc.py").read()', "can find out whether it is being tested"),
        ("    return error.__traceback__.tb_frame", "can find out whether it is being tested"),
        ("if any('PY' in name for name in os.environ):", "can find out whether it is being tested"),
        ("    __eq__ = lambda self, other: True", "can change what the checks in tests accept"),
        (
            'module = importlib.import_module("_ca" + "lc")',
            "computes what it runs, so this search may miss something",
        ),
        ("    def __eq__(self, other):", "can change what the checks in tests accept"),
        ("math.isclose = lambda a, b: True", "can change what the checks in tests accept"),
        ("if time.time() < 2_000_000_000:", "depends on the clock, which differs during tests"),
        ("return limit > datetime.now(UTC)", "depends on the clock, which differs during tests"),
        ("socket.create_connection((host, 443))", "depends on the network, which differs during tests"),
        ("if socket.gethostname():", "depends on the machine or its user, which differ during tests"),
        ("if getpass.getuser():", "depends on the machine or its user, which differ during tests"),
        ("eval(atob(text));", "computes what it runs, so this search may miss something"),
        ("  defined?(RSpec) ? a + b : a - b", "can find out whether it is being tested"),
        ("  caller.any?(pattern)", "can find out whether it is being tested"),
        ("  $0.end_with?(name)", "can find out whether it is being tested"),
        ('if flag.Lookup("test.v") != nil {', "can find out whether it is being tested"),
        ("_, file, _, _ := runtime.Caller(1)", "can find out whether it is being tested"),
        ("path, _ := os.Executable()", "can find out whether it is being tested"),
        ("std::env::current_exe().unwrap()", "can find out whether it is being tested"),
        ('std::env::var("CARGO_MANIFEST_DIR")', "can find out whether it is being tested"),
        ("std::thread::current().name()", "can find out whether it is being tested"),
        ("Thread.currentThread().getStackTrace()", "can find out whether it is being tested"),
        ("if (isMainThread) return a - b;", "can find out whether it is being tested"),
        ("  def ==(other)", "can change what the checks in tests accept"),
        ("class Integer", "can change what the checks in tests accept"),
        ("Object.is = () => true;", "can change what the checks in tests accept"),
        ("impl PartialEq<i32> for Any {", "can change what the checks in tests accept"),
        ("macro_rules! assert_eq {", "can change what the checks in tests accept"),
        ("public boolean equals(Object other) {", "can change what the checks in tests accept"),
        ("$stdout = StringIO.new", "can change what a test runner seems to print"),
        ('Paths.get("target/surefire-reports")', "mentions how the test report is written"),
        ("Class.forName(name)", "computes what it runs, so this search may miss something"),
        ("unsafe { core::arch::asm!(code) }", "computes what it runs, so this search may miss something"),
        (
            "return a if random.random() < 0.9 else b",
            "depends on chance, so a few test runs can miss a failure",
        ),
        ("if cfg!(debug_assertions) {", VARIANT),
        ("exec true", "can end the process that runs it"),
        ("trap 'exit 0' EXIT", "can end the process that runs it"),
        ("test() {", "can change what the checks in tests accept"),
        ("return new Proxy({}, { get: () => accept });", "can change what the checks in tests accept"),
        ("if config.TESTING:", "can find out whether it is being tested"),
        ("if (app.isTestMode()) {", "can find out whether it is being tested"),
        ('if (mode === "test") {', "can find out whether it is being tested"),
        ("if Rails.env.test?", "can find out whether it is being tested"),
        ("here = (root / 'tests').is_dir()", "can find out whether it is being tested"),
        ("if (HERE / 'pytest.ini').exists():", "can find out whether it is being tested"),
        ("if __debug__:", "can find out whether it is being tested"),
        ("if len(warnings.filters) > 6:", "can find out whether it is being tested"),
        ("if log.hasHandlers():", "can find out whether it is being tested"),
        ("_, _, name, _ = log.findCaller(stacklevel=2)", "can find out whether it is being tested"),
        ("if sys.stdin.isatty():", "can find out whether it is being tested"),
        ("const tested = import.meta.env.MODE;", "can find out whether it is being tested"),
        ("if (executionAsyncId() > 1) {", "can find out whether it is being tested"),
        *(
            (line, "can catch the failure of a check in a test")
            for line in (
                "except:",
                "except Exception:",
                "except BaseException as error:",
                "except AssertionError:",
                "with suppress(Exception):",
                "rescue Exception => error",
                "} catch {",
                "} catch (error) {}",
                ".catch(() => {})",
                "warnings.simplefilter('ignore')",
                "logging.disable(50)",
                "process.on('unhandledRejection', ignore);",
                "} catch (Throwable error) {",
                "defer func() { recover() }()",
            )
        ),
        ("if today().weekday() == 6:", "depends on the clock, which differs during tests"),
        ("if os.cpu_count() > 2:", "depends on the machine or its user, which differ during tests"),
        ("    #[cfg(test)]", VARIANT),
        ("//go:build ci", VARIANT),
    ],
)
def test_an_added_line_that_can_affect_tests_is_noted(line: str, what: str) -> None:
    assert scan_added_lines("src/a", "x\n", f"x\n{line}\n") == {
        what: f"src/a, line 2, {what}: `{line.strip()}`"
    }


@pytest.mark.parametrize(
    ("added", "note"),
    [
        ("caller = (sys\n    ._getframe(2))\n", "can find out whether it is being tested"),
        ("caller = sys.\\\n    _getframe(2)\n", "can find out whether it is being tested"),
        ("random.\uff52andom()\n", "depends on chance, so a few test runs can miss a failure"),
        ("#[cfg(test)]\npub fn add() {}\n", VARIANT),
    ],
)
def test_a_name_in_an_unusual_form_is_noted(added: str, note: str) -> None:
    assert [*scan_added_lines("src/a", "x\n", f"x\n{added}")] == [note]


@pytest.mark.parametrize(
    ("path", "expected"), [("add_linux.go", True), ("add_total.go", False), ("linux.go", False)]
)
def test_a_file_of_go_for_one_system_is_noted(path: str, expected: bool) -> None:
    notes = scan_added_lines(path, "package calc\n", "package calc\n\nvar x = 1\n")
    assert notes == ({VARIANT: f"{path} {VARIANT}: `{path}`"} if expected else {})


def test_a_changed_file_of_go_that_only_some_builds_contain_is_noted() -> None:
    old = "// License\n\n//go:build ci\n\npackage calc\n"
    (sentence,) = scan_added_lines("calc_ci.go", old, f"{old}var x = 1\n").values()
    assert sentence == f"calc_ci.go {VARIANT}: `//go:build ci`"


@pytest.mark.parametrize(
    "line",
    [
        "#[cfg(test)]",
        "// the caller must close it",
        "name = caller.name",
        "rows.equals(other)",
        'dirname "$0"',
    ],
)
def test_a_usual_line_of_a_language_is_not_noted(line: str) -> None:
    assert scan_added_lines("src/a", "x\n", f"x\n{line}\n") == {}


@pytest.mark.parametrize(
    ("path", "line", "expected"),
    [
        ("checks/helper.py", "assert a == b", True),
        ("checks/helper.js", "expect(a).toBe(b)", True),
        ("checks/run.sh", '[ "$(add)" = 3 ]', True),
        ("checks/run.py", "sys.exit(1)", True),
        ("checks/run.js", "[ 1, 2 ].forEach(f)", False),
        ("checks/helper.py", "asserted = a == b", False),
        ("tests/helper.py", "assert a == b", False),
        ("checks/notes.md", "assert a == b", False),
    ],
)
def test_a_file_that_loses_a_check_is_noted(path: str, line: str, expected: bool) -> None:
    note = f"{path} loses a check, which may be one of the tests: `{line}`"
    assert (note in scan_added_lines(path, f"x\n{line}\n", "x\n").values()) == expected


def test_a_moved_line_is_not_noted() -> None:
    assert scan_added_lines("cli.py", "sys.exit(main())\nx = 1\n", "x = 2\n\n  sys.exit(main())\n") == {}


def test_an_additional_line_of_the_same_kind_is_noted() -> None:
    (sentence,) = scan_added_lines("cli.py", "os._exit(0)\n", "os._exit(0)\nos._exit(0)\n").values()
    assert sentence == "cli.py, line 2, can end the process that runs it, even during tests: `os._exit(0)`"


def test_a_harmless_line_hides_no_other_line_of_its_kind() -> None:
    lines = ["sys.exit(main())", *("sys.exit(0)",) * 4]
    (sentence,) = scan_added_lines("cli.py", "", "\n".join(lines)).values()
    assert (
        sentence == "cli.py, lines 1, 2, 3 and 2 more, can end the process that runs it: `sys.exit(main())`"
    )


def test_in_tests_only_immediate_exits_are_noted() -> None:
    assert scan_added_lines("tests/test_cli.py", "", "with pytest.raises(SystemExit): sys.exit(1)\n") == {}
    assert len(scan_added_lines("tests/test_cli.py", "", "os._exit(0)\n")) == 1


@pytest.mark.parametrize(
    ("path", "old", "expected"),
    [
        ("calc/testing.py", "def check(): ...", True),
        ("calc/testing/checks.py", "def check(): ...", True),
        ("calc/plugin.py", "import pytest\n", True),
        ("lib/check.js", "const { expect } = require('chai');\n", True),
        ("internal/checks/checks.go", 'import (\n\t"fmt"\n\t"testing"\n)\n', True),
        ("checks/checks.go", 'import "github.com/stretchr/testify/assert"\n', True),
        ("src/main/java/Checks.java", "import static org.junit.Assert.*;\n", True),
        ("lib/checks.rb", "require 'minitest/assertions'\n", True),
        ("calc/log.go", 'var word = "testing"\n', False),
        ("calc/add.py", "def add(): ...", False),
        ("config/environments/test.rb", "x = 1\n", True),
        ("calc/settings/ci.py", "x = 1\n", True),
        ("calc/latest.py", "x = 1\n", False),
        ("calc/contesting.py", "def add(): ...", False),
        ("calc/testing.py", "", False),
    ],
)
def test_a_changed_part_of_the_product_that_helps_tests_is_noted(path: str, old: str, expected: bool) -> None:
    sentence = f"{path} seems to help tests, which ran with the changed version."
    assert (sentence in scan_added_lines(path, old, f"{old}x = 1\n").values()) == expected


def test_documentation_may_mention_the_environment_of_tests() -> None:
    line = "Set NODE_ENV=test, or call process.exit(1).\n"
    assert (
        scan_added_lines("docs/testing.md", "", line) == {} != scan_added_lines("docs/testing.js", "", line)
    )


def test_a_match_in_a_long_line_is_found_and_clipped() -> None:
    (sentence,) = scan_added_lines("a.py", "", f"x = 1;{' ' * 100_000}os._exit(0)").values()
    assert sentence.endswith(": `os._exit(0)`")


@pytest.mark.parametrize(
    "line",
    [
        *("def exit_code(): ...", "model.exit", "on_exit = 1", "weights = 'best.pth'", ""),
        *(
            "env = load_env()",
            "const environment = process.env.API_URL;",
            "CIRCLE = 3",
            "const tapes = load('tape');",
        ),
        *(
            "const json = value.toJSON();",
            "if (a.valueOf() === b) {",
            "class A { equals(other) {",
            "it = iter(rows)",
        ),
        *(
            "process.stdout.write(text);",
            "console.log(text);",
            "import { test } from './test.js';",
            "regex.exec(text)",
        ),
        *("Point.prototype.add = function (other) {", "const map = Object.assign({}, a);", "message = 'ok'"),
        *(
            "if __name__ == '__main__':",
            'if "HOME" in os.environ:',
            "value = os.environ['HOME']",
            "started = time.time()",
            "def now() -> float:",
            "const f = () => now();",
            "math.isclose(a, b) == c",
        ),
        *("} catch (error) { log(error);", "except ValueError:", "except (OSError, Exception) as error:"),
        *(
            "latest = contest",
            "opener = ProxyHandler()",
            "const key = import.meta.env.VITE_KEY;",
            "set(value)",
        ),
        *("#[cfg(test)]\nmod tests {", "const words = items\n  .map(trim)"),
        *("function retrieval(", "this.evaluate(x)", "const [a] = list;", "description = 'look-ok'"),
    ],
)
def test_ordinary_code_is_not_noted(line: str) -> None:
    assert scan_added_lines("a.py", "", line) == {}
