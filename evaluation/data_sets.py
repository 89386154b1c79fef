"""Loads the instances that the command line names."""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from patchwright.bot.terminal.local_files import absolute_path
from patchwright.evaluation import history, human_eval, package_instances, swe_bench
from patchwright.evaluation.instances import Instance
from patchwright.evaluation.release_pairs import Registries
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import UsageError

ForgeHistoryLoader = Callable[[Repo, int | None], Awaitable[Sequence[Instance]]]
"""Returns at most so many instances of a repository on GitHub."""

SMOKE_SET = Path(__file__).with_name("smoke.jsonl")
"""Ten small functions with a bug, in the format of HumanEvalFix. They were written for this project."""


@dataclass(frozen=True)
class DataSetOptions:
    """Which instances of a data set are used, and where their repositories are."""

    directory: Path
    """Repositories are created here if the data set contains only files."""
    registries: Registries
    load_forge_history: ForgeHistoryLoader | None = None
    """Loads the history of a repository on GitHub. None if only local repositories are used."""
    repositories: Path | None = None
    """A directory with clones; None if repositories are cloned from GitHub."""
    limit: int | None = None
    filters: tuple[str, ...] = ()
    """Patterns such as `django__*`. An instance is used if one of them matches its id or repository."""

    since: datetime | None = None
    """Older instances, and instances without a date, are left out."""

    @property
    def first_rows(self) -> int | None:
        """Number of instances to load before `select`; None if all are needed, because it leaves some out."""
        return None if self.filters or self.since else self.limit

    def select(self, instances: Iterable[Instance]) -> tuple[Instance, ...]:
        chosen = [
            instance
            for instance in instances
            if (self._matches(instance.id) or self._matches(instance.repo)) and self._is_recent(instance)
        ]
        return tuple(chosen[: self.limit])

    def _is_recent(self, instance: Instance) -> bool:
        if self.since is None:
            return True
        created = instance.created_at
        if created is not None and created.tzinfo is None:  # The dates of some data sets name no zone.
            created = created.replace(tzinfo=UTC)
        return created is not None and created >= self.since

    def _matches(self, name: str) -> bool:
        return not self.filters or any(fnmatchcase(name, pattern) for pattern in self.filters)


async def load_instances(source: str, options: DataSetOptions) -> tuple[Instance, ...]:
    """Loads the instances of a source (docs/evaluation.md). Raises UsageError if there are none."""
    kind, _, rest = source.partition(":")
    if kind == "packages":
        instances = await _load_packages([name for name in rest.split(",") if name], options)
    elif kind == "history":
        instances = options.select(await _load_history(rest, options))
    else:
        instances = await _load_file(SMOKE_SET if source == "smoke:" else Path(source), options)
    if not instances:
        raise UsageError(
            f"{source} contains no instance that can be used. Check --filter, --since and --limit"
        )
    if len({instance.id for instance in instances}) < len(instances):
        raise UsageError(f"{source} contains two instances with the same id")
    return instances


def _find_directory(source: str) -> tuple[Path, bool]:
    """Returns the absolute path, and whether there is a directory."""
    # The shell expands no `~` after the colon of `history:~/project`.
    path = absolute_path(str(Path(source or ".").expanduser()))
    return path, path.is_dir()


async def _load_history(source: str, options: DataSetOptions) -> Sequence[Instance]:
    path, is_local = _find_directory(source)
    if options.load_forge_history and not is_local and re.fullmatch(r"[\w-]+/[\w.-]+", source):
        owner, _, name = source.partition("/")
        return await options.load_forge_history(Repo(owner=owner, name=name), options.first_rows)
    return [each async for each in history.find_instances(path, options.first_rows)]


async def _load_packages(names: list[str], options: DataSetOptions) -> tuple[Instance, ...]:
    if options.since:
        raise UsageError("--since needs instances with dates, and instances made from packages have none")
    pairs = package_instances.select_pairs(names)
    if options.filters:
        pairs = tuple(
            pair
            for pair in pairs
            if any(fnmatchcase(f"{pair.registry}/{pair.name}", pattern) for pattern in options.filters)
        )
    return tuple(
        [
            await package_instances.build_instance(pair, options.registries, options.directory)
            for pair in pairs[: options.limit]
        ]
    )


async def _load_file(path: Path, options: DataSetOptions) -> tuple[Instance, ...]:
    rows = [row for file in _find_files(path) for row in _read_rows(file)]
    try:
        return await _convert_rows(path, rows, options)
    except ValueError as exc:  # pydantic's ValidationError is one
        raise UsageError(f"{path} contains an invalid row: {exc}") from exc


async def _convert_rows(
    path: Path, rows: list[Mapping[str, Any]], options: DataSetOptions
) -> tuple[Instance, ...]:
    if rows and all(map(swe_bench.is_swe_bench, rows)):
        return options.select(swe_bench.read_row(row, options.repositories) for row in rows)
    if rows and all(map(human_eval.is_human_eval, rows)):
        chosen = rows[: options.first_rows]
        return options.select([await human_eval.read_row(row, options.directory) for row in chosen])
    missing = [name for name in swe_bench.REQUIRED if rows and name not in rows[0]]
    reason = f"its rows lack {', '.join(missing)}" if missing else "it has no rows"
    raise UsageError(f"{path} is not in the format of SWE-bench or HumanEvalFix: {reason}")


def _find_files(path: Path) -> list[Path]:
    """Returns the file, or the files of a directory as Hugging Face's `datasets` lays it out."""
    if path.is_dir():
        for pattern in ("test*", "data/test*", "*", "data/*"):
            if files := sorted(file for file in path.glob(pattern) if file.suffix in (".jsonl", ".parquet")):
                return files
    if not path.is_file():
        raise UsageError(
            f"There is no file {path}. Pass a JSONL or parquet file, smoke:, packages:NAME, or history:PATH"
        )
    return [path]


def _read_rows(path: Path) -> list[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        return _read_parquet(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = (
            json.loads("\n".join(lines))
            if path.suffix == ".json"
            else [json.loads(line) for line in lines if line.strip()]
        )
    except (OSError, ValueError) as exc:
        raise UsageError(f"{path} cannot be read: {exc}") from exc
    if not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{path} contains a row that is not a JSON object")
    return list(rows)


def _read_parquet(path: Path) -> list[Mapping[str, Any]]:
    try:
        from pyarrow import parquet
    except ImportError as exc:
        raise UsageError(
            "To read parquet files, install the extra: pip install 'patchwright[evaluate]'"
        ) from exc
    rows: list[Mapping[str, Any]] = parquet.read_table(path).to_pylist()
    return rows
