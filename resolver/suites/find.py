"""How a repository is tested: as its maintainers say, else as what is in it says."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from resolver.settings.settings import REPO_CONFIG_PATH, ConfiguredSuite, RepoConfig
from resolver.suites import make, ruby, workflows
from resolver.suites.compiled import GO, JAVA, RUST
from resolver.suites.javascript import JAVASCRIPT, script_kind
from resolver.suites.kind import Kind
from resolver.suites.make import MAKE
from resolver.suites.part import Family, Part, Said
from resolver.suites.python import PYTHON
from resolver.suites.ruby import RUBY
from resolver.suites.runners import kind_of
from resolver.suites.suite import Suite, Suites
from resolver.workspace import Workspace

FAMILIES = (PYTHON, JAVASCRIPT, GO, RUST, JAVA, RUBY, MAKE)
READ = re.compile(
    r"package\.json|pyproject\.toml|setup\.cfg|tox\.ini|pytest\.ini|noxfile\.py|Cargo\.toml|Rakefile"
    r"|requirements[^/]*\.txt|" + "|".join(make.NAMES)
)
# What lies there is somebody else's, or is made to be tested, not to test.
ELSEWHERE = frozenset(
    "node_modules vendor vendored third_party site-packages test tests testing testdata spec __tests__ "
    "fixtures examples example samples docs doc templates".split()
)
MOST_PARTS = 50  # directories
MOST_READ = 60  # manifests
MOST_BYTES = 500_000  # of one manifest
LOOKED_INTO = 5  # test files


async def find_suites(workspace: Workspace, config: RepoConfig) -> Suites:
    """Every way to test the repository at base; none when it has no tests."""
    files = await workspace.files()
    ids = await workspace.ids(_read(files))
    contents = await workspace.contents(tuple(ids.values()), MOST_BYTES)
    texts = {
        path: content.decode(errors="replace")
        for path, id in ids.items()
        if isinstance(content := contents.get(id), bytes)
    }
    return await asyncio.to_thread(suites_in, files, texts, config)


def suites_in(files: Sequence[str], texts: Mapping[str, str], config: RepoConfig) -> Suites:
    """The same for a listing of files, and the contents of some."""
    first = (ConfiguredSuite(command=config.test_command),) if config.test_command else ()
    if given := (*first, *config.tests):
        likely, *others = (_configured(each, files, texts) for each in given)
        if likely.language is None and (unasked := suites_in(files, texts, RepoConfig()).likely):
            likely = likely.model_copy(update={"language": unasked.language})
        return Suites(all=(likely, *others), likely=likely)
    said = _said(texts)
    names: dict[str, list[str]] = {}
    for path in files:
        names.setdefault(_parent(path), []).append(path.rpartition("/")[2])
    found = [pair for family in FAMILIES for pair in _of_family(family, files, names, texts, said)]
    speaking = {part.directory for part, suite in found if suite.suffixes}
    found = [(part, suite) for part, suite in found if suite.suffixes or part.directory not in speaking]
    for directory, told in said.items():
        if told and all(suite.directory != directory for _, suite in found):
            part = Part(directory, ())
            found.append((part, part.suite(told[0].command, told[0].kind, told[0].why)))
    found.sort(key=lambda pair: (_depth(pair[0].directory), pair[0].directory))
    return Suites(all=tuple(suite for _, suite in found), likely=_likely(found))


def _read(files: Iterable[str]) -> tuple[str, ...]:
    """The paths whose contents tell something, those nearest to the root first."""
    manifests: list[str] = []
    flows: list[str] = []
    tests: list[str] = []
    for path in files:
        if workflows.PATHS.fullmatch(path):
            flows.append(path)
        elif READ.fullmatch(path.rpartition("/")[2]) and not _elsewhere(path):
            manifests.append(path)
        elif PYTHON.tests.fullmatch(path) and len(tests) < LOOKED_INTO:
            tests.append(path)
    manifests.sort(key=lambda path: path.count("/"))
    return (*manifests[:MOST_READ], *flows[: workflows.MOST_FILES], *tests)


def _elsewhere(path: str) -> bool:
    return not ELSEWHERE.isdisjoint(path.split("/")[:-1])


def _said(texts: Mapping[str, str]) -> dict[str, tuple[Said, ...]]:
    """By directory, what the workflows and then the Makefiles run."""
    found: dict[str, list[Said]] = {}
    for path in sorted(texts):
        if workflows.PATHS.fullmatch(path):
            for directory, said in workflows.said_in(path, texts[path]):
                found.setdefault(directory, []).append(said)
    for directory in sorted({_parent(path) for path in texts if path.rpartition("/")[2] in make.NAMES}):
        found.setdefault(directory, []).extend(make.said(Part(directory, (), _below(texts, directory))))
    return {directory: tuple(said[:100]) for directory, said in found.items()}


def _of_family(
    family: Family,
    files: Sequence[str],
    names: Mapping[str, Sequence[str]],
    texts: Mapping[str, str],
    said: Mapping[str, tuple[Said, ...]],
) -> Iterator[tuple[Part, Suite]]:
    """Its suites; `names` are the files' names by directory."""
    having = {
        directory
        for directory, there in names.items()
        if any(map(family.manifests.fullmatch, there)) and not _elsewhere(f"{directory}/")
    }
    kept: list[str] = []
    covering: list[str] = []
    for directory in sorted({"", *having}, key=lambda path: (_depth(path), path))[:MOST_PARTS]:
        if any(not above or directory.startswith(f"{above}/") for above in covering):
            continue
        kept.append(directory)
        here = Part(directory, tuple(names.get(directory, ())), _below(texts, directory))
        if directory in having and family.covers(here):
            covering.append(directory)
    for directory, own in _shares(files, kept).items():
        part = Part(directory, own, _below(texts, directory), said.get(directory, ()))
        if suite := family.find(part):
            language = suite.language or family.name
            yield part, suite.model_copy(update={"suffixes": family.suffixes, "language": language})


