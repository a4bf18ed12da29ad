"""Which faults would a suite's tolerances let through? Every torch.testing.assert_close, torch.allclose,
numpy.testing.assert_allclose, numpy.allclose and mlx.core.allclose that passes while a test runs is asked again, by its
own function and with its own tolerance, about a copy of `actual` with a fault in it. What still passes would not have
been noticed. Where an argument is the output of a scaled_dot_product_attention of the test, it is asked about faults of
attention too, and the report says what error the data explain.

A fault that leaves `actual` as it is (zeros of zeros) is not asked. What a test shows of itself is its own question
alone: that a fault passes says that the assertion cannot see it, and not that the kernel has it.
"""
import collections
import contextlib
import functools
import importlib
import json
import sys
import time

import numpy as np

from ._array_faults import FAULTS, with_faults


class Assertion:
    """One assertion of a test that passed, and what passed in its place. attention: a dict where it was about the output
    of an attention whose inputs are known: justified, ratio, caught, passed."""

    def __init__(self, function, tolerance, shape, needed):
        self.function, self.tolerance, self.shape, self.needed = function, tolerance, shape, needed
        self.caught, self.passed = [], []
        self.attention = None


# (module, attribute, whether it returns the answer in place of raising)
TARGETS = (("torch.testing", "assert_close", False), ("torch", "allclose", True),
           ("numpy.testing", "assert_allclose", False), ("numpy", "allclose", True), ("mlx.core", "allclose", True))


