"""The architecture, held by `ast`: who may import whom, and which file may touch what."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

LAYERS = {
    "runtime": frozenset[str](),
    "resolver": frozenset({"runtime", "templates"}),
    "bot": frozenset({"resolver", "runtime", "templates"}),
    "demo": frozenset({"bot", "resolver", "runtime", "templates"}),
    "templates": frozenset[str](),
}
"""Each package and those of ours that it may import."""

LATE = {"demo": frozenset({"bot/commandline.py"})}
"""Packages that these files alone may import beyond their layer, and only inside a function."""

FENCES = {
    "PIL": {"runtime/page/marks.py"},
    "argcomplete": {"bot/terminal/completion.py"},
    "arq": {"bot/redis/queue.py", "bot/redis/taking.py"},
    "av": {"runtime/documents/frames.py"},
    "defusedxml": {"resolver/suites/testreport.py", "runtime/documents/office.py"},
    "docker": {"runtime/docker/engine.py"},
    "fsspec": {"bot/observe/archive.py"},
    "git": {"resolver/workspace.py"},
    "githubkit": {"bot/github/client.py"},
    "graphql": {"demo/world/schema.py"},
    "h11": {"bot/gate/gate.py"},
    "hishel": {"bot/github/client.py"},
    "ipykernel": {"runtime/kernel/boot.py"},
    "jinja2": {"resolver/words/texts.py"},
    "jsonschema": {"demo/world/contract.py", "resolver/schemas.py"},
    "jupyter_client": {"runtime/kernel/kernel.py"},
    "litellm": {"resolver/llm/litellm.py"},
    "mcp": {"resolver/tools/mcp.py"},
    "openpyxl": {"runtime/documents/converter.py"},
    "opentelemetry": {"bot/observe/tracing.py"},
    "playwright": {"runtime/browser/browser.py"},
    "prometheus_client": {"bot/observe/metrics.py"},
    "pylatexenc": {"runtime/documents/converter.py"},
    "pypdfium2": {"runtime/documents/converter.py"},
    "redis": {
        "bot/redis/client.py",
        "bot/redis/inbox.py",
        "bot/redis/ledger.py",
        "bot/redis/log.py",
        "bot/redis/queue.py",
        "bot/redis/records.py",
    },
    "referencing": {"resolver/schemas.py"},
    "starlette": {
        "bot/page/composed.py",
        "bot/page/login.py",
        "bot/page/runs.py",
        "bot/page/site.py",
        "bot/page/web.py",
        "bot/setup/site.py",
        "bot/setup/welcome.py",
    },
    "tree_sitter": {"resolver/security/shell_words.py", "runtime/search/grammars.py"},
    "tree_sitter_bash": {"resolver/security/shell_words.py"},
    "uvicorn": {"bot/http.py", "demo/loopback.py"},
    "uvloop": {"bot/commandline.py"},
    "zmq": {"runtime/kernel/boot.py"},
    "yaml": {"resolver/preparing/skills.py", "resolver/suites/workflows.py"},
}
"""Each vendor and the files that may import it."""

IN_THE_CONTAINER = {"pydantic", "pydantic_core", "typing_extensions"}
"""What `runtime/` may import outside its fences: the container holds nothing else."""

ENVIRONMENT = {
    "bot/cli.py": "is asked by a shell what completes a word, before anything heavy is imported",
    "bot/compose.py": "the composition root",
    "resolver/llm/litellm.py": "writes litellm's own switches before its import; it takes them no other way",
    "runtime/kernel/boot.py": "starts in the sandbox, and IPython takes its directory no other way",
    "runtime/server.py": "starts in the container, whose environment is the sandbox's own",
}
"""Files that may read the process's environment, and why."""

CATCH_ALL = {
    "bot/observe/archive.py": "a file system of somebody else's package raises what it likes: its fault costs a copy",
    "bot/worker.py": "the outermost frame of a job: it logs and raises again",
    "resolver/tools/own.py": "a function of somebody else's package: its fault costs a call, not the run",
}
"""Files that may catch what they cannot name, and why; to undo and raise again is free to all."""

MOST_LINES = 400
MOST_FILES = 32


def imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Every module imported, as its full name, and whether that happens inside a function."""
    late = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, id(node) in late


def wrong_imports(path: str, tree: ast.Module) -> Iterator[str]:
    layer = path.partition("/")[0]
    for name, late in imports(tree):
        top = name.partition(".")[0]
        if top in (*LAYERS, "tests", "benchmarks") and top != layer and top not in LAYERS[layer]:
            if not (late and path in LATE.get(top, ())):
                yield f"{path} imports {name}: {layer} may not know {top}"
        elif top in FENCES and path not in FENCES[top]:
            yield f"{path} imports {name}: its fence is {', '.join(sorted(FENCES[top]))}"
        elif layer == "runtime" and top not in {
            *sys.stdlib_module_names,
            *IN_THE_CONTAINER,
            *FENCES,
            "runtime",
        }:
            yield f"{path} imports {name}: the container does not hold it"


def reads_of_the_environment(path: str, tree: ast.Module) -> Iterator[str]:
    if path in ENVIRONMENT:
        return
    names = {"environ", "environb", "getenv", "getenvb"}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, value=ast.Name(id="os")) if name in names:
                yield f"{path}:{node.lineno} reads the environment: bot/compose.py does that"
            case ast.ImportFrom(module="os", names=aliases) if names & {alias.name for alias in aliases}:
                yield f"{path}:{node.lineno} reads the environment: bot/compose.py does that"


def catches_of_anything(path: str, tree: ast.Module) -> Iterator[str]:
    if path in CATCH_ALL:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = {ast.unparse(part) for part in ast.walk(node.type)} if node.type else {"BaseException"}
            cleans_up = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            if "Exception" in caught or ("BaseException" in caught and not cleans_up):
                yield f"{path}:{node.lineno} catches what it cannot name"


def waits_that_lose_a_cancellation(path: str, tree: ast.Module) -> Iterator[str]:
    """Python 3.11's `wait_for` forgets one that comes with the result: the task goes on as if nobody had stopped it.

    Source: github.com/python/cpython/issues/86296
    """
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="wait_for", value=ast.Name(id="asyncio")):
                yield f"{path}:{node.lineno} may lose a cancellation: use asyncio.timeout"


def violations(path: str, source: str) -> list[str]:
    """What is wrong with the architecture of one file; `path` is relative to the checkout."""
    tree = ast.parse(source)
    wrong = [
        *wrong_imports(path, tree),
        *reads_of_the_environment(path, tree),
        *catches_of_anything(path, tree),
        *waits_that_lose_a_cancellation(path, tree),
    ]
    if (lines := source.count("\n")) > MOST_LINES:
        wrong.append(f"{path} has {lines} lines: split it")
    return wrong


def product_files() -> list[Path]:
    sample = ROOT / "demo/sample/repository"  # somebody else's code, as far as we are concerned
    return sorted(
        path for layer in LAYERS for path in (ROOT / layer).rglob("*.py") if not path.is_relative_to(sample)
    )


def test_every_file_keeps_to_its_layer_and_its_fence() -> None:
    found = [
        wrong
        for path in product_files()
        for wrong in violations(path.relative_to(ROOT).as_posix(), path.read_text())
    ]
    assert found == []


def test_a_package_is_no_heap() -> None:
    files = Counter(path.parent.relative_to(ROOT).as_posix() for path in product_files())
    assert {package: many for package, many in files.items() if many > MOST_FILES} == {}


def test_a_test_or_a_benchmark_is_a_small_file_too() -> None:
    files = [path for directory in ("tests", "benchmarks") for path in (ROOT / directory).rglob("*.py")]
    assert [path.name for path in files if path.read_text().count("\n") > MOST_LINES] == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("runtime/shell.py", "import resolver.agent", "runtime may not know resolver"),
        ("runtime/shell.py", "def f():\n    from bot import cli", "runtime may not know bot"),
        ("runtime/shell.py", "import httpx", "the container does not hold it"),
        ("resolver/agent.py", "from bot.github.forge import GitHub", "resolver may not know bot"),
        ("bot/serve.py", "def f():\n    import demo", "bot may not know demo"),
        ("bot/commandline.py", "import demo.story", "bot may not know demo"),
        ("resolver/agent.py", "import docker.errors", "its fence is runtime/docker/engine.py"),
        ("bot/serve.py", "from git import Repo", "its fence is resolver/workspace.py"),
        ("bot/cli.py", "import litellm", "its fence is resolver/llm/litellm.py"),
        ("resolver/agent.py", "import os\nos.environ['A']", "reads the environment"),
        ("resolver/agent.py", "import os\nos.getenv('A')", "reads the environment"),
        ("resolver/agent.py", "from os import environ", "reads the environment"),
        ("resolver/agent.py", "try:\n    f()\nexcept Exception:\n    pass", "catches what it cannot name"),
        (
            "resolver/agent.py",
            "try:\n    f()\nexcept (A, BaseException):\n    pass",
            "catches what it cannot",
        ),
        ("resolver/agent.py", "try:\n    f()\nexcept Exception:\n    raise", "catches what it cannot name"),
        ("resolver/agent.py", "try:\n    f()\nexcept:\n    pass", "catches what it cannot name"),
        ("runtime/shell.py", "import asyncio\nasyncio.wait_for(f(), 1)", "may lose a cancellation"),
        ("resolver/agent.py", "x = 1\n" * 401, "has 401 lines"),
    ],
)
def test_a_file_outside_its_bounds_is_named(path: str, source: str, complaint: str) -> None:
    (found,) = violations(path, source)
    assert found.startswith(path)
    assert complaint in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("bot/commandline.py", "def demo():\n    from demo.story import play"),
        ("bot/cli.py", "from resolver.agent import Agent\nfrom runtime.actions import Action"),
        ("runtime/docker/engine.py", "import docker"),
        ("bot/compose.py", "import os\nos.environ"),
        ("resolver/agent.py", "try:\n    f()\nexcept (ValueError, OSError):\n    pass"),
        ("resolver/agent.py", "try:\n    f()\nexcept BaseException:\n    close()\n    raise"),
    ],
)
def test_a_file_within_its_bounds_is_left_alone(path: str, source: str) -> None:
    assert violations(path, source) == []


@pytest.mark.parametrize("named", [*ENVIRONMENT, *CATCH_ALL])
def test_an_exception_that_nobody_needs_any_more_is_taken_back(named: str) -> None:
    if not (path := ROOT / named).exists():
        pytest.skip(f"{named} is not written yet")
    source = path.read_text()
    tree = ast.parse(source)
    elsewhere = f"{named}.elsewhere"
    assert [*reads_of_the_environment(elsewhere, tree), *catches_of_anything(elsewhere, tree)] != []


def test_the_words_of_the_architecture_are_those_of_the_code() -> None:
    _, _, after = (ROOT / "docs/architecture.md").read_text().partition("\n## The words\n")
    words = set(re.findall(r"`([A-Z]\w+)`", after.partition("\n## ")[0]))
    code = "\n".join(
        path.read_text() for layer in ("runtime", "resolver") for path in (ROOT / layer).rglob("*.py")
    )
    assert len(words) >= 9
    assert [
        word for word in words if not re.search(rf"^(class {word}\b|{word} = )", code, re.MULTILINE)
    ] == []
