"""The pytest plugin: --kvcheck-report, --kvcheck-audit, the fixture `kvcheck_judge`, the marker `kvcheck`. On GitHub a
run with verdicts, or an audit, is in the summary of the step (the file that GITHUB_STEP_SUMMARY names).

    pytest --kvcheck-report=report.html                     verdicts of kvcheck.testing, in one page
    pytest --kvcheck-audit --kvcheck-report=report.html     and which faults the tolerances of assert_close let through
    pytest --kvcheck-audit --kvcheck-audit-json=audit.json  the same for programs

@pytest.mark.kvcheck(PLAN, strict=..., rows=..., ...) gives the keywords of the fixture's calls in a test:

    @pytest.mark.kvcheck("vllm_triton", strict=True)
    def test_decode(kvcheck_judge):
        kvcheck_judge(out, q, k, v, causal=True)            # kvcheck.testing.assert_attention_close
"""
import os
import pickle

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("kvcheck")
    group.addoption("--kvcheck-report", metavar="FILE.html", help="write the verdicts of kvcheck.testing, and the audit, "
                    "as one HTML file")
    group.addoption("--kvcheck-audit", action="store_true", help="ask every assert_close and allclose of torch, numpy and mlx "
                    "that passes again with faults put into `actual`; show which ones its tolerance lets through")
    group.addoption("--kvcheck-audit-limit", type=float, default=2.0, metavar="FACTOR", help="ask no assertion again while "
                    "that has taken more than FACTOR times as long as all else of the run (default 2)")
    group.addoption("--kvcheck-audit-kernel", action="append", default=[], metavar="MODULE:FUNCTION", help="of a function(q, k, "
                    "v, ...) that is an attention kernel (kvcheck.audit.attention); may be given again")
    group.addoption("--kvcheck-audit-json", metavar="FILE.json", help="write what the audit found as JSON, too")


def pytest_configure(config):
    config.addinivalue_line("markers", "kvcheck(plan, **keywords): keywords of the calls of the fixture kvcheck_judge")
    report, audit, numbers = (config.getoption(f"--kvcheck-{name}") for name in ("report", "audit", "audit-json"))
    if numbers and not audit:
        raise pytest.UsageError("--kvcheck-audit-json goes with --kvcheck-audit")
    kernels = config.getoption("--kvcheck-audit-kernel")
    if kernels and not audit:
        raise pytest.UsageError("--kvcheck-audit-kernel goes with --kvcheck-audit")
    for kernel in kernels:
        if [bool(part.strip()) for part in kernel.split(":")] != [True, True]:
            raise pytest.UsageError(f"--kvcheck-audit-kernel: {kernel}: MODULE:FUNCTION, as my_package.kernels:decode")
    if not report and not audit and not os.environ.get("GITHUB_STEP_SUMMARY"):
        return
    if (report or audit) and config.getoption("forked", False):
        raise pytest.UsageError("--forked runs each test in a process whose verdicts are lost with it: leave out --forked, "
                                "or --kvcheck-report and --kvcheck-audit")
    if not hasattr(config, "workerinput"):
        for option, path in (("--kvcheck-report", report), ("--kvcheck-audit-json", numbers)):
            _check_writable(option, path)
    if not config.pluginmanager.hasplugin("kvcheck-session"):
        config.pluginmanager.register(Session(config), "kvcheck-session")


def _check_writable(option, path):
    """Before the tests run, and not behind them."""
    if not path:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise pytest.UsageError(f"{option}: {path} cannot be written")


@pytest.fixture
def kvcheck_judge(request):
    """kvcheck.testing.assert_attention_close with the keywords of the test's marker `kvcheck`."""
    import functools

    from . import testing
    keywords = {}
    for marker in reversed(list(request.node.iter_markers("kvcheck"))):
        if len(marker.args) > 1 or marker.args and "plan" in marker.kwargs:
            raise pytest.UsageError("the marker kvcheck takes the plan, and all else by keywords: "
                                    f"{', '.join(map(repr, marker.args))}")
        keywords.update(zip(("plan",), marker.args))
        keywords.update(marker.kwargs)
    return functools.partial(testing.assert_attention_close, **keywords)