class Audit:
    """limit: how many times as long as the run itself its assertions may be asked again. Until close() the functions of
    TARGETS, wherever a module holds them, are others that ask them; outside of watching() these do nothing else."""

    def __init__(self, limit=2.0):
        self.limit = limit
        self.tests = collections.defaultdict(list)
        self.skipped = collections.Counter()
        self.broken = []
        self._test = None
        self._inside = False
        self._begun = self._since = time.perf_counter()
        self._spent = 0.0
        self._calls = []
        self._searched = set()
        self._watched = {}  # id of an original: (original, what stands for it)
        self._replaced = []

    @contextlib.contextmanager
    def watching(self, test):
        """While a test runs. Libraries that it loads are watched from the next test on."""
        with self._own_time():
            self._watch()
        self._test = test
        try:
            yield
        finally:
            self._test = None
            self._calls.clear()

    def close(self):
        """Every function is again where it was."""
        for holder, key, original in self._replaced:
            setattr(holder, key, original)
        self._replaced.clear()
        self._watched.clear()
        self._searched.clear()

    @contextlib.contextmanager
    def _own_time(self):
        self._since = time.perf_counter()
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
            self._spent += time.perf_counter() - self._since

    def _watch(self):
        """Puts what watches in the place of each function. Modules are searched once, and again when a library came."""
        from ._attention_calls import TARGETS as attention
        wanted = [(place, functools.partial(self._asking, label=".".join(place), answers=answers))
                  for *place, answers in TARGETS]
        wanted += [(place, functools.partial(self._remembering, meaning=meaning)) for place, meaning in attention.items()]
        if "numpy" in sys.modules:
            importlib.import_module("numpy.testing")  # which numpy loads when a test first asks for it
        come = False
        for (module, name), watcher in wanted:
            original = getattr(sys.modules.get(module), name, None)
            if original is not None and not hasattr(original, "_kvcheck_original") and id(original) not in self._watched:
                watched = watcher(original)
                watched._kvcheck_original = original
                self._watched[id(original)] = original, watched
                come = True
        if come:
            self._searched.clear()
        for name, holder in [*sys.modules.items()]:
            if name in self._searched:
                continue
            self._searched.add(name)
            # The name that a test module imported is another reference to the same function.
            try:
                held = [(key, self._watched[id(value)]) for key, value in vars(holder).items() if id(value) in self._watched]
            except (TypeError, RuntimeError):
                continue
            for key, (original, watched) in held:
                if vars(holder)[key] is original:
                    setattr(holder, key, watched)
                    self._replaced.append((holder, key, original))

    def _remembering(self, original, meaning):
        from ._attention_calls import MOST_CALLS, Call
        is_compiling = getattr(getattr(sys.modules.get("torch"), "compiler", None), "is_compiling", lambda: False)

        @functools.wraps(original)
        def watched(*arguments, **keywords):
            if is_compiling():  # torch.compile sees the function alone
                return original(*arguments, **keywords)
            out = original(*arguments, **keywords)
            if self._test is not None and not self._inside:
                self._calls.append(Call(out, arguments, keywords, meaning))
                del self._calls[:-MOST_CALLS]
            return out
        return watched

    def _asking(self, original, label, answers):
        @functools.wraps(original)
        def watched(*arguments, **keywords):
            __tracebackhide__ = True
            result = original(*arguments, **keywords)
            if self._test is not None and not self._inside and (not answers or bool(result)):
                with self._own_time():
                    try:
                        self._ask_again(original, label, answers, arguments, keywords)
                    except Exception as error:  # the test goes on as if nothing had been asked
                        self.broken.append(f"{self._test}: {type(error).__name__}: {error}")
            return result
        return watched

    def _is_too_late(self):
        now = time.perf_counter()
        spent = self._spent + (now - self._since if self._inside else 0)
        # A run of less than a second counts as one.
        return spent > self.limit * max(now - self._begun - spent, 1.0)

    def _ask_again(self, original, label, answers, arguments, keywords):
        if self._is_too_late():
            self.skipped[self._test] += 1
            return
        keywords = dict(keywords)
        actual, arguments = _taken(arguments, keywords, ("actual", "input", "a"))
        if actual is None:
            return
        expected = arguments[0] if arguments else next(
            (keywords[name] for name in ("expected", "other", "desired", "b") if name in keywords), None)
        record = None

        def ask(name, faulty, caught, passed):
            (passed if _passes(original, answers, faulty, arguments, keywords) else caught).append(name)

        for name, faulty in with_faults(actual):
            if record is None:
                record = Assertion(label, _tolerance_text(arguments, keywords), tuple(actual.shape),
                                   _largest_error(actual, expected))
            ask(name, faulty, record.caught, record.passed)
        if record is None:
            return
        self.tests[self._test].append(record)
        if self._calls:
            record.attention = self._attention(record, actual, expected, ask)

    def _attention(self, record, actual, expected, ask):
        from ._arrays import of
        from ._attention_calls import MOST_ASKED, Finding, find, like
        from ._errors import Error
        asked = [other for other in self.tests[self._test] if other.attention and other.tolerance == record.tolerance]
        if len(asked) >= MOST_ASKED or self._is_too_late():
            return None
        found, other = find(self._calls, actual), expected
        if found is None:
            found, other = find(self._calls, expected), actual
        if found is None:
            return None
        call, form = found
        try:
            finding = Finding(call, of(other, "x")[1])
        except Error:
            return None
        says = {"justified": finding.justified, "ratio": finding.ratio, "caught": [], "passed": []}
        for name, out in finding.faults():
            if self._is_too_late():
                break
            ask(name, like(form(out), actual), says["caught"], says["passed"])
        return says

    # ------------------------------------------------------------------------------------------------------- reports
    def rows(self):
        """Per test a dict: test, assertions, tolerances, largest_error (of |actual - expected|), passed and caught (fault:
        assertions), attention: None, or of the assertions about known attention assertions, justified, ratio, passed,
        caught. Those that let most through first."""
        rows = []
        for test, records in self.tests.items():
            known = [record.attention for record in records if record.attention]
            attention = {"assertions": len(known), "justified": max(says["justified"] for says in known),
                         "ratio": max(says["ratio"] for says in known),
                         **{answer: _counted(says[answer] for says in known) for answer in ("passed", "caught")}
                         } if known else None
            rows.append({"test": test, "assertions": len(records),
                         "tolerances": list(dict.fromkeys(record.tolerance for record in records)),
                         "largest_error": max((r.needed for r in records if r.needed is not None), default=None),
                         "passed": _counted(record.passed for record in records),
                         "caught": _counted(record.caught for record in records), "attention": attention})
        return sorted(rows, key=lambda row: (-sum(row["passed"].values()) / row["assertions"], row["test"]))

    def write_json(self, path):
        """What the report shows, and seconds: of the run without the audit, and of the audit."""
        run = time.perf_counter() - self._begun - self._spent
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"tests": self.rows(), "not_asked": sum(self.skipped.values()),
                       "seconds": {"run": run, "audit": self._spent}}, file, indent=1)

    def write_summary(self, reporter):
        rows = self.rows()
        reporter.section("kvcheck audit: faults that the tolerances let through")
        if not rows:
            reporter.write_line("no assertion about arrays of floats was asked again")
        shown = [row for row in rows if row["passed"] or row["attention"] and row["attention"]["passed"]]
        for row in shown:
            reporter.write_line(f"{row['test']}: {_faults_text(row['passed'], row['assertions'])}; "
                                f"{', '.join(row['tolerances'])}; largest error {_number_text(row['largest_error'])}")
            known = row["attention"]
            if known:
                reporter.write_line(f"    of attention: {_faults_text(known['passed'], known['assertions'])}; the data "
                                    f"explain errors up to {_number_text(known['justified'])}")
        if rows:
            reporter.write_line(f"{len(shown)} of {len(rows)} tests let some of {len(FAULTS)} faults through; "
                                f"{sum(row['assertions'] for row in rows)} assertions were asked again")
        if self.skipped:
            reporter.write_line(f"{sum(self.skipped.values())} further assertions were not asked again: "
                                "--kvcheck-audit-limit")
        if self.broken:
            reporter.write_line(f"{len(self.broken)} assertions could not be asked again: {self.broken[0]}")

    def add_to(self, report):
        rows = self.rows()
        table = [[row["test"], str(row["assertions"]), ", ".join(row["tolerances"]), _number_text(row["largest_error"]),
                  *_cells(row, FAULTS)] for row in rows]
        note = ("Every assertion that passed was asked again with a fault in `actual`. 'passes': the assertion would not "
                "have noticed it. Largest error: of |actual - expected|, what the data needed of an absolute tolerance.")
        report.add_table("Audit of tolerances", note,
                         ["test", "assertions", "tolerance", "largest error", *FAULTS], table)
        known = [row for row in rows if row["attention"]]
        if not known:
            return
        from ._attention_calls import FAULTS as OF_ATTENTION
        table = [[row["test"], ", ".join(row["tolerances"]), _number_text(row["largest_error"]),
                  _number_text(row["attention"]["justified"]), _number_text(row["attention"]["ratio"]),
                  *_cells(row["attention"], OF_ATTENTION)] for row in known]
        note = ("Assertions about the output of a scaled_dot_product_attention of the test, asked about the answers that "
                "`kvcheck faults` makes of the same inputs, as far as the bound tells them from right ones. Explained: the "
                "largest |actual - expected| of two right answers of these types, by the bound of kernels of which nothing "
                "is known; a tolerance above it admits more than rounding. Error/bound: of the output that was judged.")
        report.add_table("Audit of attention", note,
                         ["test", "tolerance", "largest error", "explained", "error/bound", *OF_ATTENTION], table)


