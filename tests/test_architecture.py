"""Checks the architecture with `ast`: the direction of imports, the file for each library, and names."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

LAYERS = {
    "runtime": frozenset[str](),
    "resolver": frozenset({"runtime", "templates"}),
    "sdk": frozenset({"resolver", "runtime", "templates"}),
    "bot": frozenset({"sdk", "resolver", "runtime", "templates"}),
    "demo": frozenset({"bot", "sdk", "resolver", "runtime", "templates"}),
    "evaluation": frozenset({"demo", "bot", "sdk", "resolver", "runtime", "templates"}),
    "templates": frozenset[str](),
}
"""Our packages, and for each one those that it may import."""

LATE = {"demo": frozenset({"bot/cli/demo.py"}), "evaluation": frozenset({"bot/cli/evaluate.py"})}
"""Packages that only these files may import against the direction, and only inside a function."""

FENCES = {
    "PIL": {"runtime/page/marks.py"},
    "argcomplete": {"bot/commands/completion.py"},
    "arq": {"bot/redis/arq_queue.py", "bot/redis/arq_worker.py"},
    "av": {"runtime/documents/video_frames.py"},
    "defusedxml": {"resolver/suites/reports/runner_report.py", "runtime/documents/office.py"},
    "docker": {"runtime/docker/engine.py"},
    "fastapi": set(
        "bot/api/api_middleware.py bot/api/authentication.py bot/api/conversation_routes.py bot/api/job_routes.py "
        "bot/api/openapi.py bot/api/workspace_routes.py bot/api/problem_details.py bot/dashboard/asgi.py "
        "bot/dashboard/login.py bot/dashboard/run_routes.py bot/dashboard/web_requests.py bot/setup/welcome.py "
        "bot/setup/wizard.py bot/web/application.py".split()
    ),
    "fsspec": {"bot/observe/archive.py"},
    "git": {"resolver/git/local_repository.py"},
    "githubkit": {"bot/github/http_client.py"},
    "graphql": {"demo/github/graphql_schema.py"},
    "h11": {"bot/docker_proxy/proxy.py"},
    "hishel": {"bot/github/http_client.py"},
    "ipykernel": {"runtime/kernel/skill_kernel.py"},
    "jinja2": {"resolver/rendering/jinja_templates.py"},
    "jsonschema": {"demo/github/openapi_checker.py", "resolver/json_schemas.py"},
    "jupyter_client": {"runtime/kernel/kernel_manager.py"},
    "litellm": {"resolver/llm/litellm.py"},
    "mcp": {"bot/api/mcp_server.py", "resolver/tools/mcp.py"},
    "openpyxl": {"runtime/documents/converter.py"},
    "opentelemetry": {"bot/observe/tracing.py"},
    "playwright": {"runtime/browser/playwright_browser.py", "runtime/browser/vendor_types.py"},
    "pyarrow": {"evaluation/data_sets.py"},
    "prometheus_client": {"bot/observe/metrics.py"},
    "pylatexenc": {"runtime/documents/converter.py"},
    "pypdfium2": {"runtime/documents/converter.py"},
    "redis": set(
        "bot/redis/connection.py bot/redis/delivery_inbox.py bot/redis/counters.py bot/redis/shared_run_log.py "
        "bot/redis/arq_queue.py bot/redis/job_records.py bot/redis/thread_stops.py".split()
    ),
    "referencing": {"resolver/json_schemas.py"},
    "starlette": set(  # what FastAPI does not offer under its own name
        "bot/api/api_middleware.py bot/api/mcp_server.py bot/api/problem_details.py bot/dashboard/asgi.py "
        "bot/dashboard/web_requests.py bot/web/application.py".split()
    ),
    "tree_sitter": {"resolver/security/shell_parser.py", "runtime/search/grammars.py"},
    "tree_sitter_bash": {"resolver/security/shell_parser.py"},
    "uvicorn": {"bot/http_server.py", "demo/loopback_server.py"},
    "uvloop": {"bot/cli/command_runner.py"},
    "zmq": {"runtime/kernel/skill_kernel.py"},
    "websockets": {"sdk/remote_conversation.py", "sdk/server_client.py"},
    "yaml": {"resolver/skills/front_matter.py", "resolver/suites/ci_workflows.py"},
}
"""Third-party libraries, and the files that may import them."""

IN_THE_CONTAINER = {"pydantic", "pydantic_core", "typing_extensions"}
"""Libraries that all of `runtime/` may import: the container has no others."""

ENVIRONMENT = {
    "bot/cli/main.py": "completes words for a shell before anything heavy is imported",
    "bot/composition/composition_root.py": "the composition root",
    "resolver/llm/litellm.py": "sets litellm's own variables before its import; it has no other configuration",
    "sdk/environment.py": "the settings of the Python API, which has no composition root",
    "runtime/kernel/ipykernel_main.py": "starts in the sandbox, and IPython reads its directory only from there",
    "resolver/suites/reporters/plain_start.py": "starts in the sandbox, and hides the variables of the test run",
    "runtime/execution/action_server.py": "starts in the container, whose environment belongs to the sandbox",
}
"""Files that may read environment variables, and why."""

CATCH_ALL = {
    "bot/observe/archive.py": "a third-party file system can raise anything; an error costs one copy",
    "bot/conversations/conversation_service.py": "an agent in Python can raise anything; it is stored and raised",
    "bot/job_runner.py": "the outermost frame of a job; it logs and raises again",
    "sdk/agent_loop.py": "a third-party agent can raise anything; an error ends its run",
    "runtime/execution/executor.py": "a bug in an action costs one call; without a response, the sandbox is lost",
    "resolver/tools/entry_point_tools.py": "a third-party function can raise anything; an error costs one call",
}
"""Files that may catch every exception, and why. Cleaning up and raising again is always allowed."""

PARTICIPLES = frozenset(
    (
        "answered asked begun brought collected confined found given gone guarded heard kept known lent made meant "
        "pressed queued read received said seen set shown spent taken told touched unfinished watched written"
    ).split()
)
"""Participles that no module's name may end in: a module is named after a thing."""

