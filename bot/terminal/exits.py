"""The exit codes of the command line."""

DELIVERED, ERROR, USAGE, NOTHING, REFUSED, UNPROVEN, ASKED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130

OF_A_JOB = {
    DELIVERED: "delivered: a pull request is open (without a forge: the patch is proven `fixed`)",
    UNPROVEN: "without a forge: there is a patch, but it is unproven or untested",
    NOTHING: "nothing worth proposing: no change, or one that breaks tests",
    REFUSED: "refused: the trigger was not admitted",
    ASKED: "asked: the run waits for an answer (in the thread; without a forge: --answer)",
}
OF_ALL = {
    USAGE: "usage or configuration: the message names the key and the mend",
    ERROR: "an error of ours or of the infrastructure",
    INTERRUPTED: "interrupted",
}
DIFFERENT = {NOTHING: "not all is as it should be: the output says what"}
