"""The pytest plugin in a run of its own: report, fixture and marker, audit."""
import importlib.util
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

# Not imported here: pytester forgets what a test imports, and these can be imported but once.
needs_torch, needs_mlx = (pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")
                          for name in ("torch", "mlx"))
ATTENTION = pathlib.Path(__file__).with_name("attention.py").read_text(encoding="utf-8")


@pytest.fixture
def suite(pytester, monkeypatch):
    pytester.makepyfile(attention=ATTENTION)
    monkeypatch.setenv("KVCHECK_FAILURES", "failures")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
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


def test_the_marker_takes_the_plan_by_place_and_nothing_else(suite):
    suite.makepyfile(test_kernel="""
        import pytest
        from attention import attention, tensors
        q, k, v = tensors()
        pytestmark = pytest.mark.kvcheck("flash_attention_2")
        @pytest.mark.kvcheck("plain_f32")
        def test_nearest(kvcheck_judge):
            assert "plain_f32" in kvcheck_judge(attention(q, k, v), q, k, v).plan
        def test_of_the_module(kvcheck_judge):
            assert "flash_attention_2" in kvcheck_judge(attention(q, k, v), q, k, v).plan
        @pytest.mark.kvcheck("plain_f32", "strict")
        def test_two(kvcheck_judge):
            pass
        @pytest.mark.kvcheck("plain_f32", plan="flash_attention_2")
        def test_twice(kvcheck_judge):
            pass
    """)
    done = suite.runpytest_subprocess()
    done.assert_outcomes(passed=2, errors=2)
    assert "the marker kvcheck takes the plan" in done.stdout.str()


# Verdicts of fixtures and of tests, one of which fails, and assertions for the audit.
EVERYWHERE = """
    import numpy as np
    import pytest
    from attention import attention, tensors
    from kvcheck.testing import assert_attention_close
    def judge(offset=0):
        q, k, v = tensors()
        assert_attention_close(attention(q, k, v) + np.float32(offset), q, k, v, plan="plain_f32")
    @pytest.fixture(scope="module")
    def of_module():
        judge()
        yield
        judge()
    @pytest.fixture
    def of_test(of_module):
        judge()
        yield
        judge()
    @pytest.mark.parametrize("i", range(4))
    def test_x(of_test, i):
        judge(offset=i == 2)
    @pytest.mark.parametrize("i", range(4))
    def test_y(i):
        assert np.allclose(np.ones((3, 4)), np.ones((3, 4)), atol=5)
"""


def test_verdicts_of_fixtures_are_in_the_page_too(suite):
    suite.makepyfile(test_kernel="judge()\n".join([EVERYWHERE, ""]).replace("    judge()\n", "", 1) if False else EVERYWHERE)
    done = suite.runpytest_subprocess("--kvcheck-report=report.html")
    done.assert_outcomes(passed=7, failed=1)
    page = (suite.path / "report.html").read_text(encoding="utf-8")
    # Four of tests, four each of the fixture's two halves, two of the module's.
    assert "13 passed, 1 failed" in page and "kvcheck: 14 verdicts" in done.stdout.str()
    for name in ("test_x[0] (setup) attention", "test_x[2] (teardown) attention", "test_x[3] attention"):
        assert name in page


def test_workers_of_xdist_take_their_share_of_the_threads(suite, monkeypatch):
    pytest.importorskip("xdist")
    monkeypatch.delenv("KVCHECK_THREADS", raising=False)
    suite.makepyfile(test_kernel="""
        import os
        from attention import attention, tensors
        from kvcheck._attention import default_threads
        from kvcheck.testing import assert_attention_close
        def test_right():
            q, k, v = tensors()
            before = len(os.listdir("/proc/self/task"))
            assert_attention_close(attention(q, k, v), q, k, v, plan="plain_f32")
            share = max(1, len(os.sched_getaffinity(0)) // 64)
            assert default_threads() == share
            assert len(os.listdir("/proc/self/task")) - before <= share
    """)
    # As many as a large machine would have: each worker is told of all of them.
    suite.makeconftest("""
        import os
        def pytest_configure(config):
            if hasattr(config, "workerinput"):
                assert os.environ["PYTEST_XDIST_WORKER_COUNT"] == "2"
                os.environ["PYTEST_XDIST_WORKER_COUNT"] = "64"
    """)
    suite.runpytest_subprocess("-n", "2").assert_outcomes(passed=1)