PREPOSITIONS = frozenset(
    (
        "above after again against apart around at before beside beyond by elsewhere from in of off on out over "
        "since through to under until up with within without"
    ).split()
)
"""Prepositions and adverbs that no module's name may begin or end with."""

SHARED_CLASS_NAMES = {
    "Account": "an account in an answer of GitHub's API, and in a webhook's payload, which has fewer fields",
    "DeliveryAttempt": "GitHub's record of a delivery, as the setup and the redelivery each read it",
    "ReviewCommentResponse": "a review comment in two answers of GitHub, with different fields",
    "_Permissions": "private: permissions in two answers of GitHub",
    "_Repository": "private: a repository in two answers of GitHub",
}
"""Class names that two modules of the product use, and why."""

SHARED_MODULE_NAMES: dict[str, str] = {}
"""Module names that a layer has twice, as `layer/name`, and why."""

MOST_LINES = 400
MOST_FILES = 32


def imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yields the full name of each imported module, and whether the import is inside a function."""
    late = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "patchwright":
            yield from ((f"patchwright.{alias.name}", id(node) in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, id(node) in late


def wrong_imports(path: str, tree: ast.Module) -> Iterator[str]:
    layer = path.partition("/")[0]
    for name, late in imports(tree):
        if name.partition(".")[0] in LAYERS:
            yield f"{path} imports {name}: import it as patchwright.{name}"
        name = name.removeprefix("patchwright.")
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
                yield f"{path}:{node.lineno} reads the environment: bot/composition/composition_root.py does that"
            case ast.ImportFrom(module="os", names=aliases) if names & {alias.name for alias in aliases}:
                yield f"{path}:{node.lineno} reads the environment: bot/composition/composition_root.py does that"


def catches_of_anything(path: str, tree: ast.Module) -> Iterator[str]:
    for node in () if path in CATCH_ALL else ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = {ast.unparse(part) for part in ast.walk(node.type)} if node.type else {"BaseException"}
            cleans_up = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            if "Exception" in caught or ("BaseException" in caught and not cleans_up):
                yield f"{path}:{node.lineno} catches what it cannot name"


def waits_that_lose_a_cancellation(path: str, tree: ast.Module) -> Iterator[str]:
    """Finds `asyncio.wait_for`, which loses a cancellation that arrives with the result in Python 3.11.

    Source: github.com/python/cpython/issues/86296
    """
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="wait_for", value=ast.Name(id="asyncio")):
                yield f"{path}:{node.lineno} may lose a cancellation: use asyncio.timeout"


def raises_inside_except_star(path: str, tree: ast.Module) -> Iterator[str]:
    """Finds `raise` inside `except*`: before Python 3.11.4 it raises a group (python/cpython issue 103590)."""
    for node in ast.walk(tree):
        for handler in node.handlers if isinstance(node, ast.TryStar) else ():
            if any(isinstance(part, ast.Raise) and part.exc for part in ast.walk(handler)):
                yield f"{path}:{handler.lineno} raises inside except*: catch the ExceptionGroup"


def violations(path: str, source: str) -> list[str]:
    """Returns complaints about one file; `path` is relative to the repository's root."""
    tree = ast.parse(source)
    wrong = [
        *wrong_imports(path, tree),
        *reads_of_the_environment(path, tree),
        *catches_of_anything(path, tree),
        *waits_that_lose_a_cancellation(path, tree),
        *raises_inside_except_star(path, tree),
    ]
    if (lines := source.count("\n")) > MOST_LINES:
        wrong.append(f"{path} has {lines} lines: split it")
    return wrong