def _counted(lists):
    return dict(collections.Counter(name for names in lists for name in names).most_common())


def _cells(counts, faults):
    return [f"!passes ({counts['passed'][name]} of {counts['assertions']})" if name in counts["passed"] else
            "=caught" if name in counts["caught"] else "-" for name in faults]


def _faults_text(passed, count):
    return ", ".join(f"{name} ({n} of {count})" for name, n in passed.items()) or "none"


def _taken(arguments, keywords, names):
    """The first argument, by place or by one of its names, which it takes out of `keywords`; and the other arguments."""
    if arguments:
        return arguments[0], arguments[1:]
    name = next((name for name in names if name in keywords), None)
    return (None if name is None else keywords.pop(name)), ()


def _passes(original, answers, faulty, arguments, keywords):
    try:
        result = original(faulty, *arguments, **keywords)
    except AssertionError:
        return False
    except Exception:  # what an assertion does with a fault that is not its own error is no pass
        return False
    return bool(result) if answers else True


def _tolerance_text(arguments, keywords):
    """The tolerance as the call has it: "atol=0.015 rtol=0.01"; "default" where it names none."""
    named = [f"{name}={keywords[name]}" for name in ("atol", "rtol") if keywords.get(name) is not None]
    named += [f"{value}" for value in arguments[1:] if isinstance(value, float)]
    return " ".join(named) or "default"


def _largest_error(actual, expected):
    from ._arrays import of, widened
    try:
        with np.errstate(all="ignore"):
            return float(np.nanmax(np.abs(widened(*of(actual, "actual")) - widened(*of(expected, "expected")))))
    except (TypeError, ValueError, RuntimeError):  # kvcheck.Error among them
        return None


def _number_text(number):
    return "-" if number is None else f"{number:.2g}"