def test_workers_of_xdist_hand_over_what_they_found(suite):
    pytest.importorskip("xdist")
    suite.makepyfile(test_kernel=EVERYWHERE)
    arguments = ("--kvcheck-audit", "--kvcheck-audit-limit=1000", "--kvcheck-audit-json=audit.json",
                 "--kvcheck-report=report.html")

    def found(*more):
        done = suite.runpytest_subprocess(*arguments, *more)
        done.assert_outcomes(passed=7, failed=1)
        page = (suite.path / "report.html").read_text(encoding="utf-8")
        audit = json.loads((suite.path / "audit.json").read_text(encoding="utf-8"))
        assert audit.pop("seconds")["audit"] > 0
        return re.findall(r"(\d+) failed", page)[0], len(re.findall("Copy</button>", page)), audit, done.stdout.str()

    failed, details, audit, text = found("-p", "no:xdist")
    assert failed == "1" and details == 1 and len(audit["tests"]) == 4
    # A module's fixture is made once by each worker.
    assert found("-n", "2", "--dist", "loadfile")[:3] == (failed, details, audit)
    assert "kvcheck: 14 verdicts" in text
    _, _, by_two, text = found("-n", "2", "--dist", "load")
    assert by_two == audit and "kvcheck: 16 verdicts" in text


def test_a_worker_that_ends_without_a_word_is_named(suite):
    pytest.importorskip("xdist")
    suite.makepyfile(test_kernel="""
        import os
        def test_crash():
            os._exit(3)
    """)
    done = suite.runpytest_subprocess("--kvcheck-report=report.html", "-n", "1", "--max-worker-restart=0")
    assert "kvcheck: 1 workers ended without handing over" in done.stdout.str()