def unclear_module_names(paths: Iterable[str]) -> list[str]:
    """Returns complaints about modules that are named by a participle or a preposition."""
    found = []
    for path in paths:
        words = Path(path).stem.split("_")
        if words[-1] in PARTICIPLES or {words[0], words[-1]} & PREPOSITIONS:
            found.append(f"{path}: name it after the thing that it contains")
    return found


def repeated_class_names(sources: Mapping[str, str]) -> list[str]:
    """Returns complaints about classes that have the name of another class; `sources` maps paths to code."""
    places: dict[str, list[str]] = {}
    for path, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path)
    return [f"{name} is defined in {', '.join(files)}" for name, files in places.items() if len(files) > 1]


def repeated_module_names(paths: Iterable[str]) -> list[str]:
    """Returns complaints about modules that have the name of another module in the same layer."""
    places: dict[str, list[str]] = {}
    for path in paths:
        if (stem := Path(path).stem) != "__init__":
            places.setdefault(f"{path.partition('/')[0]}/{stem}", []).append(path)
    return [f"{name} is {' and '.join(files)}" for name, files in places.items() if len(files) > 1]


def product_files() -> list[Path]:
    sample = ROOT / "demo/sample/repository"  # a sample repository, not our code
    return sorted(
        path for layer in LAYERS for path in (ROOT / layer).rglob("*.py") if not path.is_relative_to(sample)
    )


def test_every_file_follows_the_import_rules() -> None:
    found = [
        wrong
        for path in product_files()
        for wrong in violations(path.relative_to(ROOT).as_posix(), path.read_text())
    ]
    assert found == []


def named_files(*layers: str) -> list[str]:
    paths = [path.relative_to(ROOT).as_posix() for path in product_files()]
    return [path for path in paths if path.partition("/")[0] in layers]


def test_a_module_is_named_after_a_thing() -> None:
    assert unclear_module_names(named_files(*LAYERS)) == []


@pytest.mark.parametrize(
    "path",
    "bot/told.py resolver/pull/seen.py bot/beyond.py resolver/sandbox/in_time.py demo/handed_over.py".split(),
)
def test_a_module_that_is_named_by_a_participle_or_a_preposition_is_found(path: str) -> None:
    assert unclear_module_names(["bot/web/server.py", path, "resolver/overlap.py"]) == [
        f"{path}: name it after the thing that it contains"
    ]


def test_a_class_has_a_name_of_its_own() -> None:
    sources = {path: (ROOT / path).read_text() for path in named_files(*LAYERS.keys() - {"demo", "sdk"})}
    repeated = [complaint.partition(" ")[0] for complaint in repeated_class_names(sources)]
    assert sorted(repeated) == sorted(SHARED_CLASS_NAMES)


def test_two_classes_with_one_name_are_found() -> None:
    sources = {"bot/a.py": "class Wish: ...", "resolver/b.py": "class Wish: ...\nclass Other: ..."}
    assert repeated_class_names(sources) == ["Wish is defined in bot/a.py, resolver/b.py"]


def test_a_module_has_a_name_of_its_own_within_its_layer() -> None:
    repeated = repeated_module_names(named_files(*LAYERS))
    assert sorted(complaint.partition(" ")[0] for complaint in repeated) == sorted(SHARED_MODULE_NAMES)


def test_two_modules_with_one_name_in_a_layer_are_found() -> None:
    paths = (
        "bot/ci/runner.py bot/doctor/runner.py resolver/runner.py bot/__init__.py bot/ci/__init__.py".split()
    )
    assert repeated_module_names(paths) == ["bot/runner is bot/ci/runner.py and bot/doctor/runner.py"]


def test_a_package_has_a_limited_number_of_files() -> None:
    files = Counter(path.parent.relative_to(ROOT).as_posix() for path in product_files())
    assert {package: many for package, many in files.items() if many > MOST_FILES} == {}


