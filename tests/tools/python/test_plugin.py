"""The pytest plugin in a run of its own: report, fixture and marker, audit."""
import json
import pathlib
import re
import subprocess

import numpy as np
import pytest
from attention import tensors

import kvcheck
from kvcheck import _attention_calls
from kvcheck._array_faults import FAULTS
from kvcheck._command import program
from kvcheck.audit import Audit

ATTENTION = pathlib.Path(__file__).with_name("attention.py").read_text(encoding="utf-8")


@pytest.fixture
def suite(pytester, monkeypatch):
    pytester.makepyfile(attention=ATTENTION)
    monkeypatch.setenv("KVCHECK_FAILURES", "failures")
    return pytester


def test_verdicts_of_a_run_are_in_one_page(suite):
    suite.makepyfile(test_kernel="""
        from attention import attention, tensors
        from kvcheck.testing import assert_attention_close
        def test_right():
            q, k, v = tensors()
            assert_attention_close(attention(q, k, v), q, k, v, plan="plain_f32")
        def test_wrong():
            q, k, v = tensors()
            assert_attention_close(attention(q, k, v), q, k, v, causal=True, plan="plain_f32")
    """)
    done = suite.runpytest_subprocess("--kvcheck-report=report.html")
    done.assert_outcomes(passed=1, failed=1)
    page = (suite.path / "report.html").read_text(encoding="utf-8")
    assert "1 passed, 1 failed" in page and "test_kernel.py::test_wrong attention" in page
    assert "kvcheck run --data" in page
    assert len(list((suite.path / "failures").iterdir())) == 1


def test_the_fixture_has_the_keywords_of_the_marker(suite):
    suite.makepyfile(test_kernel="""
        import pytest
        from attention import attention, tensors
        pytestmark = pytest.mark.kvcheck(plan="plain_f32")
        @pytest.mark.kvcheck(causal=True)
        def test_right(kvcheck_judge):
            q, k, v = tensors()
            verdict = kvcheck_judge(attention(q, k, v, causal=True), q, k, v)
            assert "causal" in verdict.case and "plain_f32" in verdict.plan
    """)
    suite.runpytest_subprocess("--strict-markers").assert_outcomes(passed=1)


def test_the_audit_says_which_faults_a_tolerance_lets_through(suite):
    suite.makepyfile(test_kernel="""
        import numpy as np
        from numpy.testing import assert_allclose
        from attention import attention, tensors
        def outputs():
            q, k, v = tensors(t=257)  # means of many values are small beside 1
            return attention(q, k, v), attention(q.astype("f8"), k.astype("f8"), v.astype("f8"))
        def test_loose():
            got, want = outputs()
            assert_allclose(got, want, atol=1.0, rtol=1.0)
        def test_tight():
            got, want = outputs()
            assert_allclose(got, want, atol=1e-6, rtol=1e-5)
            assert np.allclose(got, want, atol=1e-6)
        def test_of_no_arrays():
            assert_allclose(3, 3)
    """)
    done = suite.runpytest_subprocess("--kvcheck-audit", "--kvcheck-audit-limit=1000", "--kvcheck-report=report.html")
    done.assert_outcomes(passed=3)
    text = done.stdout.str()
    assert re.search(r"test_loose: .*times 0.72 \(1 of 1\).*atol=1.0 rtol=1.0", text)
    assert "test_tight" not in text.split("faults that the tolerances let through")[1]
    assert "1 of 2 tests let some of 7 faults through; 3 assertions were asked again" in text
    page = (suite.path / "report.html").read_text(encoding="utf-8")
    assert "passes (1 of 1)" in page and "caught" in page


def test_the_audit_changes_no_outcome_and_leaves_functions_as_they_were(suite):
    suite.makepyfile(test_kernel="""
        import numpy as np
        import numpy.testing
        before = numpy.testing.assert_allclose
        x = np.linspace(1, 2, 8)
        def test_fails():
            numpy.testing.assert_allclose(x, x + 1)
        def test_actual_is_not_changed():
            numpy.testing.assert_allclose(x, np.linspace(1, 2, 8))
            assert np.array_equal(x, np.linspace(1, 2, 8))
    """)
    suite.runpytest_subprocess("--kvcheck-audit").assert_outcomes(passed=1, failed=1)


# A library that the audit knows, in numpy.
OF_ATTENTION = """
    import sys, types
    import numpy as np
    from attention import attention, tensors
    fast = types.ModuleType("mlx.core.fast")
    fast.scaled_dot_product_attention = lambda q, k, v, *, scale, mask=None: attention(
        q, k, v, scale=scale, causal=isinstance(mask, str), mask=None if isinstance(mask, str) else mask)
    sys.modules["mlx.core.fast"] = fast
    q, k, v = tensors(l=9, t=65)
    seen = np.random.default_rng(1).random((2, 1, 9, 65)) < 0.7
    def check(atol, **keywords):
        out = fast.scaled_dot_product_attention(q, k, v, scale=0.25, **keywords)
        fast.scaled_dot_product_attention(q[:1], k[:1], v[:1], scale=0.25)  # another call, whose output is not asked about
        want = out + np.float32(1e-7)
        np.testing.assert_allclose(want.swapaxes(1, 2).reshape(2, 9, -1), out.swapaxes(1, 2).reshape(2, 9, -1), atol=atol)
    def test_loose():
        check(0.5, mask="causal")
    def test_tight():
        check(1e-6, mask=seen)
    def test_of_something_else():
        fast.scaled_dot_product_attention(q, k, v, scale=0.25)
        np.testing.assert_allclose(q, q)
"""