@pytest.mark.parametrize("arguments, says", [
    (["--kvcheck-report=nowhere/report.html"], "--kvcheck-report: nowhere/report.html cannot be written"),
    (["--kvcheck-report=."], "--kvcheck-report: . cannot be written"),
    (["--kvcheck-audit", "--kvcheck-audit-json=nowhere/a.json"], "--kvcheck-audit-json: nowhere/a.json cannot be written"),
    (["--kvcheck-audit-json=a.json"], "--kvcheck-audit-json goes with --kvcheck-audit"),
])
def test_what_cannot_be_written_is_said_before_the_tests(suite, arguments, says):
    suite.makepyfile(test_nothing="def test_nothing(): pass")
    done = suite.runpytest_subprocess(*arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR and says in done.stderr.str()


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


def test_nothing_that_a_test_watches_notices_the_audit(suite):
    suite.makepyfile(test_kernel="""
        import warnings
        import numpy as np
        x = np.full((4, 4), 6e4, np.float16)
        def test_recwarn(recwarn):
            assert np.allclose(x, x) and len(recwarn) == 0
        def test_record():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                np.testing.assert_allclose(np.full((3, 3), np.inf), np.full((3, 3), np.inf))
                assert not caught
                warnings.warn("seen")
                assert len(caught) == 1
        def test_handlers_of_floating_point_errors():
            hits = []
            with np.errstate(all="call", call=lambda kind, flag: hits.append(kind)):
                assert np.allclose(x, x) and not hits
                assert np.geterr()["over"] == "call"
            with np.errstate(all="raise"):
                assert np.allclose(x, x)
    """)
    done = suite.runpytest_subprocess("--kvcheck-audit", "--kvcheck-audit-limit=1000")
    done.assert_outcomes(passed=3)
    assert "assertions were asked again" in done.stdout.str() and "could not be asked" not in done.stdout.str()


@pytest.fixture
def watched():
    """An audit, and the assertions that it asked of a test."""
    audit = Audit(limit=1000)
    with audit.watching("test"):
        yield audit, audit.tests["test"]
    audit.close()
    assert not audit.broken


@pytest.mark.parametrize("actual", [[1.5, 2.5, 3.5], (1.5, 2.5), 2.5, np.float64(2.5), np.array(2.5), np.complex64([1 + 2j, 3]),
                                    np.array(1j)], ids=repr)
def test_whatever_numpy_takes_for_an_array_is_asked(watched, actual):
    _, found = watched
    np.testing.assert_allclose(actual, actual, atol=1e-6)
    assert np.allclose(actual, actual, atol=1e9)
    tight, loose = found
    assert set(tight.caught) >= {"all zero", "times 0.72", "random, same norm"} and not tight.passed
    assert set(loose.passed) == set(tight.caught) and not loose.caught


def test_what_holds_no_floats_is_counted_with_the_reason(watched):
    audit, found = watched
    np.testing.assert_allclose([1, 2], [1, 2])
    assert np.allclose(np.ones(3, bool), np.ones(3, bool)) and np.allclose(np.zeros(3), np.zeros(3))
    assert not found and audit.not_asked == {"elements of type int64": 1, "elements of type bool": 1,
                                             "values that no fault would change": 1}


def test_tolerances_by_place_have_their_names(watched):
    _, found = watched
    x = np.linspace(1, 2, 8)
    assert np.allclose(x, x, 1, 2)
    np.testing.assert_allclose(x, x, 0.5)
    assert [record.tolerance for record in found] == ["atol=2 rtol=1", "rtol=0.5"]


def test_numbers_that_are_not_finite_are_null(watched, tmp_path):
    audit, found = watched
    assert np.allclose([1, np.nan], [1, np.nan], equal_nan=True) and np.allclose([np.inf, 1], [np.inf, 1])
    found[0].attention = {"justified": np.inf, "ratio": np.nan, "rows": 2, "of_rows": 2, "passed": [], "caught": []}
    audit.write_json(tmp_path / "audit.json")

    def refuse(name):
        raise AssertionError(name)

    says = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert says["tests"][0]["attention"]["justified"] is None and says["tests"][0]["assertions"] == 2


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


@pytest.mark.parametrize("part", ["with_faults", "_unnoticed"])
def test_a_question_that_cannot_be_asked_changes_no_test(monkeypatch, part):
    def broken(*_):
        raise RuntimeError("no memory")
    audit_module = importlib.import_module("kvcheck.audit")
    audit = Audit(limit=1000)
    try:
        with audit.watching("one"):
            monkeypatch.setattr(audit_module, part, broken)
            assert np.allclose(np.ones(3), np.ones(3))
    finally:
        audit.close()
    assert audit.broken == ["one: RuntimeError: no memory"]


def test_a_list_of_many_arrays_is_left_when_the_time_is_over(monkeypatch):
    audit = Audit(limit=1000)
    try:
        with audit.watching("one"):
            asked = []
            late = iter([False, False, True])
            monkeypatch.setattr(audit, "_is_too_late", lambda: next(late))
            audit._ask_again(lambda *x: asked.append(x), "torch", False, ([1.5] * 1000, [1.5] * 1000), {})
    finally:
        audit.close()
    assert len(asked) == 2 and len(audit.tests["one"]) == 1


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


FAILING = """
    from attention import attention, tensors
    import kvcheck
    from kvcheck.testing import assert_attention_close, assert_close, assert_codec_close
    q, k, v = tensors()
    def test_attention():
        assert_attention_close(attention(q, k, v), q, k, v, causal=True, plan="plain_f32")
    def test_rows():
        assert_codec_close(kvcheck.encode(k, "bf16"), 2 * k, format="bf16")
    def test_arrays():
        assert_close(q, 2 * q)
    def test_a_mistake_of_the_call():
        assert_attention_close(q, q, k[:, :, :, :8], v)
"""


def test_a_failure_is_shown_at_the_tests_own_line(suite):
    suite.makepyfile(test_kernel=FAILING)
    done = suite.runpytest_subprocess("-p", "no:cacheprovider")
    done.assert_outcomes(failed=4)
    text = done.stdout.str()
    for own in ("_judged", "testing.py", "_attention.py", "_arrays.py", "formats.py", "raise AssertionError", "raise Error"):
        assert own not in text
    assert text.count("FAIL  ") >= 3 and "kvcheck._errors.Error" in text
    # What pytest adds to a verdict: the test, and where.
    added = [line for line in text.splitlines() if not line.startswith("E  ")]
    assert len(added) < 60


@needs_torch
def test_bfloat16_is_never_shown_as_integers(suite):
    suite.makepyfile(test_kernel="""
        import torch
        from kvcheck.testing import assert_attention_close
        def test_attention():
            q, k, v = torch.randn(3, 1, 2, 8, 16).bfloat16()
            assert_attention_close(q, q, k, v)
    """)
    done = suite.runpytest_subprocess("-l")
    done.assert_outcomes(failed=1)
    assert "int16" not in done.stdout.str()


def test_what_is_said_beside_a_pass_is_among_pytests_warnings(suite):
    suite.makepyfile(test_kernel="""
        import numpy as np
        from attention import attention, tensors
        from kvcheck.testing import assert_attention_close
        def test_tokens_behind_the_last():
            q, k, v = (x[0].swapaxes(0, 1) for x in tensors(b=1, l=9, t=9))
            out = attention(*(x.swapaxes(0, 1)[None] for x in (q, k, v)), causal=True)[0].swapaxes(0, 1)
            starts = np.int32([0, 7])
            assert_attention_close(out, q, k, v, layout="shd", causal=True, cu_seqlens_q=starts, cu_seqlens_k=starts,
                                   plan="plain_f32")
    """)
    done = suite.runpytest_subprocess()
    done.assert_outcomes(passed=1, warnings=1)
    assert "KvcheckWarning: attention: 2 of 9 tokens are behind the last sequence" in done.stdout.str()
    suite.runpytest_subprocess("-W", "error::kvcheck.KvcheckWarning").assert_outcomes(failed=1)


def test_on_github_the_run_is_in_the_summary_of_the_step(suite, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(suite.path / "summary.md"))
    (suite.path / "summary.md").write_text("before\n")
    suite.makepyfile(test_nothing="""
        import sys
        def test_not_loaded():
            assert "kvcheck._core" not in sys.modules and "numpy" not in sys.modules
    """)
    suite.runpytest_subprocess("test_nothing.py").assert_outcomes(passed=1)
    assert (suite.path / "summary.md").read_text() == "before\n"
    suite.makepyfile(test_kernel=FAILING)
    done = suite.runpytest_subprocess("test_kernel.py", "--kvcheck-audit")
    done.assert_outcomes(failed=4)
    page = (suite.path / "summary.md").read_text(encoding="utf-8")
    assert page.startswith("before\n### kvcheck: pytest\n") and "3 failed" in page
    assert "| FAIL | test\\_kernel.py::test\\_attention attention |" in page
    assert "### kvcheck audit: " in page


def test_a_summary_of_two_workers_is_written_once(suite, monkeypatch):
    pytest.importorskip("xdist")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(suite.path / "summary.md"))
    suite.makepyfile(test_kernel=FAILING)
    suite.runpytest_subprocess("-n", "2").assert_outcomes(failed=4)
    page = (suite.path / "summary.md").read_text(encoding="utf-8")
    assert page.count("### kvcheck: pytest") == 1 and "3 failed" in page


