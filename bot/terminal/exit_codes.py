"""The exit codes of the command line."""

SUCCESS = 0
ERROR = 1
USAGE_ERROR = 2
UNSUCCESSFUL = 3
REJECTED = 4
UNPROVEN = 5
INPUT_REQUIRED = 6
INTERRUPTED = 130

JOB_EXIT_CODES = {
    SUCCESS: "success: a pull request is open (with --repo: the verdict is `fixed`)",
    UNPROVEN: "with --repo: there is a patch, but its verdict is conditional, unproven or untested",
    UNSUCCESSFUL: "no pull request: the run changed nothing, or its change breaks tests",
    REJECTED: "rejected: the request was not allowed",
    INPUT_REQUIRED: "input required: the run waits for an answer (a comment on GitHub; with --repo: --answer)",
}
OUTCOME_EXIT_CODES = {
    "published": SUCCESS, "reported": UNSUCCESSFUL, "rejected": REJECTED, "input_required": INPUT_REQUIRED
}  # fmt: skip
COMMON_EXIT_CODES = {
    USAGE_ERROR: "usage or configuration error: the message says what to change",
    ERROR: "internal or infrastructure error",
    INTERRUPTED: "interrupted",
}
CHECK_EXIT_CODES = {UNSUCCESSFUL: "a check failed: see the output"}