def _shares(files: Iterable[str], directories: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Of each directory the files that are not below a nearer one, as paths from there."""
    if len(directories) == 1:
        return {directories[0]: tuple(files)}
    shares: dict[str, list[str]] = {directory: [] for directory in directories}
    nearest = {directory: directory for directory in directories}

    def home(directory: str) -> str:
        if directory not in nearest:
            nearest[directory] = home(_parent(directory))
        return nearest[directory]

    for path in files:
        if path.count("/") < 200:  # deeper is nobody's package
            at = home(_parent(path))
            shares[at].append(path[len(at) + 1 :] if at else path)
    return {directory: tuple(own) for directory, own in shares.items()}


def _likely(found: Sequence[tuple[Part, Suite]]) -> Suite | None:
    """At the root, else anywhere: the suite with the most test files whose single outcomes can be had."""
    at_root = [pair for pair in found if not pair[0].directory] or found

    def weight(pair: tuple[Part, Suite]) -> tuple[bool, int]:
        part, suite = pair
        family = next((family for family in FAMILIES if family.suffixes == suite.suffixes), MAKE)
        return suite.report != "none", len(part.named(family.tests))

    return max(at_root, key=weight)[1] if at_root else None


def _configured(given: ConfiguredSuite, files: Sequence[str], texts: Mapping[str, str]) -> Suite:
    below = tuple(
        path.removeprefix(f"{given.directory}/") if given.directory else path
        for path in files
        if not given.directory or path.startswith(f"{given.directory}/")
    )
    part = Part(given.directory, below, _below(texts, given.directory))
    kind: Kind = given.report or kind_of(given.command)
    for hidden in (script_kind, make.target_kind, ruby.task_kind):
        kind = kind if kind != "none" or given.report else hidden(part, given.command)
    return part.suite(given.command, kind, f"{REPO_CONFIG_PATH} names this command.")


def _below(texts: Mapping[str, str], directory: str) -> dict[str, str]:
    prefix = f"{directory}/" if directory else ""
    return {path[len(prefix) :]: text for path, text in texts.items() if path.startswith(prefix)}


def _depth(directory: str) -> int:
    return directory.count("/") + bool(directory)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