def test_faults_of_attention_are_asked_where_its_inputs_are_known(suite):
    suite.makepyfile(test_kernel=OF_ATTENTION)
    done = suite.runpytest_subprocess("--kvcheck-audit", "--kvcheck-audit-limit=1000", "--kvcheck-report=report.html",
                                      "--kvcheck-audit-json=audit.json")
    done.assert_outcomes(passed=3)
    found = {row["test"].split("::")[1]: row["attention"]
             for row in json.loads((suite.path / "audit.json").read_text(encoding="utf-8"))["tests"]}
    assert found["test_of_something_else"] is None
    loose, tight = found["test_loose"], found["test_tight"]
    assert set(loose["passed"]) >= {"temperature_1_percent", "last_key_dropped"} and "scale_missing" in loose["caught"]
    assert not tight["passed"] and set(tight["caught"]) >= {"mask_array_ignored", "last_key_dropped", "gqa_tiled"}
    # What nothing in the case changes is not asked: no mask array in one, nothing causal in the other.
    assert "mask_array_ignored" not in [*loose["passed"], *loose["caught"]] and "causal_ignored" not in tight["caught"]
    # Two right answers are as far apart as twice the bound, which the data make; rounding once is well within it.
    q, k, v = (np.asarray(x) for x in tensors(l=9, t=65))
    bound = kvcheck.reference_attention(q, k, v, scale=0.25, causal=True, plan="stranger")["out"][2]
    assert loose["justified"] == pytest.approx(2 * bound.max()) and 0 < loose["ratio"] < 1
    assert "of attention: " in done.stdout.str() and "the data explain errors up to" in done.stdout.str()
    assert "Audit of attention" in (suite.path / "report.html").read_text(encoding="utf-8")


def test_every_fault_of_attention_is_one_of_kvchecks():
    text = subprocess.run([str(program()), "faults", "list"], capture_output=True, text=True, check=True).stdout
    assert set(_attention_calls.FAULTS) <= {line.split()[0] for line in text.splitlines() if line.strip()}


def test_the_audit_gives_functions_back_and_sleeps_between_tests():
    original = np.allclose
    audit = Audit(limit=1000)
    x = np.linspace(1, 2, 8)
    try:
        with audit.watching("one"):
            assert np.allclose is not original and np.allclose(x, x)
        assert np.allclose(x, x) and len(audit.tests["one"]) == 1
        with audit.watching("two"):
            assert np.allclose(a=x, b=x, atol=1e9)
        assert len(audit.tests["two"][0].passed) == len(FAULTS)
    finally:
        audit.close()
    assert np.allclose is original


def test_a_question_that_cannot_be_asked_changes_no_test(monkeypatch):
    def broken(_):
        raise RuntimeError("no memory")
    monkeypatch.setattr("kvcheck.audit.with_faults", broken)
    audit = Audit(limit=1000)
    try:
        with audit.watching("one"):
            assert np.allclose(np.ones(3), np.ones(3))
    finally:
        audit.close()
    assert audit.broken == ["one: RuntimeError: no memory"]


def test_the_audit_keeps_to_its_limit(suite):
    suite.makepyfile(test_kernel="""
        import numpy as np
        def test_loose():
            for _ in range(100):
                assert np.allclose(np.ones(1000), np.ones(1000), atol=1.0)
    """)
    done = suite.runpytest_subprocess("--kvcheck-audit", "--kvcheck-audit-limit=0")
    done.assert_outcomes(passed=1)
    assert "further assertions were not asked again: --kvcheck-audit-limit" in done.stdout.str()


def test_without_its_options_the_plugin_loads_nothing(suite):
    suite.makepyfile(test_nothing="""
        import sys
        def test_not_loaded():
            assert "kvcheck._core" not in sys.modules and "numpy" not in sys.modules
    """)
    suite.runpytest_subprocess().assert_outcomes(passed=1)


def test_mlx_is_audited(suite):
    pytest.importorskip("mlx.core")
    suite.makepyfile(test_kernel="""
        import mlx.core as mx
        def test_loose():
            out = mx.random.normal((2, 4, 8, 16)).astype(mx.bfloat16) * 0.02
            assert mx.allclose(out, out + 0.01, atol=0.15, rtol=0.15)
            assert not mx.allclose(out, out + 1)
    """)
    done = suite.runpytest_subprocess("--kvcheck-audit", "--kvcheck-audit-limit=1000")
    done.assert_outcomes(passed=1)
    assert "all zero (1 of 1)" in done.stdout.str()


def test_torch_is_audited(suite):
    pytest.importorskip("torch")
    suite.makepyfile(test_kernel="""
        import torch
        from torch.testing import assert_close
        def test_loose():
            torch.manual_seed(0)
            out = torch.randn(2, 4, 8, 16).bfloat16() * 0.02
            assert_close(out, out + 0.01, atol=0.15, rtol=0.15)
    """)
    done = suite.runpytest_subprocess("--kvcheck-audit", "--kvcheck-audit-limit=1000")
    done.assert_outcomes(passed=1)
    assert "all zero (1 of 1)" in done.stdout.str()
