"""Applies the risk policy to calls. Decides whether a comment approves or rejects the call that a run waits for."""

from collections.abc import Sequence
from datetime import UTC, datetime

from patchwright.resolver.command_parser import Request
from patchwright.resolver.confirmation import CallDecision, ConfirmationRequest, parse_decision
from patchwright.resolver.domain import Job, Rejected
from patchwright.resolver.events import AgentStopped, Message, Trajectory
from patchwright.resolver.prompts.initial_prompt import COMMENT_LIMIT
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.template_renderer import render_prompt, render_reply
from patchwright.resolver.request import plan_texts
from patchwright.resolver.security.risk import RiskAnalyzer, ThresholdPolicy
from patchwright.resolver.security.risk_plugins import SELF_RATING, load_analyzers, load_policy
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.text.untrusted import quote
from patchwright.resolver.tools.policy_tools import Confirmations, PolicyTool, SelfRatingAnalyzer
from patchwright.resolver.tools.tool import Tool

DECISION_VERBS = frozenset({"approve", "reject"})


def only_continues(request: Request) -> bool:
    """Returns True if the request can only be about an earlier run. "Reject empty input" may be a request for work."""
    if request.verb in ("go", "resume"):
        return not request.remainder
    if request.verb not in DECISION_VERBS:
        return False
    decision = parse_decision(request)
    return bool(decision.code) or decision.includes_similar or not decision.remark


def reject_decision(
    job: Job, request: ConfirmationRequest, work: Trajectory, mention: str
) -> Rejected | None:
    """Returns why this job must not decide about the call that the run `work` waits for; None if it may."""
    problem = _find_problem(job, request, work)
    if problem is None:
        return None
    text = render_reply("waiting_call.md.j2", problem=problem, request=request, mention=mention)
    return Rejected(explanation=text.strip())


def _find_problem(
    job: Job, request: ConfirmationRequest, work: Trajectory
) -> reply_texts.DecisionProblem | None:
    """Returns what is wrong with a decision. If it names no code, it must have been written after the agent stopped to
    wait, because an earlier decision was about another call.
    """
    if job.expired_call:
        return None if job.expired_call == request.code else "other_call"
    if job.request.verb not in DECISION_VERBS:
        return "call_waits"
    code = parse_decision(job.request).code
    if code and code != request.code:
        return "other_call"
    if not code and (job.snapshot is None or job.snapshot.taken_at < _waits_since(work)):
        return "other_call"
    is_expired = request.expires_at is not None and datetime.now(UTC) > request.expires_at
    return "expired_call" if is_expired and job.request.verb == "approve" else None


def _waits_since(work: Trajectory) -> datetime:
    """Returns the time when the agent stopped. GitHub's times are whole seconds, so the fraction is dropped."""
    stops = (entry.timestamp for entry in reversed(work.entries) if isinstance(entry.event, AgentStopped))
    return next(stops).replace(microsecond=0)


def build_decision_message(job: Job, request: Request, waiting: ConfirmationRequest) -> Message:
    """Returns the message with which the run continues: the decision about exactly the call that waits."""
    decision = parse_decision(request)
    approved = request.verb == "approve" and not job.expired_call
    text = render_prompt(
        "call_decision.md.j2",
        approved=approved,
        is_expired=bool(job.expired_call),
        includes_similar=decision.includes_similar,
        person=f"{plan_texts.describe_requester(job)}, who may write to the repository,",
        remark=quote("" if job.expired_call else decision.remark, COMMENT_LIMIT),
    )
    similar = waiting.similar if approved and decision.includes_similar else ""
    return Message(
        text=text.strip(),
        source="comment",
        author=job.requester.login if job.requester else "",
        trigger_id=job.id,
        options=request.options,
        decision=CallDecision(code=waiting.code, approved=approved, similar=similar),
    )


def apply_policy(
    tools: Sequence[Tool],
    settings: Settings,
    analyzer: RiskAnalyzer,
    confirmations: Confirmations | None = None,
) -> tuple[Tool, ...]:
    """Wraps the tools so that the operator's risk policy is applied to each call. If `confirmations` is None, calls
    that need approval are refused.
    """
    if settings.risk_policy is not None:
        policy = load_policy(settings.risk_policy)
    elif settings.risk_threshold == "never":
        return tuple(tools)
    else:
        policy = ThresholdPolicy(threshold=settings.risk_threshold, response=settings.risk_response)
    analyzers = (analyzer, *load_analyzers(settings))
    if SELF_RATING not in settings.risk_analyzers:
        return tuple(PolicyTool(tool, analyzers, policy, confirmations) for tool in tools)
    self_rating = SelfRatingAnalyzer()
    return tuple(
        PolicyTool(self_rating.add_risk_field(tool), (*analyzers, self_rating), policy, confirmations)
        for tool in tools
    )