class Session:
    """Collects verdicts and what the audit found. Under pytest-xdist each worker has one, whose findings the controller's
    takes over when the worker ends."""

    def __init__(self, config):
        self.path = config.getoption("--kvcheck-report")
        self.verdicts = []
        self.test = "outside of tests"
        self.phase = ""
        self.lost = 0  # workers that ended without a word
        self.audit = None
        self.audit_path = config.getoption("--kvcheck-audit-json")
        if config.getoption("--kvcheck-audit"):
            from .audit import Audit
            self.audit = Audit(config.getoption("--kvcheck-audit-limit"),
                               [tuple(kernel.split(":")) for kernel in config.getoption("--kvcheck-audit-kernel")])
        from ._listeners import listeners
        self.listener = self._listen
        listeners.append(self.listener)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        self.test = item.nodeid
        try:
            return (yield)
        finally:
            self.test = "outside of tests"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        return (yield from self._in_phase(" (setup)"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item, nextitem):
        return (yield from self._in_phase(" (teardown)"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        if self.audit is None:
            return (yield)
        with self.audit.watching(item.nodeid):
            return (yield)

    def _in_phase(self, phase):
        self.phase = phase
        try:
            return (yield)
        finally:
            self.phase = ""

    def _listen(self, name, verdict):
        self.verdicts.append((f"{self.test}{self.phase} {name}", verdict))

    def pytest_sessionfinish(self, session):
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["kvcheck"] = {"verdicts": [(name, pickle.dumps(verdict)) for name, verdict in self.verdicts],
                                 "audit": self.audit and self.audit.state()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        found = getattr(node, "workeroutput", {}).get("kvcheck")
        if found is None:
            self.lost += 1
            return
        self.verdicts += [(name, pickle.loads(verdict)) for name, verdict in found["verdicts"]]
        if self.audit is not None:
            self.audit.merge(found["audit"])

    def pytest_unconfigure(self):
        from ._listeners import listeners
        if self.listener in listeners:
            listeners.remove(self.listener)
        if self.audit is not None:
            self.audit.close()

    def pytest_terminal_summary(self, terminalreporter, config):
        if hasattr(config, "workerinput"):  # the controller writes what all have found
            return
        if self.lost:
            terminalreporter.write_line(f"kvcheck: {self.lost} workers ended without handing over what they found; it is "
                                        "missing here", red=True)
        if self.audit is not None:
            self.audit.write_summary(terminalreporter)
            if self.audit_path:
                self.audit.write_json(self.audit_path)
        self._write_step_summary(terminalreporter)
        if not self.path:
            return
        from . import _core
        report = _core.HtmlReport("kvcheck: pytest")
        for name, verdict in self.verdicts:
            report.add(name, verdict)
        if self.audit is not None:
            self.audit.add_to(report)
        report.write(str(self.path))
        terminalreporter.write_line(f"kvcheck: {len(self.verdicts)} verdicts in {self.path}")

    def _write_step_summary(self, terminalreporter):
        """The verdicts and the audit, behind what the summary of the step on GitHub has already."""
        path = os.environ.get("GITHUB_STEP_SUMMARY")
        if not path or not (self.verdicts or self.audit is not None):
            return
        from . import _core
        text = ""
        if self.verdicts:
            summary = _core.StepSummary("kvcheck: pytest")
            for name, verdict in self.verdicts:
                summary.add(name, verdict)
            text = summary.markdown()
        if self.audit is not None:
            text += self.audit.markdown()
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            terminalreporter.write_line(f"kvcheck: the summary of the step was not written: {error}", red=True)
