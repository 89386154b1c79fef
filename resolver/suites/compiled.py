"""Go, Rust and Java: one command each, that every repository of the language knows."""

import re

from resolver.suites.part import Family, Part, as_toml
from resolver.suites.suite import Suite


def _go(part: Part) -> Suite | None:
    if "go.mod" not in part.files or not part.named(re.compile(r"(?:.*/)?[^/]+_test\.go")):
        return None
    return part.suite("go test ./...", "go", "The go.mod here is of a module with tests.")


def _cargo(part: Part) -> Suite | None:
    if "Cargo.toml" not in part.files:
        return None
    if "workspace" in as_toml(part.texts.get("Cargo.toml")):
        return part.suite("cargo test --workspace", "cargo", "The Cargo.toml here is of a workspace.")
    return part.suite("cargo test", "cargo", "The Cargo.toml here is of a crate.")


def _java(part: Part) -> Suite | None:
    if "pom.xml" in part.files:
        maven = "sh ./mvnw" if "mvnw" in part.files else "mvn"
        return part.suite(f"{maven} test", "maven", "The pom.xml here is of a Maven project.")
    names = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")
    if (build := next((name for name in names if name in part.files), None)) is None:
        return None
    gradle = "sh ./gradlew" if "gradlew" in part.files else "gradle"
    return part.suite(f"{gradle} test", "gradle", f"The {build} here is of a Gradle project.")


def _always(part: Part) -> bool:
    return True


def _is_workspace(part: Part) -> bool:
    return "workspace" in as_toml(part.texts.get("Cargo.toml"))


GO = Family("go", re.compile(r"go\.mod"), re.compile(r"(?:.*/)?[^/]+_test\.go"), (".go",), _go)
RUST = Family(
    "rust",
    re.compile(r"Cargo\.toml"),
    re.compile(r"(?:.*/)?(?:tests/[^/]+|src/.*)\.rs"),
    (".rs",),
    _cargo,
    _is_workspace,
)
JAVA = Family(
    "java",
    re.compile(r"pom\.xml|(?:build|settings)\.gradle(?:\.kts)?"),
    re.compile(r"(?:.*/)?src/test/.*\.(?:java|kt|groovy|scala)"),
    (".java", ".kt", ".kts", ".groovy", ".scala"),
    _java,
    _always,
)
