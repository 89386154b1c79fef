"""Repository layers: images that contain the result of a repository's setup. Later sandboxes start from them.

The setup runs as root, but in a container with all limits of a sandbox and with our system call profile. The
container has five capabilities, which allow the setup to change owners, to write files of other users, and to
switch to another user. The setup reaches the network only through the egress proxy.
"""

import base64
import binascii
import time

from patchwright.runtime.actions import Execute, SandboxAction
from patchwright.runtime.docker.build_context import INSTALL_DIR, SANDBOX_UID, WORKSPACE_DIR, hash_files
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.engine_models import ImageInfo
from patchwright.runtime.docker.runtime_layer import SUPERSEDED_GRACE
from patchwright.runtime.docker.sandbox_container import SandboxContainer
from patchwright.runtime.egress_forwarder import PROXY_ENVIRONMENT
from patchwright.runtime.errors import LayerRejected
from patchwright.runtime.observations import ExecuteResult, Observation
from patchwright.runtime.sandbox import LayerNote, LayerSetup, Sandbox, WrapperSandbox

REPOSITORY_LAYERS = "patchwright-repository"
REPOSITORY_LABEL = "io.patchwright.repository"
NOTE_LABEL = "io.patchwright.note"
INCOMPLETE_LAYER_SECONDS = 3600.0  # An incomplete layer is built again after this time.
# maximum number of layers for one repository, and for all together
MAX_LAYERS_PER_REPOSITORY, MAX_LAYERS = 3, 50
CLEANUP_TIMEOUT = 600

# Environment variables that are set only for the commands of the setup. The layer does not contain them.
_SETUP_ENVIRONMENT = {
    "HOME": "/home/agent",  # the agent can use the downloads that are cached there
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_RETRIES": "2",  # few retries, because a request that the proxy denied fails each time
    "UV_PROJECT_ENVIRONMENT": "/opt/project",
    "UV_NO_CACHE": "1",
    "UV_PYTHON_DOWNLOADS": "never",  # tests run on the image's own Python, which the operator chose
    "GOFLAGS": "-modcacherw",
}
# The arguments of the script are the work tree and the agent's user.
_CLEANUP_SCRIPT = r"""
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /home/agent/.cache/pip /home/agent/.npm/_cacache
for place in "$1" /home/agent /opt/project; do
    if [ -e "$place" ]; then chown -R "$2:$2" "$place"; fi
done
"""


def repository_layer_tag(image: str, key: str, network: str = "") -> str:
    """Return the tag of the repository layer for a base image and a setup. `key` identifies the setup, and `network`
    the hosts that the setup can reach.
    """
    parts = {"image": image, "key": key, "network": network}
    return f"{REPOSITORY_LAYERS}:{hash_files({name: part.encode() for name, part in parts.items()})}"


def read_layer_note(layer: ImageInfo | None) -> LayerNote | None:
    """Return the note of this repository layer, or None if there is no layer, or if it has to be built again."""
    if layer is None:
        return None
    try:
        # The setup's commands are hostile, and the label is not ours alone.
        note = LayerNote.model_validate_json(
            base64.b64decode(layer.labels.get(NOTE_LABEL, ""), validate=True)
        )
    except (binascii.Error, ValueError):
        return None
    is_old = time.time() - layer.created > INCOMPLETE_LAYER_SECONDS
    return None if note.is_incomplete and is_old else note


async def build_repository_layer(
    container: SandboxContainer, tag: str, repository: str, setup: LayerSetup
) -> LayerNote:
    """Run `setup` in this container, and store the result with the setup's note as an image with the tag `tag`.
    Return the note.

    Raises SandboxError, any error that `setup` raises, or LayerRejected if the setup changed Patchwright's own
    files.
    """
    # git refuses to work in a directory that belongs to another user.
    await _run_command(container.sandbox, "chown", "0:0", WORKSPACE_DIR)
    note = await setup(_SetupSandbox(container.sandbox))
    await _run_command(container.sandbox, "sh", "-c", _CLEANUP_SCRIPT, "sh", WORKSPACE_DIR, str(SANDBOX_UID))
    if changed := await container.engine.find_changed_path(container.container_id, INSTALL_DIR):
        raise LayerRejected(f"the setup changed {changed}, which belongs to Patchwright")
    # Base64, because the engine would replace variables in the text.
    stored = base64.b64encode(note.model_dump_json().encode()).decode()
    labels = {REPOSITORY_LABEL: repository, NOTE_LABEL: stored}
    await container.engine.commit(container.container_id, tag, labels)
    await remove_old_layers(container.engine, repository, tag)
    return note


class _SetupSandbox(WrapperSandbox):
    """The sandbox in which a setup runs. Passes the proxy's environment variables to each command, because
    the image must not contain them.
    """

    async def act(self, action: SandboxAction) -> Observation:
        if isinstance(action, Execute):
            action = action.model_copy(
                update={"env": {**PROXY_ENVIRONMENT, **_SETUP_ENVIRONMENT, **action.env}}
            )
        return await self._sandbox.act(action)


async def _run_command(sandbox: Sandbox, *argv: str) -> None:
    result = await sandbox.act(Execute(argv=argv, timeout=CLEANUP_TIMEOUT))
    if not isinstance(result, ExecuteResult) or result.exit_code != 0:
        message = (
            result.stderr.decode(errors="replace")[-300:]
            if isinstance(result, ExecuteResult)
            else str(result)
        )
        raise LayerRejected(f"the setup's container could not be cleaned up ({argv[0]}: {message.strip()})")


async def remove_old_layers(
    engine: Engine, repository: str, newest: str, grace: float = SUPERSEDED_GRACE
) -> None:
    """Remove old repository layers that no container uses. Always keeps the layer with the tag `newest`.

    Keeps the latest MAX_LAYERS_PER_REPOSITORY layers of this repository, and MAX_LAYERS in total. Also keeps
    layers younger than `grace` seconds, because a sandbox may be about to start from one.
    """
    layers = await engine.list_images(REPOSITORY_LAYERS)
    own_layers = [image for image in layers if image.labels.get(REPOSITORY_LABEL) == repository]
    for image in {
        layer.id: layer for layer in (*own_layers[MAX_LAYERS_PER_REPOSITORY:], *layers[MAX_LAYERS:])
    }.values():
        if newest not in image.tags and time.time() - image.created > grace:
            for tag in image.tags:
                await engine.remove_image(tag)
