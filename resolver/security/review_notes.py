"""Finds added lines that a reviewer should check because they can deceive test runs. For example, such code ends
the test process, finds out that it is being tested, or writes the test report.

`PATTERNS` is the table for all languages.

The patterns match words; the code is not parsed. A match can be harmless. Code with the same effect but other
words is not found.
"""

import re

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.workspaces import ABSENT, FileChange, Workspace
from patchwright.resolver.rendering.filters import list_names
from patchwright.resolver.security.added_lines import describe_lines, find_added_lines, get_excerpt
from patchwright.resolver.suites.file_classifier import is_test_related
from patchwright.resolver.suites.product_files import find_product_files

MAX_FILES = 100
MAX_FILE_BYTES = 1_000_000  # bytes per file
MAX_NOTES = 3  # notes for each pattern; further files are only named
MAX_NAMES = 10  # further files that are named

IMMEDIATE_EXITS = re.compile(
    r"\bos\._exit\b|\bos\.abort\b|\bos\.kill(?:pg)?\(\s*os\.get|\batexit\b|\bat_exit\b|\bexit!|\bprocess\.(?:abort|reallyExit|kill)\b"
    r"|\bRuntime\.getRuntime\(\)\.halt\b|\baddShutdownHook\b|\bfaulthandler\b|\bsignal\.(?:alarm|setitimer)\b|\b_exit\("
)
EXITS = re.compile(
    r"\bsys\.exit\b|\bSystemExit\b|(?<![\w.])(?:exit|quit)\(|\bprocess\.(?:exit|exitCode)\b"
    r"|\bprocess\.\w*(?:on|once|Listener)\(\s*['\"`](?:exit|beforeExit|uncaught\w+)"
    r"|(?:^|[;&|]|\bthen)\s*exit(?:\s+\d+)?\s*(?:$|[;#])|^\s*(?:exec|trap)\s+['\"\w]|\bos\.Exit\(|\bprocess::(?:exit|abort)\b|\bSystem\.exit\("
)
IMPORTS = re.compile(
    r"\bsys\.(?:meta_path|path_hooks|path_importer_cache|modules\s*\[|settrace|setprofile|monitoring)"
    r"|\b(?:site|user)customize\b|\bsite-packages\b|\baddsitedir\b|\bbuiltins\.__import__|\b__builtins__\b|\bimportlib\.(?:abc|machinery)\b"
    r"|\bNODE_OPTIONS\b|\bModule\._(?:load|resolveFilename|extensions|compile)\b|\brequire\.(?:extensions|cache)\b"
    r"|\bmodule\.(?:register|registerHooks)\(|\b_resolveFilename\b|\bprocess\.(?:binding|dlopen)\b|\bLD_PRELOAD\b|\bPYTHON(?:PATH|STARTUP|HOME)\b|\bRUBYOPT\b|\bJAVA_TOOL_OPTIONS\b"
    r"|\bCARGO_TARGET_\w+_RUNNER\b|\bRUSTC_WRAPPER\b|\bGOFLAGS\b"
)
REPORTS = re.compile(
    r"\bPATCHWRIGHT_\w+|\bPYTEST_(?:ADDOPTS|PLUGINS)\b|\b(?:junit_?xml|xmlpath)\b|\bpytest_(?:runtest|sessionfinish|report|collection)\w*"
    r"|\bTestReport\b|\breport\.xml\b|\bJEST_JUNIT_\w+|\bMOCHA_FILE\b|\bTAP_\w*REPORT\w*"
    r"|\bsurefire\b|\btest-results\b|\bSPEC_OPTS\b|\bTESTOPTS\b",
    re.IGNORECASE,
)
TEST_DETECTION = re.compile(
    # Every language
    r"\b(?:environ|[Gg]etenv|env|ENV)\b.{0,9}\bCI\b"
    # Python
    r"|['\"](?:_?pytest|unittest|doctest|nose2?)['\"]\s+(?:not\s+)?in\s+sys\.modules|\bPYTEST_(?:CURRENT_TEST|VERSION|XDIST_\w+)\b"
    r"|\b(?:import|from)\s+_?(?:pytest|unittest)\b|\bsys\.(?:modules|orig_argv|_getframe|_current_frames)\b|\bgetppid\b"
    r"|\binspect\.(?:stack|currentframe|getouterframes|trace)\b|\btraceback\.(?:extract|walk|format|print)_stack\b"
    r"|\b(?:tb_frame|tb_next|f_back|f_globals|f_locals|__traceback__|__main__(?!['\"]))\b|\bimport\s+__main__\b|\bfrom\s+sys\s+import\b.*\b(?:modules|_getframe)\b"
    r"|\b(?:logging\.root|getLogger\(\))\.handlers\b|\btype\(sys\.std\w+\)|\bsys\.std\w+\.__class__\b|\bsys\.gettrace\b"
    r"|\b__debug__\b|\bwarnings\.(?:filters|showwarning)\b|\bhasHandlers\b|\bfindCaller\b|\bsys\.std\w+\.(?:name|fileno)\b"
    r"|\bfor\s+\w+\s+in\s+os\.environ\b(?![\[.])|\bos\.environ\.(?:items|keys|values)\b|\b(?:list|set|sorted|str|len|any)\(os\.environ\b"
    r"|\bgc\.get_\w+|\bimport\s+ctypes\b|['\"`](?:\.{0,2}/)*(?:tests?|testing|specs?|__tests__)[/'\"`]"
    r"|\b(?:TESTING|TEST_\w+|(?i:(?:is|in|under|running)_?(?:unit_?)?tests?(?:ing|_?mode|_?env\w*)?|test_?(?:mode|env\w*)))\b|\.test\?"
    r"|\b(?:pytest|tox)\.ini\b|\bconftest\b|\bpyproject\.toml\b|['\"`/]\.git['\"`/]|\bisatty\b|\bisTTY\b"
    # JavaScript
    r"|\bNODE_ENV\b|\bNODE_TEST_CONTEXT\b|\bNODE_V8_COVERAGE\b|\b(?:VITEST|(?:JEST|MOCHA|AVA|TAP)_\w+)\b|\benv\.TAP\b|\bnpm_[a-z]\w+"
    r"|\bprocess\.(?:argv|execArgv|title|ppid|mainModule)\b|\bmodule\.(?:parent|children)\b|\brequire\.main\b"
    r"|\bimport\.meta\.(?:vitest|jest|env(?!\.VITE_))\b|\b(?:executionAsyncId|triggerAsyncId|createHook)\b|\btypeof\s+(?:jest|vi|vitest|mocha|describe|it|test|expect|before\w*)\b"
    r"|\b(?:capture|prepare)StackTrace\b|\bnew Error\([^)]*\)\s*\.stack\b|\b__coverage__\b"
    r"|\bisMainThread\b|\bworkerData\b"
    # Ruby
    r"|\b(?:RSpec|Mini[Tt]est|Test::Unit)\b|\bcaller(?:_locations)?(?:[(\[]|\.(?:any|all|none|first|last|grep|find|map|each|include|select|join)\b)|\$(?:0\.|PROGRAM_NAME\b|LOADED_FEATURES\b)|\bObjectSpace\b"
    # Go
    r"|^\s*(?:import\s+)?(?:\w+\s+)?\"testing\"|\btesting\.(?:Testing|Verbose|Short|CoverMode|Init|[TBM]|TB)\b|\btest\.v\b|\bflag\.(?:Lookup|CommandLine|Visit\w*)\b"
    r"|\bos\.(?:Args|Executable)\b|\bruntime\.(?:Callers?|Stack)\b|\bdebug\.(?:ReadBuildInfo|Stack|PrintStack)\b"
    # Rust
    r"|\bcurrent_exe\b|\benv::(?:args|vars)\w*|\bCARGO_\w+|\bcurrent\(\)\.name\("
    # Java and Kotlin
    r"|\bgetStackTrace\b|\bStackWalker\b|\bjava\.class\.path\b|\bsun\.java\.command\b|\borg[./]junit\b|\bProcessHandle\b"
    r"|\bSystem\.getProperties\b|\bManagementFactory\b|\bgetContextClassLoader\b"
)
CHECKS = re.compile(
    # Python
    r"\b(?<!\.)__(?:eq|ne|bool|contains|lt|gt|le|ge|instancecheck|subclasscheck)__\b"
    r"|^\s*(?:time|datetime|math|random|builtins|json|re|operator|decimal|unittest(?:\.\w+)*)\.\w+\s*=(?!=)"
    r"|\bsetattr\(\s*(?:time|datetime|math|random|builtins|unittest|sys|os)\b"
    # Shell
    r"|^\s*(?:function\s+)?(?:test|\[|diff|cmp|grep|set|exit|return|false|cd)\s*\(\)\s*\{|^\s*alias\s+\w|\bset \+e\b|"
    # JavaScript
    r"\b(?:Object|Array|String|Number|Boolean|Function|Promise|RegExp|Error|Map|Set|Date)\.prototype\s*(?:\.\w+|\[.*\])\s*=(?!=)"
    r"|\b(?:defineProperty|defineProperties|assign|setPrototypeOf)\(\s*(?:global\w*|[A-Z]\w+\.prototype)\s*,"
    r"|\b__proto__\s*[.\[]|\bassert(?:\.\w+)+\s*=(?!=)|\bglobal(?:This)?\.(?:expect|assert|it|test|describe|jest|vi)\b"
    r"|\basymmetricMatch\b|\bProxy(?:\.revocable)?\(|\$\$typeof\b|\bSymbol\.(?:toPrimitive|hasInstance)\b|(?<!\.)\b(?:toJSON|valueOf)\s*(?:\(\)\s*\{|[:=](?!=))"
    r"|(?:\brequire\(|\bfrom|\bimport\(?)\s*['\"`](?:node:test|jest|@jest/|vitest|@vitest/|mocha|chai|expect|should|tape?|ava|sinon)\b"
    r"|\bObject\.(?:is|keys|entries|assign)\s*=(?!=)"
    # Ruby
    r"|\bdef\s+(?:==|===|!=|eql\?|equal\?|=~|!|coerce|respond_to\w*|method_missing)(?![\w?=])"
    r"|^\s*(?:class|module)\s+(?:Object|BasicObject|Kernel|Integer|Float|Numeric|String|Symbol|Array|Hash|NilClass|Comparable|Proc|Time)\b"
    r"|(?<!\w)(?:Object|BasicObject|Kernel|Integer|String|Array|Hash)\.(?:prepend|include|class_eval|send|define_method)\b|\brefine\s"
    # Rust
    r"|\bPartialEq\b.*\bfor\b|\bmacro_rules!\s*(?:assert|debug_assert|panic)\w*|\bpanic::(?:set_hook|catch_unwind)\b"
    # Java and Kotlin
    r"|\b(?:equals|compareTo)\(\s*(?:final\s+)?\w+(?:\s+|\s*:\s*)\w+\??\s*\)\s*[:{]|\bsetDefaultUncaughtExceptionHandler\b"
)
CAUGHT_FAILURES = re.compile(
    r"\bAssertion(?:Failed)?Error\b|\bexcept(?:\s+\(?(?:Base)?Exception\)?)?\s*:|\bsuppress\(\s*(?:Base)?Exception\b|\bexcept\s+BaseException\b"
    r"|\brescue\s+Exception\b|\bcatch\s*\(\s*(?:final\s+)?(?:Throwable|\w+\s*:\s*Throwable)\b|\brecover\(\)"
    r"|\bwarnings\.(?:simplefilter|filterwarnings)\(\s*['\"]ignore|\blogging\.disable\(|\.on(?:ce)?\(\s*['\"`]unhandled\w+"
    r"|\bcatch\s*(?:\{|\(\s*\w*\s*\)\s*\{\s*\})|\.catch\(\s*\(\s*\w*\s*\)\s*=>\s*(?:\{\s*\}|null\b|undefined\b)"
)
OUTPUT = re.compile(
    # JavaScript
    r"\bprocess\.std(?:out|err)\s*(?:\.\w+\s*=(?!=)|\[)|\bconsole\.\w+\s*=(?!=)|\bwrite(?:Sync)?\(\s*[12]\s*,"
    # The Test Anything Protocol, and the lines of cargo and go
    r"|(?:['\"`]|\\n)(?:not )?ok\b ?(?:\d|-|\$)|\bTAP version\b"
    r"|['\"`]1\.\.\d|\btest result: ok\b|\.\.\. ok\b|--- PASS\b|\"Action\""
    # Ruby, Go, Java
    r"|\$std(?:out|err)\s*=(?!=)|\bSTD(?:OUT|ERR)\.reopen\b|\bos\.Std(?:out|err)\s*=(?!=)|\bSystem\.set(?:Out|Err)\b"
    # Every language
    r"|/dev/(?:stdout|stderr|fd)\b|/proc/(?:self|\d|\$|\{)"
)
CLOCK = re.compile(
    r"(?:\btime\(\)|\bnow\([^()]*\)|\btoday\(\)|\bDate\(\)).*(?:(?<![-=])[<>]|[=!]=|%|\bin\s)|(?<![-=])[<>].*(?:\btime\(\)|\bnow\([^()]*\)|\btoday\(\))"
)
NETWORK = re.compile(r"\bsocket\.(?:create_connection|getaddrinfo|gethostby\w+)|\bdns\.(?:lookup|resolve)\w*")
CHANCE = re.compile(
    r"\brandom\.(?:random|randint|randrange|choices?|uniform|getrandbits|sample)\(|\bsecrets\.(?:randbelow|choice|randbits)\(|\bMath\.random\("
    r"|\b(?:Random|Kernel)\.rand\b|(?<![\w.])rand\(|\brand\.(?:Intn?|Float\d+|Perm|Int\d*n?|N)\(|\bnew\s(?:Secure)?Random\(|\brand::"
)
MACHINE = re.compile(
    r"\bsocket\.gethostname\b|\bplatform\.(?:node|uname)\b|\bos\.uname\b|\bos\.hostname\(|\bos\.(?:get(?:e?uid|login)|cpu_count|get_terminal_size)\b|\bsys\.flags\b|\bos\.cpus\("
    r"|\bgetpass\.getuser\b"
)
BUILD_VARIANTS = re.compile(
    r"^//\s*(?:go:|\+)build\s|\bcfg!\(|#!?\[cfg(?:_attr)?\((?!test\))|^\s+#\[cfg\(test\)\]"  # Go, Rust
    r"|^#\[cfg\(test\)\](?!$|\s*(?:pub(?:\([^)]*\))?\s+)?mod\b)"
)
COMPUTED_NAMES = re.compile(
    # Python
    r"\b(?:environ\.get\(|environ\[|getenv\()\s*(?:['\"]\w*['\"]\s*\+|f['\"]|['\"]\w*['\"]\.join|(?!['\"])\w+\[)|(?<![\w.])(?:eval|exec|__import__|(?:importlib\.)?import_module)\(|\b__(?:subclasses|globals|closure|code)__\b"
    r"|\bgetattr\(\s*(?:os|sys|builtins)\b"
    # JavaScript
    r"|\bnew Function\(|\b(?:process|global|globalThis|module|require)\??\.?\["
    r"|\bReflect\.(?:get|set|apply)\(\s*(?:process|global)"
    # Ruby, Rust, Java
    r"|\b(?:instance|class|module)_eval\b|\bconst_get\b|\basm!\(|\btransmute\b|\bClass\.forName\(|\bsetAccessible\(|\bdefineClass\b"
)
# Matches a line of a check, or of a script that fails. A part of the tests may lose it without a test name in its path.
REMOVED_CHECKS = re.compile(
    r"^\s*assert\b|\bassert\w*\s*[(!]|\bAssertionError\b|\bexpect\(|\bSystemExit\b|\b(?:sys|process|os)\.exit\("
    r"|\bexit [1-9]|\|\| exit|\bset -e|^\s*(?:diff|cmp)\b|\bgrep -q|^\s*\[\[?\s.*\s\]\]?\s*(?:$|\|\||&&)"
)
GO_FILE_NAMES = re.compile(
    r".*_(?:aix|android|darwin|dragonfly|freebsd|illumos|ios|js|linux|netbsd|openbsd|plan9|solaris|wasip1|windows|386|amd64"
    r"|arm|arm64|loong64|mips\w*|ppc64\w*|riscv64|s390x|wasm)\.go"
)
VARIANT = "is compiled only in some builds, so the tests may run other code than users"
PATTERNS = (
    (IMMEDIATE_EXITS, True, "can end the process that runs it, even during tests"),
    (EXITS, False, "can end the process that runs it"),
    (IMPORTS, True, "can change what is loaded when code or tests start"),
    (REPORTS, True, "mentions how the test report is written"),
    (TEST_DETECTION, False, "can find out whether it is being tested"),
    (CHECKS, False, "can change what the checks in tests accept"),
    (CAUGHT_FAILURES, False, "can catch the failure of a check in a test"),
    (OUTPUT, False, "can change what a test runner seems to print"),
    (CLOCK, False, "depends on the clock, which differs during tests"),
    (CHANCE, False, "depends on chance, so a few test runs can miss a failure"),
    (NETWORK, False, "depends on the network, which differs during tests"),
    (MACHINE, False, "depends on the machine or its user, which differ during tests"),
    (BUILD_VARIANTS, False, VARIANT),
    (COMPUTED_NAMES, False, "computes what it runs, so this search may miss something"),
)
"""Tuples of three values: a pattern, whether the pattern also applies to tests and documentation (which may
contain tests), and the text of the note.
"""
TEST_SUPPORT_PATHS = re.compile(
    r"(?:.*/)?_*(?:testing|tests?|ci|test[-_]?(?:utils?|helpers?|support|tools?|kit|case|cases|data)|fixtures?|mocks?|fakes?|stubs?)(?:\.\w+|/.*)"
)
TEST_LIBRARIES = re.compile(
    r"^\s*(?:import|from)\s+(?:pytest|unittest|hypothesis|doctest)\b"
    r"|(?:\brequire\(|\bfrom|\bimport\(?)\s*['\"`](?:node:test|node:assert|assert|jest|@jest/|vitest|mocha|chai|sinon)\b"
    # Go, Java and Kotlin, Ruby
    r"|^\s*(?:import\s+)?(?:\w+\s+)?\"(?:testing(?:/\w+)?|github\.com/stretchr/testify/\w+)\"\s*$"
    r"|^\s*import\s+(?:static\s+)?(?:org\.(?:junit|assertj|hamcrest|mockito|testng)|kotlin\.test)\b"
    r"|^\s*require\s+['\"](?:minitest|rspec|test/unit)\b",
    re.MULTILINE,
)
REMOVED_CHECK = "loses a check, which may be one of the tests"
TEST_SUPPORT = "seems to help tests, which ran with the changed version"
PROSE_SUFFIXES = (".md", ".rst", ".adoc")