# Four tests of kernels: one that is known, one whose call is large, one that is not known, and one of no kernel.
OF_FOUR = """
    import sys, types
    import numpy as np
    import kvcheck
    from attention import attention, tensors
    fast = types.ModuleType("mlx.core.fast")
    fast.scaled_dot_product_attention = lambda q, k, v, *, scale, mask=None: attention(
        q, k, v, scale=scale, causal=isinstance(mask, str), mask=None if isinstance(mask, str) else mask)
    sys.modules["mlx.core.fast"] = fast
    def check(kernel, q, k, v, atol=1e-6, **keywords):
        out = kernel(q, k, v, **keywords)
        np.testing.assert_allclose(out + np.float32(1e-7), out, atol=atol)
    def test_known():
        check(fast.scaled_dot_product_attention, *tensors(b=1, l=9, t=65), scale=0.25, mask="causal")
    def test_large():
        q, k, v = tensors(b=1, hq=4, hkv=2, l=129, t=129, d=16)
        seen = np.random.default_rng(1).random((1, 4, 129, 129)) < 0.7
        check(fast.scaled_dot_product_attention, q, k, v, scale=0.25, mask=seen)
    def test_unknown():
        check(attention, *tensors(l=9, t=65))
    def test_of_other_arrays():
        q, k, v = tensors()
        fast.scaled_dot_product_attention(q, k, v, scale=0.25)
        np.testing.assert_allclose(q, q)
"""


