"""Finds the test suites of Go, Rust and Java, each of which has one standard command."""

import re

from patchwright.resolver.suites.project_dir import LanguageSupport, ProjectDir, parse_toml_or_empty
from patchwright.resolver.suites.suite import Suite


def _find_go_suite(project: ProjectDir) -> Suite | None:
    if "go.mod" not in project.files or not project.match_files(re.compile(r"(?:.*/)?[^/]+_test\.go")):
        return None
    return project.make_suite("go test ./...", "go", "The file go.mod defines a module with tests.")


def _find_cargo_suite(project: ProjectDir) -> Suite | None:
    if "Cargo.toml" not in project.files:
        return None
    if "workspace" in parse_toml_or_empty(project.contents.get("Cargo.toml")):
        return project.make_suite(
            "cargo test --workspace", "cargo", "The file Cargo.toml defines a workspace."
        )
    return project.make_suite("cargo test", "cargo", "The file Cargo.toml defines a crate.")


def _find_java_suite(project: ProjectDir) -> Suite | None:
    if "pom.xml" in project.files:
        maven = "sh ./mvnw" if "mvnw" in project.files else "mvn"
        return project.make_suite(f"{maven} test", "maven", "The file pom.xml defines a Maven project.")
    names = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")
    if (build := next((name for name in names if name in project.files), None)) is None:
        return None
    gradle = "sh ./gradlew" if "gradlew" in project.files else "gradle"
    return project.make_suite(f"{gradle} test", "gradle", f"The file {build} defines a Gradle project.")


def _covers_always(project: ProjectDir) -> bool:
    return True


def _is_cargo_workspace(project: ProjectDir) -> bool:
    return "workspace" in parse_toml_or_empty(project.contents.get("Cargo.toml"))


GO = LanguageSupport(
    "go", re.compile(r"go\.mod"), re.compile(r"(?:.*/)?[^/]+_test\.go"), (".go",), _find_go_suite
)
RUST = LanguageSupport(
    "rust",
    re.compile(r"Cargo\.toml"),
    re.compile(r"(?:.*/)?(?:tests/[^/]+|src/.*)\.rs"),
    (".rs",),
    _find_cargo_suite,
    _is_cargo_workspace,
)
JAVA = LanguageSupport(
    "java",
    re.compile(r"pom\.xml|(?:build|settings)\.gradle(?:\.kts)?"),
    re.compile(r"(?:.*/)?src/test/.*\.(?:java|kt|groovy|scala)"),
    (".java", ".kt", ".kts", ".groovy", ".scala"),
    _find_java_suite,
    _covers_always,
)