async def find_review_notes(workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...]) -> list[str]:
    """Returns one sentence for each file and pattern that matches. Only added lines are searched. If a pattern
    matches in many files, one more sentence names the other files.
    """
    files = [change for change in changes if change.mode.startswith("100")]
    scanned = [change for change in files if change.size <= MAX_FILE_BYTES][:MAX_FILES]
    product = await find_product_files(workspace, changes)
    kinds = (*(note for _, _, note in PATTERNS), REMOVED_CHECK, TEST_SUPPORT)
    notes: dict[str, dict[str, str]] = {note: {} for note in kinds}
    for change in scanned:
        new = (await workspace.read_patched(patch, change.path) or b"").decode(errors="replace")
        old = "" if change.old_mode == ABSENT else await workspace.read(change.path) or ""
        for note, sentence in scan_added_lines(change.path, old, new, change.path in product).items():
            notes[note][change.path] = sentence
    sentences = [sentence for by_path in notes.values() for sentence in _limit_notes(by_path)]
    if skipped_count := len(files) - len(scanned):
        verb = "file was" if skipped_count == 1 else "files were"
        sentences.append(
            f"{skipped_count} changed {verb} not scanned for code that can deceive test runs, because the change has "
            "too many files or too large ones."
        )
    return sentences


def _limit_notes(notes: dict[str, str]) -> list[str]:
    """Returns the first notes of one kind, and a sentence with the paths of the others. `notes` maps paths to
    notes.
    """
    sentences, others = [*notes.values()][:MAX_NOTES], [*notes][MAX_NOTES:]
    return (
        [*sentences, f"There are more such lines in {list_names(others, MAX_NAMES)}."]
        if others
        else sentences
    )