def audited(suite, *arguments):
    done = suite.runpytest_subprocess("--kvcheck-audit", "--kvcheck-audit-limit=1000", "--kvcheck-audit-json=audit.json",
                                      "--kvcheck-report=report.html", *arguments)
    says = json.loads((suite.path / "audit.json").read_text(encoding="utf-8"))
    assert "could not be asked" not in done.stdout.str()
    return done, says, {row["test"].split("::")[1]: row for row in says["tests"]}


def test_the_audit_says_what_it_did_not_ask(suite):
    # A limit of products that the second test's call is above.
    suite.makeconftest("import kvcheck._attention_calls as calls\ncalls.MOST_PRODUCTS = 1 << 16")
    suite.makepyfile(test_kernel=OF_FOUR)
    done, says, found = audited(suite)
    done.assert_outcomes(passed=4)
    assert says["attention"] == {"asked": 2, "tests": 4, "not_asked": {_attention_calls.UNKNOWN_KERNEL: 1,
                                                                       _attention_calls.OTHER_ARRAYS: 1}}
    assert found["test_unknown"]["attention"] is None
    assert found["test_unknown"]["attention_not_asked"] == _attention_calls.UNKNOWN_KERNEL
    text = done.stdout.str()
    assert "faults of attention: asked of 2 of 4 tests; 1: " in text
    assert f"1: {_attention_calls.UNKNOWN_KERNEL}" in text and "kvcheck.audit.attention" in text
    assert "asked of 2 of 4 tests" in (suite.path / "report.html").read_text(encoding="utf-8")
    known, large = found["test_known"]["attention"], found["test_large"]["attention"]
    assert known["rows"] == known["of_rows"] == 9
    assert (large["rows"], large["of_rows"]) == (2**16 // (4 * 129 * 16), 129)
    assert ", by the last 7 of 129 queries" not in text  # nothing passes there, and nothing is said of it
    assert set(large["caught"]) >= {"mask_array_ignored", "last_key_dropped", "gqa_tiled"} and not large["passed"]
    assert 0 < large["ratio"] < 1


OWN = """
    import numpy as np
    import kvcheck
    import kernels
    from attention import attention, tensors
    {imports}
    def outputs(kernel, **keywords):
        q, k, v = tensors(l=9, t=65)
        out = kernel(*(x.swapaxes(1, 2) for x in (q, k, v)), **keywords)
        np.testing.assert_allclose(out[0] if isinstance(out, tuple) else out,
                                   attention(q, k, v, causal=True, scale=0.25).swapaxes(1, 2), atol=0.5)
    def test_own():
        outputs(kernels.decode, sm_scale=0.25, BLOCK=64)
"""
KERNELS = """
    import kvcheck.audit
    from attention import attention
    {decorator}
    def decode(q, k, v, sm_scale=None, BLOCK=32):
        return attention(*(x.swapaxes(1, 2) for x in (q, k, v)), scale=sm_scale, causal=True).swapaxes(1, 2), None
"""


@pytest.mark.parametrize("decorator", [
    '@kvcheck.audit.attention(layout="bshd", causal=True, ignored=["BLOCK"])',
    '@kvcheck.audit.attention(meaning=lambda sm_scale, BLOCK: {"scale": sm_scale, "causal": True, "layout": "bshd"})',
])
def test_a_kernel_of_ones_own_can_be_named(suite, decorator):
    suite.makepyfile(kernels=KERNELS.format(decorator=decorator), test_kernel=OWN.format(imports=""))
    done, says, found = audited(suite)
    done.assert_outcomes(passed=1)
    asked = found["test_own"]["attention"]
    assert says["attention"] == {"asked": 1, "tests": 1, "not_asked": {}}
    assert 0 < asked["ratio"] < 1 and set(asked["passed"]) >= {"temperature_1_percent", "last_key_dropped"}
    assert "scale_missing" in [*asked["passed"], *asked["caught"]]


def test_an_argument_that_is_not_understood_is_named(suite):
    suite.makepyfile(kernels=KERNELS.format(decorator='@kvcheck.audit.attention(layout="bshd", causal=True)'),
                     test_kernel=OWN.format(imports=""))
    _, says, found = audited(suite)
    assert found["test_own"]["attention"] is None
    assert "argument 'BLOCK' of decode is no word of kvcheck.judge_attention" in found["test_own"]["attention_not_asked"]
    suite.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_kernel_of_another_module_can_be_named_by_an_option(suite):
    suite.makepyfile(other="""
        from attention import attention
        def flash(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1)):
            return attention(q, k, v, scale=softmax_scale, causal=causal)
    """, test_kernel="""
        import numpy as np
        from attention import tensors
        from other import flash
        def test_own():
            q, k, v = tensors(l=9, t=65)
            out = flash(q, k, v, causal=True)
            np.testing.assert_allclose(out, out + np.float32(1e-7), atol=1e-6)
    """)
    done, says, found = audited(suite, "--kvcheck-audit-kernel=other:flash")
    done.assert_outcomes(passed=1)
    assert found["test_own"]["attention"]["ratio"] < 1 and "causal_ignored" in found["test_own"]["attention"]["caught"]
    for wrong in ("--kvcheck-audit-kernel=other", "--kvcheck-audit-kernel=:flash"):
        done = suite.runpytest_subprocess("--kvcheck-audit", wrong)
        assert done.ret == pytest.ExitCode.USAGE_ERROR and "MODULE:FUNCTION" in done.stderr.str()
    assert suite.runpytest_subprocess("--kvcheck-audit-kernel=a:b").ret == pytest.ExitCode.USAGE_ERROR


@needs_mlx
def test_mlx_is_audited(suite):
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


@needs_torch
def test_torch_notices_nothing_of_the_audit(suite):
    suite.makepyfile(test_kernel="""
        import gc, weakref
        import torch
        import torch.nn.functional as F
        from torch.overrides import TorchFunctionMode
        from torch.testing import assert_close
        from torch.utils._python_dispatch import TorchDispatchMode
        x = torch.linspace(1, 2, 32).reshape(4, 8)
        def test_a_message_that_is_a_function():
            said = []
            assert_close(x, x, msg=lambda text: said.append(text) or text)
            assert not said
        def test_modes():
            seen = []
            class Dispatch(TorchDispatchMode):
                def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
                    seen.append(function)
                    return function(*arguments, **(keywords or {}))
            class Function(TorchFunctionMode):
                def __torch_function__(self, function, types, arguments=(), keywords=None):
                    seen.append(function)
                    return function(*arguments, **(keywords or {}))
            q = torch.randn(1, 2, 8, 16)
            for mode in Dispatch, Function:
                with mode():
                    torch.allclose(x, x)
                    F.scaled_dot_product_attention(q, q, q)
            again = list(seen)
            seen.clear()
            for mode in Dispatch, Function:
                with mode():
                    torch.allclose._kvcheck_original(x, x)
                    F.scaled_dot_product_attention._kvcheck_original(q, q, q)
            assert len(again) == len(seen)
        def test_outputs_are_not_held():
            q = torch.randn(1, 2, 8, 16)
            out = F.scaled_dot_product_attention(q, q, q)
            tensor, memory = weakref.ref(out), weakref.ref(out.untyped_storage())
            del out
            gc.collect()
            assert tensor() is None and memory() is None
    """)
    done = suite.runpytest_subprocess("--kvcheck-audit", "--kvcheck-audit-limit=1000")
    done.assert_outcomes(passed=3)
    assert "could not be asked" not in done.stdout.str()


@needs_torch
def test_an_output_that_became_another_tensor_is_still_known(suite):
    suite.makepyfile(test_kernel="""
        import torch
        import torch.nn.functional as F
        from torch.testing import assert_close
        def test_transposed():
            torch.manual_seed(0)
            q, k, v = torch.randn(3, 1, 2, 8, 16)
            out = F.scaled_dot_product_attention(q, k, v)
            out = out.transpose(1, 2)
            assert_close(out, out + 1e-6, atol=0.5, rtol=0)
        def test_inputs_are_gone():
            out = F.scaled_dot_product_attention(*torch.randn(3, 1, 2, 8, 16).clone())
            assert_close(out, out.clone())
    """)
    done = suite.runpytest_subprocess("--kvcheck-audit", "--kvcheck-audit-limit=1000", "--kvcheck-audit-json=audit.json")
    done.assert_outcomes(passed=2)
    tests = json.loads((suite.path / "audit.json").read_text(encoding="utf-8"))["tests"]
    known = {row["test"].split("::")[1]: row["attention"] for row in tests}
    assert known["test_transposed"]["passed"] and known["test_inputs_are_gone"] is None
    assert "could not be asked" not in done.stdout.str()


@needs_torch
def test_torch_takes_containers_apart_and_so_does_the_audit(suite):
    suite.makepyfile(test_kernel="""
        import torch
        from torch.testing import assert_close
        x = torch.linspace(1, 2, 32).reshape(4, 8)
        def test_containers():
            for made in ([x, x], (x, 2 * x), {"a": x, "b": [x]}):
                assert_close(made, made, atol=1e9, rtol=0)
                assert_close(made, made)
        def test_one_of_two():
            assert_close([x, 100 * x], [x, 100 * x], atol=3, rtol=0)
        def test_numbers():
            assert_close(1.5, 1.5)
            assert_close(torch.complex(x, x), torch.complex(x, x))
        def test_not_asked():
            assert_close(1, 1)
            assert_close(torch.eye(3).to_sparse(), torch.eye(3).to_sparse())
    """)
    done = suite.runpytest_subprocess("--kvcheck-audit", "--kvcheck-audit-limit=1000", "--kvcheck-audit-json=audit.json")
    done.assert_outcomes(passed=4)
    says = json.loads((suite.path / "audit.json").read_text(encoding="utf-8"))
    found = {row["test"].split("::")[1]: row for row in says["tests"]}
    assert found["test_containers"]["passed"] == dict.fromkeys(FAULTS, 3)
    assert found["test_containers"]["caught"] == dict.fromkeys(FAULTS, 3)
    # What passes in the array of small numbers passes.
    assert "all zero" in found["test_one_of_two"]["passed"] and "all zero" not in found["test_one_of_two"]["caught"]
    assert found["test_numbers"]["assertions"] == 2 and not found["test_numbers"]["passed"]
    assert says["not_asked_because"] == {"a int": 1, "a sparse or quantized tensor, or one without elements in memory": 1}
    assert "2 assertions are not asked again: " in done.stdout.str()


@needs_torch
def test_torch_is_audited(suite):
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
