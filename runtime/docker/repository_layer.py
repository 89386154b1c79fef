"""The repository layer: what a repository's own set-up leaves in a sandbox, kept for the sandboxes to come.

The set-up runs as root, but in a container with all of a sandbox's limits: five capabilities (to own, to write
what is not root's, to become another user), our system call profile, no network but through the egress proxy.
"""

import time
from collections.abc import Awaitable, Callable

from runtime.actions import Execute, SandboxAction
from runtime.docker.engine import Engine
from runtime.docker.image import OURS, ROOT, UID, folder_hash
from runtime.docker.layers import SPARED
from runtime.docker.machine import Machine
from runtime.errors import LayerRefused
from runtime.forward import ENVIRONMENT
from runtime.observations import Executed, Observation
from runtime.sandbox import Around, Sandbox

LAYERS = "patchwright-repository"
REPOSITORY_LABEL = "io.patchwright.repository"
KEPT_EACH, KEPT_IN_ALL = 3, 50  # layers of one repository, and of all
TIDY_SECONDS = 600

Fill = Callable[[Sandbox], Awaitable[None]]

# What the commands of a set-up see beside what is the image's own. None of it stays in the layer.
_ENVIRONMENT = {
    "HOME": "/home/agent",  # what is downloaded there is there for the agent
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_RETRIES": "2",  # what the proxy refuses is not given the fifth time either
    "UV_PROJECT_ENVIRONMENT": "/opt/project",
    "UV_NO_CACHE": "1",
    "GOFLAGS": "-modcacherw",
}
# Arguments: the work tree, the agent's user.
_GIVE = r"""
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /home/agent/.cache/pip /home/agent/.npm/_cacache
for place in "$1" /home/agent /opt/project; do
    if [ -e "$place" ]; then chown -R "$2:$2" "$place"; fi
done
"""


def layer_tag(image: str, key: str) -> str:
    """The name of the layer that a set-up of this key makes of an image."""
    return f"{LAYERS}:{folder_hash({'image': image.encode(), 'key': key.encode()})}"


async def fill_layer(opened: Machine, tag: str, repository: str, fill: Fill) -> None:
    """Let `fill` work in a machine that was started for it, and keep what it leaves under `tag`.

    Raises LayerRefused when it changed what is ours, SandboxError, and what `fill` raises.
    """
    # git works in no directory of another user's.
    await _run(opened.sandbox, "chown", "0:0", ROOT)
    await fill(_Root(opened.sandbox))
    await _run(opened.sandbox, "sh", "-c", _GIVE, "sh", ROOT, str(UID))
    if touched := await opened.engine.changed_below(opened.container, OURS):
        raise LayerRefused(f"the set-up changed {touched}, which is not the repository's")
    await opened.engine.commit(opened.container, tag, {REPOSITORY_LABEL: repository})
    await remove_old(opened.engine, repository, tag)


class _Root(Around):
    """The sandbox of a set-up: its commands see the way out, which the image must not keep."""

    async def act(self, action: SandboxAction) -> Observation:
        if isinstance(action, Execute):
            action = action.model_copy(update={"env": {**ENVIRONMENT, **_ENVIRONMENT, **action.env}})
        return await self._sandbox.act(action)


async def _run(sandbox: Sandbox, *argv: str) -> None:
    seen = await sandbox.act(Execute(argv=argv, timeout=TIDY_SECONDS))
    if not isinstance(seen, Executed) or seen.exit_code != 0:
        said = seen.stderr.decode(errors="replace")[-300:] if isinstance(seen, Executed) else str(seen)
        raise LayerRefused(f"the set-up's container could not be tidied ({argv[0]}: {said.strip()})")


async def remove_old(engine: Engine, repository: str, newest: str, spared: float = SPARED) -> None:
    """Keep the newest layers of this repository, and the newest of all; what is in use stays.

    So does `newest`, and what is younger than `spared` seconds: somebody may be about to start a sandbox on it.
    """
    found = await engine.images(LAYERS)
    same = [image for image in found if image.labels.get(REPOSITORY_LABEL) == repository]
    for image in {each.id: each for each in (*same[KEPT_EACH:], *found[KEPT_IN_ALL:])}.values():
        if newest not in image.tags and time.time() - image.created > spared:
            for tag in image.tags:
                await engine.remove_image(tag)
