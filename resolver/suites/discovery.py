"""Finds out how a repository is tested. The information comes from the repository's configuration. If the
configuration contains no test command, the information comes from the repository's files.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.runner_names import RunnerName
from patchwright.resolver.settings.settings import REPO_CONFIG_PATH, ConfiguredSuite, RepoConfig
from patchwright.resolver.suites import ci_workflows, makefile, ruby
from patchwright.resolver.suites.compiled_languages import GO, JAVA, RUST
from patchwright.resolver.suites.javascript import JAVASCRIPT, detect_script_runner
from patchwright.resolver.suites.makefile import MAKE
from patchwright.resolver.suites.project_dir import DeclaredCommand, LanguageSupport, ProjectDir
from patchwright.resolver.suites.python import PACKAGE_TEST_MODULES, PYTHON
from patchwright.resolver.suites.ruby import RUBY
from patchwright.resolver.suites.runners import detect_runner
from patchwright.resolver.suites.suite import Suite, Suites

SUPPORTED_LANGUAGES = (PYTHON, JAVASCRIPT, GO, RUST, JAVA, RUBY, MAKE)
MANIFEST_NAMES = re.compile(
    r"package\.json|pyproject\.toml|setup\.cfg|tox\.ini|pytest\.ini|noxfile\.py|Cargo\.toml|Rakefile"
    r"|requirements[^/]*\.txt|" + "|".join(makefile.MAKEFILE_NAMES)
)
# Directories that contain third-party code, or code that tests use as data.
EXCLUDED_DIRECTORIES = frozenset(
    "node_modules vendor vendored third_party site-packages test tests testing testdata spec __tests__ "
    "fixtures examples example samples docs doc templates".split()
)
MAX_PROJECTS = 50  # maximum number of directories with manifests
MAX_MANIFESTS = 60  # maximum number of manifest files that are read
MAX_MANIFEST_BYTES = 500_000  # maximum bytes of one manifest
MAX_TEST_FILES_READ = 5  # maximum number of test files that are read


async def find_suites(workspace: Workspace, config: RepoConfig) -> Suites:
    """Returns all test suites of the repository at the base commit. The result is empty if the repository has
    no tests.
    """
    files = await workspace.list_files()
    ids = await workspace.get_blob_ids(_paths_to_read(files))
    contents = await workspace.read_blobs(tuple(ids.values()), MAX_MANIFEST_BYTES)
    texts = {
        path: content.decode(errors="replace")
        for path, id in ids.items()
        if isinstance(content := contents.get(id), bytes)
    }
    return await asyncio.to_thread(detect_suites, files, texts, config)


def detect_suites(files: Sequence[str], contents: Mapping[str, str], config: RepoConfig) -> Suites:
    """Finds the test suites of a repository from the list of its files and the contents of some files."""
    default_suite = (ConfiguredSuite(command=config.test_command),) if config.test_command else ()
    if configured := (*default_suite, *config.tests):
        primary, *others = (
            _configured_suite(configured_suite, files, contents) for configured_suite in configured
        )
        if primary.language is None and (detected := detect_suites(files, contents, RepoConfig()).primary):
            primary = primary.model_copy(update={"language": detected.language})
        return Suites(all=(primary, *others), primary=primary)
    declared = _declared_commands(contents)
    names: dict[str, list[str]] = {}
    for path in files:
        names.setdefault(_parent(path), []).append(path.rpartition("/")[2])
    suites = [
        match
        for support in SUPPORTED_LANGUAGES
        for match in _find_language_suites(support, files, names, contents, declared)
    ]
    source_directories = {part.directory for part, suite in suites if suite.suffixes}
    suites = [
        (part, suite) for part, suite in suites if suite.suffixes or part.directory not in source_directories
    ]
    for directory, commands in declared.items():
        if commands and all(suite.directory != directory for _, suite in suites):
            part = ProjectDir(directory, ())
            suites.append(
                (part, part.make_suite(commands[0].command, commands[0].runner, commands[0].command_reason))
            )
    suites.sort(key=lambda match: (_depth(match[0].directory), match[0].directory))
    return Suites(all=tuple(suite for _, suite in suites), primary=_pick_primary(suites))


def _paths_to_read(files: Iterable[str]) -> tuple[str, ...]:
    """Returns the paths of the files whose contents are needed. Manifests come first, sorted by the number of
    directories in their paths.
    """
    manifests: list[str] = []
    workflows: list[str] = []
    tests: list[str] = []
    modules: list[str] = []
    for path in files:
        if ci_workflows.WORKFLOW_PATHS.fullmatch(path):
            workflows.append(path)
        elif MANIFEST_NAMES.fullmatch(path.rpartition("/")[2]) and not _is_excluded(path):
            manifests.append(path)
        elif PYTHON.test_files.fullmatch(path):
            tests.append(path)
        elif PACKAGE_TEST_MODULES.fullmatch(path):
            modules.append(path)
    manifests.sort(key=lambda path: path.count("/"))
    tests = (tests or modules)[:MAX_TEST_FILES_READ]
    return (*manifests[:MAX_MANIFESTS], *workflows[: ci_workflows.MAX_FILES], *tests)


def _is_excluded(path: str) -> bool:
    return not EXCLUDED_DIRECTORIES.isdisjoint(path.split("/")[:-1])


def _declared_commands(contents: Mapping[str, str]) -> dict[str, tuple[DeclaredCommand, ...]]:
    """Returns the test commands for each directory. Commands from workflows come before commands from
    Makefiles.
    """
    commands: dict[str, list[DeclaredCommand]] = {}
    for path in sorted(contents):
        if ci_workflows.WORKFLOW_PATHS.fullmatch(path):
            for directory, command in ci_workflows.find_test_commands(path, contents[path]):
                commands.setdefault(directory, []).append(command)
    for directory in sorted(
        {_parent(path) for path in contents if path.rpartition("/")[2] in makefile.MAKEFILE_NAMES}
    ):
        commands.setdefault(directory, []).extend(
            makefile.find_declared_commands(ProjectDir(directory, (), _contents_below(contents, directory)))
        )
    return {directory: tuple(command[:100]) for directory, command in commands.items()}


def _find_language_suites(
    support: LanguageSupport,
    files: Sequence[str],
    names: Mapping[str, Sequence[str]],
    contents: Mapping[str, str],
    declared: Mapping[str, tuple[DeclaredCommand, ...]],
) -> Iterator[tuple[ProjectDir, Suite]]:
    """Yields the suites of one language. `names` maps directories to file names."""
    with_manifest = {
        directory
        for directory, file_names in names.items()
        if any(map(support.manifests.fullmatch, file_names)) and not _is_excluded(f"{directory}/")
    }
    project_directories: list[str] = []
    covering_directories: list[str] = []
    for directory in sorted({"", *with_manifest}, key=lambda path: (_depth(path), path))[:MAX_PROJECTS]:
        if any(not parent or directory.startswith(f"{parent}/") for parent in covering_directories):
            continue
        project_directories.append(directory)
        project = ProjectDir(directory, tuple(names.get(directory, ())), _contents_below(contents, directory))
        if directory in with_manifest and support.covers_subdirectories(project):
            covering_directories.append(directory)
    for directory, own_files in _assign_files(files, project_directories).items():
        project_dir = ProjectDir(
            directory, own_files, _contents_below(contents, directory), declared.get(directory, ())
        )
        if suite := support.find_suite(project_dir):
            language = suite.language or support.language
            yield project_dir, suite.model_copy(update={"suffixes": support.suffixes, "language": language})


def _assign_files(files: Iterable[str], directories: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Assigns each file to the innermost of these directories that contains the file. The paths in the result
    are relative to the assigned directory.
    """
    if len(directories) == 1:
        return {directories[0]: tuple(files)}
    assigned: dict[str, list[str]] = {directory: [] for directory in directories}
    nearest = {directory: directory for directory in directories}

    def find_owner(directory: str) -> str:
        if directory not in nearest:
            nearest[directory] = find_owner(_parent(directory))
        return nearest[directory]

    for path in files:
        if path.count("/") < 200:  # no package is deeper than that
            owner = find_owner(_parent(path))
            assigned[owner].append(path[len(owner) + 1 :] if owner else path)
    return {directory: tuple(own) for directory, own in assigned.items()}