def scan_added_lines(path: str, old: str, new: str, is_product: bool = False) -> dict[str, str]:
    """Compares two versions of a file. Returns one sentence for each pattern that matches an added line, and one if
    the file is part of the product but seems to help tests. The keys are the notes of the patterns. `is_product` is set
    if the file is part of the product although its path says that it belongs to the tests.
    """
    added = find_added_lines(old, new)
    sentences = {}
    is_product |= not is_test_related(path) and not path.lower().endswith(PROSE_SUFFIXES)
    for pattern, in_tests, note in PATTERNS:
        if in_tests or is_product:
            matches = [(line, match) for line in added if (match := pattern.search(line.text))]
            if matches:
                lines = [line for line, _ in matches]
                sentences[note] = describe_lines(path, lines, note, matches[0][1])
    texts = old.splitlines() if path.endswith(".go") else ()
    constraints = (GO_FILE_NAMES.fullmatch(path), *map(BUILD_VARIANTS.search, texts))
    if is_product and (constraint := next(filter(None, constraints), None)):
        sentences[VARIANT] = f"{path} {VARIANT}: `{get_excerpt(constraint)}`"
    removed = (REMOVED_CHECKS.search(line.text) for line in find_added_lines(new, old) if is_product)
    if removed_check := next(filter(None, removed), None):
        sentences[REMOVED_CHECK] = f"{path} {REMOVED_CHECK}: `{get_excerpt(removed_check)}`"
    if is_product and old and (TEST_SUPPORT_PATHS.fullmatch(path) or TEST_LIBRARIES.search(old)):
        sentences[TEST_SUPPORT] = f"{path} {TEST_SUPPORT}."
    return sentences
