"""Uses the images that SWE-bench publishes: one for each instance, with its old Python and its dependencies.

Source: swebench 5.0.2, image_builder/image_spec.py (names) and harness/modal_eval/run_evaluation_modal.py (contents)
"""

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime

from patchwright.evaluation.instances import Instance
from patchwright.resolver.domain import Patch
from patchwright.resolver.git.local_repository import AUTHOR
from patchwright.resolver.git.new_file import add_file
from patchwright.resolver.git.repository import Workspace
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.settings.settings import REPO_CONFIG_PATH
from patchwright.runtime.errors import ImageUnavailable

logger = logging.getLogger(__name__)

_ENVIRONMENT = "/opt/miniconda3/envs/testbed"  # conda's environment in these images
# Sandboxes put the programs of /opt/project first. The repository is not where the image has its own copy, so it is
# installed again, with the dependencies that are there.
_SETUP = (
    f"if [ -d {_ENVIRONMENT} ]; then rm -rf /opt/project && ln -s {_ENVIRONMENT} /opt/project; fi",
    "python -m pip install --no-deps --no-build-isolation --editable .",
)


def get_official_image(instance_id: str) -> str:
    """Returns the name of the image that SWE-bench publishes for one of its instances."""
    return f"swebench/sweb.eval.x86_64.{instance_id.lower().replace('__', '_1776_')}:latest"


async def use_official_image(instance: Instance, deps: RunDependencies) -> RunDependencies | None:
    """Returns the dependencies with sandboxes that have the instance's own image. Returns None if there is none, or if
    it cannot be pulled. Raises EngineUnavailable.
    """
    if not instance.image or deps.sandboxes.kind != "docker":
        return None
    try:
        sandboxes = await deps.sandboxes.with_image(instance.image)
    except ImageUnavailable as exc:
        logger.info("image unavailable", extra={"image": instance.image, "error": str(exc)[:500]})
        return None
    settings = deps.settings.model_copy(update={"language_images": {}})
    return replace(deps, sandboxes=sandboxes, settings=settings)


async def configure_setup(workspace: Workspace) -> str:
    """Commits a configuration that uses the environment of the image, and returns the commit. A repository that has a
    configuration keeps it.
    """
    if await workspace.get_entry(REPO_CONFIG_PATH):
        return workspace.base
    text = f"setup = {json.dumps(_SETUP)}\n"
    change = add_file(Patch(base_sha=workspace.base, diff=b""), REPO_CONFIG_PATH, text)
    # The date is fixed, so that a killed evaluation finds the same commit again.
    when = datetime(2000, 1, 1, tzinfo=UTC)
    return await workspace.commit(change, "Use the environment of this image", author=AUTHOR, when=when)
