"""What docs/proof.md says of planted campaigns is what the rows say that are kept."""

import sys

from tare.core.files import project_root

sys.path.insert(0, str(project_root() / "benchmarks"))

import measured_page


def row(low, high):
    one = {"ci_low": low, "ci_high": high, "ratio": 1.0, "verdict": "different"}
    return {
        "zero": one,
        "wasteful": one,
        "at": "2026-01-01T00:00:00Z",
        "load_1min": 0.5,
        "cpu": "one",
        "n_units": 8,
        "workload": "w",
    }


def test_docs_have_the_sections():
    assert "\n".join(measured_page.pages()) in (project_root() / "docs/proof.md").read_text(encoding="utf-8")


def test_truths_and_alarms_are_counted():
    text = "\n".join(measured_page.planted_campaigns([row(0.99, 1.01), row(1.01, 1.04), row(1.02, 1.05)]))
    assert "| +0% | 1 of 3 | 2 of 3 | ±1.50% |" in text
    assert "| +3% | 2 of 3 | 2 of 3 | ±1.50% |" in text


def test_conditions_of_the_machine_are_apart():
    busy = {**row(1.01, 1.02), "condition": "busy", "budget_s": 480.0}
    text = "\n".join(measured_page.planted_campaigns([row(0.99, 1.01), busy, busy]))
    assert "| +0% | 1 of 1 | 0 of 1 |" in text and "| +0% | 0 of 2 | 2 of 2 |" in text
    assert "campaigns of 240 s" in text and "campaigns of 480 s" in text
    other = {**row(1.01, 1.02), "cpu": "another"}
    text = "\n".join(measured_page.planted_campaigns([row(0.99, 1.01), other]))
    assert "| +0% | 1 of 1 | 0 of 1 |" in text and "| +0% | 0 of 1 | 1 of 1 |" in text


def test_controls_that_leave_zero_out_are_counted():
    logs = [[0.001, -0.001, 0.002], [0.05, 0.051, 0.052]]
    ratios = [{"body": {"host, host.control": one}, "step, steady": {"host, host.control": one}} for one in logs]
    found = {"recorded": [{"rounds": 3, "machine": "m", "log_ratios": one} for one in ratios]}
    test = {"machine": "m", "workload": "w", "pair": ["host", "zero"], "campaigns": 2, "rounds": 6, "f": 9.0}
    found["whole_campaigns"] = [
        {**test, "quantity": "body", "p": 0.01}, {**test, "quantity": "whole run", "p": 0.01},
        {**test, "quantity": "step, steady", "p": 0.2},
    ]  # fmt: skip
    one = {"method": "sliced", "truth": 0.0, "low": 0.99, "high": 1.01}
    methods = {"conclusions": [one, {**one, "low": 1.001}, {**one, "method": "medians"}]}
    text = "\n".join(measured_page.recorded_controls(found, methods))
    assert text.count("| 1 of 2 |") == 3
    assert text.count("| host, zero |") == 2 and "1 of 2 tests" in text


def test_a_folder_without_files_has_no_sections(tmp_path):
    assert list(measured_page.pages(tmp_path)) == []