def _pick_primary(found: Sequence[tuple[ProjectDir, Suite]]) -> Suite | None:
    """Returns the suite with the most test files. A suite whose runner reports each test is preferred. If the
    root directory has suites, only these are considered.
    """
    at_root = [pair for pair in found if not pair[0].directory] or found

    def rank(pair: tuple[ProjectDir, Suite]) -> tuple[bool, int]:
        part, suite = pair
        support = next(
            (support for support in SUPPORTED_LANGUAGES if support.suffixes == suite.suffixes), MAKE
        )
        return suite.runner != "none", len(part.match_files(support.test_files))

    return max(at_root, key=rank)[1] if at_root else None


def _configured_suite(
    configured: ConfiguredSuite, files: Sequence[str], contents: Mapping[str, str]
) -> Suite:
    paths = tuple(
        path.removeprefix(f"{configured.directory}/") if configured.directory else path
        for path in files
        if not configured.directory or path.startswith(f"{configured.directory}/")
    )
    project = ProjectDir(configured.directory, paths, _contents_below(contents, configured.directory))
    runner: RunnerName = configured.runner or detect_runner(configured.command)
    for detect in (detect_script_runner, makefile.detect_target_runner, ruby.detect_task_runner):
        runner = runner if runner != "none" or configured.runner else detect(project, configured.command)
    return project.make_suite(configured.command, runner, f"{REPO_CONFIG_PATH} configures this command.")


def _contents_below(contents: Mapping[str, str], directory: str) -> dict[str, str]:
    prefix = f"{directory}/" if directory else ""
    return {path[len(prefix) :]: text for path, text in contents.items() if path.startswith(prefix)}


def _depth(directory: str) -> int:
    return directory.count("/") + bool(directory)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
