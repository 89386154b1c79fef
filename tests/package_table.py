"""The packages of the product, and for each one the packages that it may import.

A package may name only packages above it, so there is no cycle. `tests/test_packages.py` compares the table with the
imports, and the diagram in `docs/internals/architecture.md` is made from it.
"""

PACKAGES = {
    "runtime": "",
    "runtime.image_build": "",
    "runtime.egress": "runtime",
    "runtime.documents": "runtime",
    "runtime.skills": "",
    "runtime.kernel": "runtime",
    "runtime.page": "runtime",
    "runtime.browser": "runtime runtime.page",
    "runtime.search": "runtime",
    "runtime.execution": (
        "runtime runtime.documents runtime.skills runtime.kernel runtime.browser runtime.search"
    ),
    "runtime.docker": "runtime runtime.egress runtime.execution",
    "resolver.text": "runtime",
    "resolver.tool_actions": "runtime",
    "resolver": "runtime resolver.text resolver.tool_actions",
    "resolver.settings": "runtime runtime.browser resolver",
    "resolver.git": "runtime resolver",
    "resolver.suites.reports": "runtime resolver",
    "resolver.suites": "runtime resolver resolver.settings resolver.git resolver.suites.reports",
    "resolver.rendering": "runtime resolver.text resolver resolver.settings",
    "resolver.security": (
        "runtime resolver.text resolver resolver.settings resolver.git resolver.suites resolver.rendering"
    ),
    "resolver.llm": "runtime resolver resolver.settings resolver.rendering",
    "resolver.skills": "runtime resolver resolver.settings resolver.git resolver.rendering",
    "resolver.sandbox": "runtime runtime.documents resolver resolver.git resolver.rendering resolver.llm",
    "resolver.run": (
        "runtime resolver resolver.settings resolver.git resolver.rendering resolver.llm resolver.sandbox"
    ),
    "resolver.preparation": (
        "runtime runtime.documents resolver.text resolver resolver.settings resolver.git resolver.suites "
        "resolver.rendering resolver.llm resolver.skills"
    ),
    "resolver.proof": (
        "runtime resolver.text resolver resolver.git resolver.suites.reports resolver.suites resolver.rendering "
        "resolver.security resolver.llm resolver.run resolver.preparation resolver.tool_actions"
    ),
    "resolver.activity": (
        "runtime resolver.tool_actions resolver resolver.settings resolver.suites resolver.rendering "
        "resolver.proof"
    ),
    "resolver.request": (
        "resolver.text resolver.tool_actions resolver resolver.settings resolver.rendering resolver.run "
        "resolver.activity"
    ),
    "resolver.publishing": (
        "runtime resolver.text resolver resolver.settings resolver.git resolver.rendering resolver.run "
        "resolver.activity"
    ),
    "resolver.ci": (
        "runtime resolver.tool_actions resolver resolver.settings resolver.git resolver.suites resolver.rendering "
        "resolver.security"
    ),
    "resolver.pull_request": (
        "runtime resolver.text resolver.tool_actions resolver resolver.git resolver.rendering resolver.activity "
        "resolver.publishing"
    ),
    "resolver.prompts": (
        "runtime runtime.skills resolver.text resolver resolver.suites resolver.rendering resolver.preparation "
        "resolver.pull_request"
    ),
    "resolver.tools": (
        "runtime runtime.egress runtime.docker resolver.text resolver.tool_actions resolver resolver.settings "
        "resolver.rendering resolver.security resolver.llm resolver.skills"
    ),
    "resolver.agent": (
        "runtime resolver.tool_actions resolver resolver.rendering resolver.llm resolver.activity resolver.tools"
    ),
    "resolver.browsing": (
        "runtime runtime.browser resolver.text resolver.tool_actions resolver resolver.settings "
        "resolver.rendering resolver.llm resolver.tools resolver.agent"
    ),
    "resolver.delegation": (
        "runtime resolver.text resolver.tool_actions resolver resolver.rendering resolver.llm resolver.skills "
        "resolver.tools resolver.agent resolver.browsing"
    ),
    "resolver.viewer": (
        "runtime resolver.text resolver.tool_actions resolver resolver.rendering resolver.llm "
        "resolver.activity resolver.agent resolver.browsing"
    ),
    "resolver.pipeline": (
        "runtime resolver.text resolver.tool_actions resolver resolver.settings resolver.git resolver.suites "
        "resolver.rendering resolver.security resolver.llm resolver.skills resolver.sandbox resolver.run "
        "resolver.preparation resolver.proof resolver.activity resolver.request resolver.publishing resolver.ci "
        "resolver.pull_request resolver.prompts resolver.tools resolver.agent resolver.browsing resolver.delegation"
    ),
    "sdk": (
        "runtime runtime.execution runtime.docker runtime.egress resolver.text resolver resolver.settings "
        "resolver.git resolver.rendering resolver.tool_actions resolver.security resolver.llm resolver.run "
        "resolver.tools resolver.agent resolver.delegation resolver.pipeline"
    ),
    "bot": (
        "sdk runtime resolver.text resolver resolver.settings resolver.rendering resolver.run resolver.activity "
        "resolver.publishing resolver.prompts resolver.pipeline"
    ),
    "bot.webhooks": "runtime resolver.text resolver bot",
    "bot.redis": "runtime resolver resolver.rendering bot",
    "bot.conversations": "runtime runtime.docker resolver sdk bot bot.redis",
    "bot.terminal": (
        "runtime resolver.tool_actions resolver resolver.settings resolver.rendering resolver.agent resolver.viewer"
    ),
    "bot.observe": "runtime resolver resolver.settings resolver.run bot bot.redis bot.terminal",
    "bot.github": (
        "runtime resolver resolver.settings resolver.git resolver.rendering resolver.run resolver.publishing "
        "resolver.ci bot bot.webhooks bot.redis"
    ),
    "bot.triggers": (
        "resolver resolver.rendering resolver.request resolver.publishing bot bot.webhooks bot.redis bot.observe "
        "bot.github"
    ),
    "bot.worker": (
        "resolver resolver.settings resolver.rendering resolver.publishing resolver.pipeline bot bot.webhooks "
        "bot.redis bot.observe bot.github bot.triggers"
    ),
    "bot.reconcile": (
        "resolver resolver.settings bot bot.webhooks bot.redis bot.github bot.triggers bot.worker"
    ),
    "bot.dashboard": (
        "runtime resolver.text resolver resolver.settings resolver.rendering resolver.activity resolver.viewer bot "
        "bot.webhooks bot.redis bot.observe bot.github"
    ),
    "bot.api": "runtime resolver resolver.request resolver.tools sdk bot bot.redis bot.conversations bot.terminal",
    "bot.web": (
        "runtime resolver resolver.settings bot bot.webhooks bot.redis bot.observe bot.api bot.dashboard"
    ),
    "bot.setup": (
        "runtime resolver resolver.settings resolver.rendering bot bot.webhooks bot.redis bot.terminal bot.github "
        "bot.dashboard bot.web"
    ),
    "bot.composition": (
        "runtime runtime.egress runtime.execution runtime.docker resolver resolver.settings resolver.git "
        "resolver.rendering resolver.security resolver.llm resolver.sandbox resolver.run resolver.pipeline sdk bot "
        "bot.redis bot.conversations bot.observe bot.github bot.worker bot.reconcile bot.web bot.setup"
    ),
    "bot.docker_proxy": "runtime runtime.docker resolver",
    "bot.commands": (
        "runtime resolver.tool_actions resolver resolver.settings resolver.git resolver.llm "
        "resolver.run resolver.activity resolver.viewer resolver.pipeline bot bot.redis bot.terminal bot.observe "
        "bot.github bot.composition"
    ),
    "bot.doctor": (
        "runtime runtime.docker resolver resolver.settings resolver.llm bot bot.webhooks bot.redis bot.terminal "
        "bot.github bot.setup bot.composition bot.commands"
    ),
    "bot.github_action": (
        "runtime resolver resolver.settings resolver.git resolver.rendering resolver.llm resolver.run "
        "resolver.activity resolver.publishing resolver.pipeline bot bot.webhooks bot.terminal bot.github "
        "bot.triggers bot.reconcile bot.composition bot.commands"
    ),
    "bot.cli": (
        "runtime resolver resolver.settings resolver.rendering resolver.run sdk bot bot.terminal bot.observe "
        "bot.composition bot.api bot.docker_proxy bot.commands bot.doctor bot.github_action"
    ),
}
"""Imports under TYPE_CHECKING and inside functions count, too. A permission that no import needs is removed."""
