"""Reads data sets in the format of SWE-bench, and writes predictions in its format.

Source: swebench.com/SWE-bench/guides/datasets. Hints (`hints_text`) are not read at all.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from patchwright.evaluation.instances import Instance
from patchwright.evaluation.official_images import get_official_image
from patchwright.resolver.errors import UsageError

REQUIRED = ("instance_id", "repo", "base_commit", "problem_statement", "patch", "test_patch")


def is_swe_bench(row: Mapping[str, Any]) -> bool:
    return all(name in row for name in REQUIRED)


def read_row(row: Mapping[str, Any], repositories: Path | None) -> Instance:
    """Converts one row. `repositories` is a directory with clones, such as `django__django` or `django/django`;
    a repository that is not there is cloned from GitHub.
    """
    repo = str(row["repo"])
    return Instance(
        id=str(row["instance_id"]),
        repo=repo,
        url=_find_repository(repo, repositories),
        base_commit=str(row["base_commit"]),
        problem=str(row["problem_statement"]) + _show_images(row),
        gold_patch=str(row["patch"]),
        test_patch=str(row["test_patch"]),
        fail_to_pass=_read_tests(row.get("FAIL_TO_PASS")),
        pass_to_pass=_read_tests(row.get("PASS_TO_PASS")),
        image=_find_image(row),
        test_command=str(row.get("test_command") or ""),
        images=_list_images(row),
        created_at=_read_date(row.get("created_at")),
    )


def _find_image(row: Mapping[str, Any]) -> str:
    """Returns the image of the instance; empty if there is none.

    Rows of SWE-bench itself have an `environment_setup_commit`. Other data sets may name an image. Otherwise, no
    registry is contacted, because the instance's name may be confidential.
    """
    if named := row.get("image_name") or row.get("docker_image"):
        return str(named)
    return get_official_image(str(row["instance_id"])) if row.get("environment_setup_commit") else ""


def _find_repository(repo: str, repositories: Path | None) -> str:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise UsageError(f"The data set names the repository {repo[:80]!r}, which is not OWNER/NAME")
    for name in (repo.replace("/", "__"), repo, repo.partition("/")[2]):
        if repositories and (repositories / name).is_dir():
            return str((repositories / name).resolve())
    return f"https://github.com/{repo}"


def _read_tests(value: Any) -> tuple[str, ...]:
    """Reads a list of tests. In the JSONL files, it is a JSON text; in the parquet files of some sets, a list."""
    if value is None or value == "":
        return ()
    return tuple(str(test) for test in (json.loads(value) if isinstance(value, str) else value))


def _list_images(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the URLs of the images of the issue (SWE-bench Multimodal)."""
    assets = row.get("image_assets") or {}
    assets = json.loads(assets) if isinstance(assets, str) else assets
    return tuple(str(url) for url in assets.get("problem_statement") or ())


def _show_images(row: Mapping[str, Any]) -> str:
    """Returns Markdown with the images that the issue does not show already."""
    missing = [url for url in _list_images(row) if url not in row["problem_statement"]]
    return "".join(f"\n\n![image]({url})" for url in missing)


def _read_date(value: Any) -> datetime | None:
    if isinstance(value, datetime) or not value:
        return value or None
    return datetime.fromisoformat(str(value).replace("Z", "+00:00"))


def format_prediction(instance: str, model: str, patch: str) -> str:
    """Returns one line of the file that SWE-bench's own harness reads."""
    return json.dumps({"instance_id": instance, "model_name_or_path": model, "model_patch": patch}) + "\n"
