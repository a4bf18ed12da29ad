"""The pytest plugin: --kvcheck-report, --kvcheck-audit, the fixture `kvcheck_judge`, the marker `kvcheck`.

    pytest --kvcheck-report=report.html                     verdicts of kvcheck.testing, in one page
    pytest --kvcheck-audit --kvcheck-report=report.html     and which faults the tolerances of assert_close let through
    pytest --kvcheck-audit --kvcheck-audit-json=audit.json  the same for programs

@pytest.mark.kvcheck(plan=..., strict=..., rows=..., ...) gives the keywords of the fixture's calls in a test:

    @pytest.mark.kvcheck(plan="vllm_triton", strict=True)
    def test_decode(kvcheck_judge):
        kvcheck_judge(out, q, k, v, causal=True)            # kvcheck.testing.assert_attention_close
"""
import pytest


def pytest_addoption(parser):
    group = parser.getgroup("kvcheck")
    group.addoption("--kvcheck-report", metavar="FILE.html", help="write the verdicts of kvcheck.testing, and the audit, "
                    "as one HTML file")
    group.addoption("--kvcheck-audit", action="store_true", help="ask every assert_close and allclose of torch, numpy and mlx "
                    "that passes again with faults put into `actual`; show which ones its tolerance lets through")
    group.addoption("--kvcheck-audit-limit", type=float, default=2.0, metavar="FACTOR", help="ask no assertion again while "
                    "that has taken more than FACTOR times as long as all else of the run (default 2)")
    group.addoption("--kvcheck-audit-json", metavar="FILE.json", help="write what the audit found as JSON, too")


def pytest_configure(config):
    config.addinivalue_line("markers", "kvcheck(**keywords): keywords of the calls of the fixture kvcheck_judge")
    wanted = config.getoption("--kvcheck-report") or config.getoption("--kvcheck-audit")
    if wanted and not config.pluginmanager.hasplugin("kvcheck-session"):
        config.pluginmanager.register(Session(config), "kvcheck-session")


@pytest.fixture
def kvcheck_judge(request):
    """kvcheck.testing.assert_attention_close with the keywords of the test's marker `kvcheck`."""
    import functools

    from . import testing
    keywords = {}
    for marker in reversed(list(request.node.iter_markers("kvcheck"))):
        keywords.update(marker.kwargs)
    return functools.partial(testing.assert_attention_close, **keywords)


class Session:
    def __init__(self, config):
        self.path = config.getoption("--kvcheck-report")
        self.verdicts = []
        self.test = ""
        self.audit = None
        self.audit_path = config.getoption("--kvcheck-audit-json")
        if config.getoption("--kvcheck-audit"):
            from .audit import Audit
            self.audit = Audit(config.getoption("--kvcheck-audit-limit"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        self.test = item.nodeid
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        from . import testing
        listener = self._listen
        testing.listeners.append(listener)
        try:
            if self.audit is None:
                return (yield)
            with self.audit.watching(item.nodeid):
                return (yield)
        finally:
            testing.listeners.remove(listener)

    def _listen(self, name, verdict):
        self.verdicts.append((f"{self.test} {name}", verdict))

    def pytest_unconfigure(self):
        if self.audit is not None:
            self.audit.close()

    def pytest_terminal_summary(self, terminalreporter):
        if self.audit is not None:
            self.audit.write_summary(terminalreporter)
            if self.audit_path:
                self.audit.write_json(self.audit_path)
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
