"""Lists what a person should check in the result of a run, as the pull request and the terminal do."""

from patchwright.resolver.activity.finish_checks import describe_open_points, find_missing_steps, last_finish
from patchwright.resolver.domain import Verdict
from patchwright.resolver.events import Trajectory
from patchwright.resolver.suites.missing_program import is_runner_missing
from patchwright.runtime.output_text import clip


def list_points_to_check(
    trajectory: Trajectory, verdict: Verdict | None, max_text_length: int
) -> tuple[str, ...]:
    """Returns the agent's points for people, and then the steps that are still missing. Each is clipped to about
    `max_text_length` characters. Returns nothing before the verdict.
    """
    if verdict is None:
        return ()
    finish, test_run = last_finish(trajectory), verdict.before or verdict.after
    missing = find_missing_steps(
        trajectory,
        test_run.command if test_run else None,
        can_run_tests=test_run is not None and not is_runner_missing(verdict.before),
    )
    points = (*(finish.to_check if finish else ()), *describe_open_points(missing, verdict))
    return tuple(clip(point, max_text_length) for point in points)
