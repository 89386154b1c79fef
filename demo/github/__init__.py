"""A stateful fake of GitHub, which the demo and the tests use through real HTTP on loopback."""

from patchwright.demo.github.app_models import GitHubApp
from patchwright.demo.github.fake_github import FakeGitHub
from patchwright.demo.github.openapi_checker import SpecViolation
from patchwright.demo.github.rest_api import WriteRequest
from patchwright.demo.github.state import (
    Comment,
    FakePullRequest,
    Installation,
    Issue,
    Repository,
    Review,
    ReviewThread,
    User,
)
from patchwright.demo.github.webhook_models import Delivery, RegisteredWebhook

__all__ = [
    "Comment",
    "Delivery",
    "FakeGitHub",
    "FakePullRequest",
    "GitHubApp",
    "Installation",
    "Issue",
    "RegisteredWebhook",
    "Repository",
    "Review",
    "ReviewThread",
    "SpecViolation",
    "User",
    "WriteRequest",
]
