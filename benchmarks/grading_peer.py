"""Grades with SWE-bench's own harness. Runs on the Python of SWEBENCH_PYTHON: cases in, judgments out, as JSON."""

import json
import sys
import tempfile
from typing import Any

from swebench.harness.constants import END_TEST_OUTPUT, FAIL_TO_PASS, PASS_TO_PASS, START_TEST_OUTPUT
from swebench.harness.grading import get_eval_report, get_eval_tests_report, get_resolution_status
from swebench.types import TestSpec


def judge(case: dict[str, Any]) -> dict[str, Any]:
    lists = {FAIL_TO_PASS: case["fail_to_pass"], PASS_TO_PASS: case["pass_to_pass"]}
    if case["statuses"] is not None:
        tests = get_eval_tests_report(case["statuses"], lists)
        return describe(get_resolution_status(tests) == "RESOLVED_FULL", tests)
    spec = TestSpec(
        case["name"], "", [], "acme/calc", "1", **lists, log_parser=case["parser"], eval_type="pass_and_fail"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        log.write(f"{START_TEST_OUTPUT}\n{case['output']}\n{END_TEST_OUTPUT}\n")
        log.flush()
        prediction = {"instance_id": case["name"], "model_patch": "diff"}
        found = get_eval_report(spec, prediction, log.name, True)[case["name"]]
    return describe(found["resolved"], found["tests_status"]) if "tests_status" in found else found


def describe(is_resolved: bool, tests: dict[str, Any]) -> dict[str, Any]:
    fixed, kept = tests[FAIL_TO_PASS], tests[PASS_TO_PASS]
    return {
        "resolved": is_resolved,
        "fixed": fixed["success"],
        "not_fixed": fixed["failure"],
        "maintained": kept["success"],
        "broken": kept["failure"],
    }


print(json.dumps([judge(case) for case in json.load(sys.stdin)]))
