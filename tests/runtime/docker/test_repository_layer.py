"""A repository layer keeps what its setup remarked, and one that is incomplete is built again."""

import base64
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable

import pytest

from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.engine_models import ImageInfo
from patchwright.runtime.docker.repository_layer import (
    INCOMPLETE_LAYER_SECONDS,
    NOTE_LABEL,
    read_layer_note,
    repository_layer_tag,
)
from patchwright.runtime.egress_policy import EgressPolicy
from patchwright.runtime.sandbox import LayerNote, Sandbox
from tests.runtime.repository_layers import remove_layers_of

SOURCE = f"layer-notes-{os.getpid()}"


def layer(note: str, age: float) -> ImageInfo:
    label = base64.b64encode(note.encode()).decode()
    return ImageInfo("sha256:1", ("a:b",), {NOTE_LABEL: label}, time.time() - age, 1)


def test_an_incomplete_layer_is_used_for_an_hour_and_a_complete_one_for_good() -> None:
    complete, incomplete = LayerNote(text="all done"), LayerNote(text="one failed", is_incomplete=True)
    old = INCOMPLETE_LAYER_SECONDS + 1
    assert read_layer_note(layer(complete.model_dump_json(), old)) == complete
    assert read_layer_note(layer(incomplete.model_dump_json(), old - 60)) == incomplete
    assert read_layer_note(layer(incomplete.model_dump_json(), old)) is None


@pytest.mark.parametrize("note", ["", "{", '{"text": 1}', '{"other": ""}'])
def test_a_layer_without_a_valid_note_is_built_again(note: str) -> None:
    assert read_layer_note(layer(note, 0)) is None
    assert read_layer_note(None) is None


def test_a_layer_belongs_to_the_hosts_that_its_setup_could_reach() -> None:
    hosts = ["a.test", "b.test", "c.test"]
    policies = [
        EgressPolicy(allowed_hosts=frozenset(hosts)),
        EgressPolicy(allowed_hosts=frozenset(hosts[:2])),
        EgressPolicy(allowed_hosts=None),
        EgressPolicy(allowed_hosts=frozenset(hosts), allowed_networks=("203.0.113.0/24",)),
        EgressPolicy(allowed_hosts=frozenset(hosts), trusted_endpoints=frozenset({("index.test", 443)})),
    ]
    tags = [repository_layer_tag("image", "key", policy.fingerprint()) for policy in policies]
    assert len(set(tags)) == len(policies)
    same = EgressPolicy(allowed_hosts=frozenset(reversed(hosts)))
    assert repository_layer_tag("image", "key", same.fingerprint()) == tags[0]


@pytest.fixture
async def sandboxes(docker_sandboxes: Callable[..., DockerSandboxes]) -> AsyncIterator[DockerSandboxes]:
    made = docker_sandboxes()
    yield made
    await remove_layers_of(SOURCE)
    await made.close()


@pytest.mark.slow
@pytest.mark.docker
async def test_the_note_of_a_setup_comes_back_with_its_layer(sandboxes: DockerSandboxes) -> None:
    repository = hashlib.sha256(SOURCE.encode()).hexdigest()[:32]
    runs = 0

    async def setup(sandbox: Sandbox) -> LayerNote:
        nonlocal runs
        runs += 1
        return LayerNote(text='"quoted" $HOME \\ \n@all \u00e4', is_incomplete=True)

    first, note = await sandboxes.with_layer(f"{SOURCE}-setup", repository, SOURCE, setup)
    again, cached = await sandboxes.with_layer(f"{SOURCE}-setup", repository, SOURCE, setup)
    assert (runs, cached) == (1, note)
    assert await first.content_digest() == await again.content_digest() != await sandboxes.content_digest()