def test_tests_and_benchmarks_are_small_files_too() -> None:
    files = [path for directory in ("tests", "benchmarks") for path in (ROOT / directory).rglob("*.py")]
    assert [path.name for path in files if path.read_text().count("\n") > MOST_LINES] == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("bot/web/server.py", "import resolver.agent.agent", "import it as patchwright.resolver.agent.agent"),
        ("runtime/shell.py", "import patchwright.resolver.agent.agent", "runtime may not know resolver"),
        ("runtime/shell.py", "def f():\n    from patchwright.bot import cli", "runtime may not know bot"),
        ("runtime/shell.py", "import httpx", "the container does not hold it"),
        ("resolver/forge.py", "from patchwright.bot.github.forge import GitHub", "resolver may not know bot"),
        ("bot/web/server.py", "def f():\n    import patchwright.demo", "bot may not know demo"),
        ("bot/cli/demo.py", "import patchwright.demo.run", "bot may not know demo"),
        ("resolver/agent/agent.py", "import docker.errors", "its fence is runtime/docker/engine.py"),
        ("bot/web/server.py", "from git import Repo", "its fence is resolver/git/local_repository.py"),
        ("bot/cli/main.py", "import litellm", "its fence is resolver/llm/litellm.py"),
        ("resolver/agent/agent.py", "import os\nos.environ['A']", "reads the environment"),
        ("resolver/agent/agent.py", "import os\nos.getenv('A')", "reads the environment"),
        ("resolver/agent/agent.py", "from os import environ", "reads the environment"),
        ("resolver/forge.py", "try:\n    f()\nexcept Exception:\n    pass", "catches what it cannot name"),
        (
            "bot/web/server.py",
            "try:\n    f()\nexcept (A, BaseException):\n    pass",
            "catches what it cannot",
        ),
        (
            "resolver/forge.py",
            "try:\n    f()\nexcept Exception:\n    raise",
            "catches what it cannot name",
        ),
        ("resolver/agent/agent.py", "try:\n    f()\nexcept:\n    pass", "catches what it cannot name"),
        ("runtime/shell.py", "import asyncio\nasyncio.wait_for(f(), 1)", "may lose a cancellation"),
        ("bot/web/server.py", "try:\n    f()\nexcept* OSError:\n    raise E", "raises inside except*"),
        ("resolver/agent/agent.py", "x = 1\n" * 401, "has 401 lines"),
    ],
)
def test_a_file_that_breaks_a_rule_is_named(path: str, source: str, complaint: str) -> None:
    (found,) = violations(path, source)
    assert found.startswith(path)
    assert complaint in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("bot/cli/demo.py", "def run():\n    from patchwright.demo.run import play"),
        (
            "bot/cli/main.py",
            "from patchwright.resolver.agent.agent import Agent\nfrom patchwright.runtime.actions import Action",
        ),
        ("runtime/docker/engine.py", "import docker"),
        ("bot/composition/composition_root.py", "import os\nos.environ"),
        ("resolver/agent/agent.py", "try:\n    f()\nexcept (ValueError, OSError):\n    pass"),
        ("resolver/agent/agent.py", "try:\n    f()\nexcept BaseException:\n    close()\n    raise"),
    ],
)
def test_a_file_that_follows_the_rules_is_accepted(path: str, source: str) -> None:
    assert violations(path, source) == []


@pytest.mark.parametrize("named", [*ENVIRONMENT, *CATCH_ALL])
def test_an_exception_to_a_rule_is_still_needed(named: str) -> None:
    if not (path := ROOT / named).exists():
        pytest.skip(f"{named} is not written yet")
    tree = ast.parse(path.read_text())
    elsewhere = f"{named}.elsewhere"
    assert [*reads_of_the_environment(elsewhere, tree), *catches_of_anything(elsewhere, tree)] != []


def test_the_architecture_page_names_existing_classes() -> None:
    after = (ROOT / "docs/internals/architecture.md").read_text().split("\n## Terms of the literature\n")[1]
    words = set(re.findall(r"`([A-Z]\w+)`", after.partition("\n## ")[0]))
    code = "\n".join(
        path.read_text() for layer in ("runtime", "resolver") for path in (ROOT / layer).rglob("*.py")
    )
    assert len(words) >= 9
    assert [
        word for word in words if not re.search(rf"^(class {word}\b|{word} = )", code, re.MULTILINE)
    ] == []
