"""Which faults would a suite's tolerances let through? Every torch.testing.assert_close, torch.allclose,
numpy.testing.assert_allclose, numpy.allclose and mlx.core.allclose that passes while a test runs is asked again, by its
own function and with its own tolerance, about a copy of `actual` with a fault in it. What still passes would not have
been noticed. Where an argument is the output of a scaled_dot_product_attention of the test, or of a kernel that attention()
names, it is asked about faults of attention too, and the report says what error the data explain, and of which tests it was
not asked, and why.

    @kvcheck.audit.attention(layout="bshd")
    def my_attention(q, k, v, causal=False, sm_scale=None): ...

Sequences and mappings of arrays have each fault in each of their arrays in turn, and let it through where one does. A
fault that leaves `actual` as it is (zeros of zeros) is not asked. What holds no floats is counted with the reason.
What a test shows of itself is its own question alone: that a fault passes says that the assertion cannot see it, and not
that the kernel has it.
"""
import collections
import contextlib
import functools
import importlib
import json
import math
import re
import sys
import time
import warnings

import numpy as np

from ._array_faults import FAULTS, leaves, reason_against, with_faults

_active = []  # audits between their first watching() and close()


def attention(function=None, *, meaning=None, ignored=(), **fixed):
    """Names a kernel of one's own to the audit: function(q, k, v, ...) -> out, or (out, lse).

    Its other arguments are understood by their names, those of kvcheck.judge_attention (mask, causal, window, scale, softcap,
    sinks) and attn_mask, window_size, sliding_window, sm_scale, softmax_scale, logits_soft_cap; `ignored` are names that
    change nothing (block sizes), `fixed` what every call means (layout="bshd", causal=True). meaning(*arguments, **keywords):
    in place of all that, the keywords of judge_attention for those behind q, k and v; None: a call that is not to be asked.
    Outside of an audit the kernel is called as it is. For a kernel of another module: its_module.kernel =
    kvcheck.audit.attention(its_module.kernel), in conftest.py, or pytest's --kvcheck-audit-kernel=its_module:kernel.
    """
    if function is None:
        return functools.partial(attention, meaning=meaning, ignored=ignored, **fixed)
    unknown = set(fixed) - {"mask", "causal", "window", "scale", "softcap", "sinks", "layout"}
    if unknown or not callable(function):
        raise TypeError(f"kvcheck.audit.attention: {', '.join(sorted(unknown))} is no word of kvcheck.judge_attention" if unknown
                        else f"kvcheck.audit.attention: {function!r} is no function")

    @functools.wraps(function)
    def kernel(*arguments, **keywords):
        __tracebackhide__ = True
        out = function(*arguments, **keywords)
        for audit in _active:
            audit.remember(out, arguments, keywords, meant)
        return out

    from ._attention_calls import meaning_of
    meant = meaning or meaning_of(function, ignored, **fixed)
    kernel._kvcheck_original = function
    return kernel


class Assertion:
    """One assertion of a test that passed, and what passed in its place. attention: a dict where it was about the output
    of an attention whose inputs are known: justified, ratio, rows, of_rows, caught, passed; else a text: why not."""

    def __init__(self, tolerance, needed, caught=(), passed=(), attention=""):
        self.tolerance, self.needed = tolerance, needed
        self.caught, self.passed = list(caught), list(passed)
        self.attention = attention

    @property
    def known(self):
        return self.attention if isinstance(self.attention, dict) else None

    def add(self, name, is_passed):
        """A fault that passes in one array of several passes."""
        if is_passed and name not in self.passed:
            self.passed.append(name)
            self.caught = [other for other in self.caught if other != name]
        elif not is_passed and name not in [*self.passed, *self.caught]:
            self.caught.append(name)


@contextlib.contextmanager
def _unnoticed():
    """What is done inside is noticed by no filter of warnings, handler of floating-point errors, mode or tape that a test
    has set."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(np.errstate(all="ignore"))
        torch = sys.modules.get("torch")
        if hasattr(torch, "no_grad"):
            # First: switching gradients off is a call that a mode sees, too.
            for _ in range(getattr(torch._C, "_len_torch_function_stack", lambda: 0)()):
                stack.callback(torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack())
            try:
                from torch.utils._python_dispatch import _disable_current_modes
            except ImportError:
                _disable_current_modes = contextlib.nullcontext
            stack.enter_context(_disable_current_modes())
            stack.enter_context(torch.no_grad())
        yield


TITLE = "kvcheck audit: faults that the tolerances let through"
# GitHub takes 1 MiB of summary, of which verdicts may have most.
MOST_MARKDOWN_BYTES = 100_000

# (module, attribute, whether it returns the answer in place of raising)
TARGETS = (("torch.testing", "assert_close", False), ("torch", "allclose", True),
           ("numpy.testing", "assert_allclose", False), ("numpy", "allclose", True), ("mlx.core", "allclose", True))


class Audit:
    """limit: how many times as long as the run itself its assertions may be asked again. kernels: ("module", "function") of
    further attention. Until close() the functions of TARGETS, wherever a module holds them, are others that ask them; outside
    of watching() these do nothing else."""

    def __init__(self, limit=2.0, kernels=()):
        self.limit = limit
        self.kernels = list(kernels)
        self.tests = collections.defaultdict(list)
        self.skipped = collections.Counter()
        self.not_asked = collections.Counter()  # reasons
        self.broken = []
        self._others = []  # seconds of the run and of the audit, of other processes
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
        if self not in _active:
            _active.append(self)
        self._test = test
        try:
            yield
        finally:
            self._test = None
            self._calls.clear()

    def close(self):
        """Every function is again where it was."""
        if self in _active:
            _active.remove(self)
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
            with _unnoticed():
                yield
        finally:
            self._inside = False
            self._spent += time.perf_counter() - self._since

    def _aside(self, work):
        """Does it in the middle of a test, which goes on as if nothing had been asked."""
        try:
            with self._own_time():
                work()
        except Exception as error:
            self.broken.append(f"{self._test}: {type(error).__name__}: {error}")

    def _watch(self):
        """Puts what watches in the place of each function. Modules are searched once, and again when a library came."""
        from ._attention_calls import TARGETS as attention
        wanted = [(place, functools.partial(self._asking, library=place[0].split(".")[0], answers=answers))
                  for *place, answers in TARGETS]
        wanted += [(place, functools.partial(self._remembering, meaning=meaning)) for place, meaning in attention.items()]
        wanted += [(place, functools.partial(self._remembering, meaning=None)) for place in self.kernels]
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

    def remember(self, out, arguments, keywords, meaning):
        """A call of attention and its output."""
        from ._attention_calls import MOST_CALLS, Call
        is_compiling = getattr(getattr(sys.modules.get("torch"), "compiler", None), "is_compiling", lambda: False)
        if self._test is not None and not self._inside and not is_compiling():
            self._aside(lambda: self._calls.append(Call(out, arguments, keywords, meaning)))
            del self._calls[:-MOST_CALLS]

    def _remembering(self, original, meaning):
        from ._attention_calls import meaning_of
        meaning = meaning or meaning_of(original)
        is_compiling = getattr(getattr(sys.modules.get("torch"), "compiler", None), "is_compiling", lambda: False)

        @functools.wraps(original)
        def watched(*arguments, **keywords):
            if is_compiling():  # torch.compile sees the function alone
                return original(*arguments, **keywords)
            out = original(*arguments, **keywords)
            self.remember(out, arguments, keywords, meaning)
            return out
        return watched

    def _asking(self, original, library, answers):
        @functools.wraps(original)
        def watched(*arguments, **keywords):
            __tracebackhide__ = True
            result = original(*arguments, **keywords)
            if self._test is not None and not self._inside and (not answers or bool(result)):
                self._aside(lambda: self._ask_again(original, library, answers, arguments, keywords))
            return result
        return watched

    def _is_too_late(self):
        now = time.perf_counter()
        spent = self._spent + (now - self._since if self._inside else 0)
        # A run of less than a second counts as one.
        return spent > self.limit * max(now - self._begun - spent, 1.0)

    def _ask_again(self, original, library, answers, arguments, keywords):
        if self._is_too_late():
            self.skipped[self._test] += 1
            return
        keywords = dict(keywords)
        if callable(keywords.get("msg")):  # the test's own function
            keywords["msg"] = None
        actual, arguments = _taken(arguments, keywords, ("actual", "input", "a"))
        if actual is None:
            return
        expected = arguments[0] if arguments else next(
            (keywords[name] for name in ("expected", "other", "desired", "b") if name in keywords), None)
        if library == "numpy" and isinstance(actual, list | tuple | float | complex):
            actual = np.asarray(actual)
        record = Assertion(_tolerance_text(arguments, keywords), _largest_error(actual, expected))

        def passes(faulty):
            return _passes(original, answers, faulty, arguments, keywords)

        for name, faulty in with_faults(actual):
            record.add(name, passes(faulty))
            if self._is_too_late():  # a list may hold thousands of arrays
                break
        if not record.passed and not record.caught:
            self.not_asked[reason_against(actual)] += 1
            return
        self.tests[self._test].append(record)
        record.attention = self._attention(record, actual, expected, passes)

    def _attention(self, record, actual, expected, passes):
        """What was found by faults of attention; or why they were not asked."""
        from ._arrays import of
        from ._attention_calls import MOST_ASKED, OTHER_ARRAYS, OTHER_QUESTION, UNKNOWN_KERNEL, Finding, NotAsked, find, like
        from ._errors import Error
        if not self._calls:
            return UNKNOWN_KERNEL
        if not hasattr(actual, "shape"):
            return OTHER_ARRAYS
        asked = [other for other in self.tests[self._test] if other.known and other.tolerance == record.tolerance]
        if len(asked) >= MOST_ASKED:
            return f"{MOST_ASKED} assertions of this tolerance are asked in a test"
        if self._is_too_late():
            return "--kvcheck-audit-limit"
        found, other = find(self._calls, actual), expected
        if found is None:
            found, other = find(self._calls, expected), actual
        if found is None:
            return OTHER_ARRAYS
        call, form = found
        try:
            finding = Finding(call, of(other, "x")[1])
        except NotAsked as reason:
            return str(reason)
        except Error as error:
            return f"{OTHER_QUESTION}: {error}"
        says = {"justified": finding.justified, "ratio": finding.ratio, "rows": finding.rows, "of_rows": finding.of_rows,
                "caught": [], "passed": []}
        for name, out in finding.faults():
            if self._is_too_late():
                break
            says["passed" if passes(like(form(out), actual)) else "caught"].append(name)
        return says

    # --------------------------------------------------------------------------------------------- of several processes
    def state(self):
        """All that was found, as a text for merge()."""
        return json.dumps({"tests": {test: [vars(record) for record in records] for test, records in self.tests.items()},
                           "skipped": self.skipped, "not_asked": self.not_asked, "broken": self.broken,
                           "seconds": self._seconds()})

    def merge(self, state):
        """Adds what another process found."""
        found = json.loads(state)
        for test, records in found["tests"].items():
            self.tests[test] += [Assertion(**record) for record in records]
        self.skipped.update(found["skipped"])
        self.not_asked.update(found["not_asked"])
        self.broken += found["broken"]
        self._others.append(found["seconds"])

    def _seconds(self):
        """(of the run without the audit, of the audit): where other processes ran the tests, theirs in sum."""
        if self._others:
            return [sum(column) for column in zip(*self._others)]
        return [time.perf_counter() - self._begun - self._spent, self._spent]

    # ------------------------------------------------------------------------------------------------------- reports
    def rows(self):
        """Per test a dict: test, assertions, tolerances, largest_error (of |actual - expected|), passed and caught (fault:
        assertions), attention: None, or of the assertions about known attention assertions, justified, ratio, rows and
        of_rows (queries that were asked about, of those of the call), passed, caught; attention_not_asked: None, or why
        attention is None. Those that let most through first."""
        rows = []
        for test, records in self.tests.items():
            known = [record.known for record in records if record.known]
            fewest = min(known, key=lambda says: says["rows"] / says["of_rows"], default=None)
            attention = {"assertions": len(known), "justified": max(says["justified"] for says in known),
                         "ratio": max(says["ratio"] for says in known), "rows": fewest["rows"], "of_rows": fewest["of_rows"],
                         **{answer: _counted(says[answer] for says in known) for answer in ("passed", "caught")}
                         } if known else None
            rows.append({"test": test, "assertions": len(records),
                         "tolerances": list(dict.fromkeys(record.tolerance for record in records)),
                         "largest_error": max((r.needed for r in records if r.needed is not None), default=None),
                         "passed": _counted(record.passed for record in records),
                         "caught": _counted(record.caught for record in records), "attention": attention,
                         "attention_not_asked": None if known else records[0].attention or "not asked"})
        return sorted(rows, key=lambda row: (-sum(row["passed"].values()) / row["assertions"], row["test"]))

    def write_json(self, path):
        """What the report shows, and seconds: of the run without the audit, and of the audit. null: no finite number."""
        run, audit = self._seconds()
        with open(path, "w", encoding="utf-8") as file:
            rows = self.rows()
            json.dump(_finite({"tests": rows, "attention": attention_counts(rows), "not_asked": sum(self.skipped.values()),
                               "not_asked_because": dict(self.not_asked.most_common()),
                               "seconds": {"run": run, "audit": audit}}), file, indent=1, allow_nan=False)

    def lines(self):
        """What the report says, line by line."""
        rows = self.rows()
        if not rows:
            yield "no assertion about arrays of floats was asked again"
        shown = [row for row in rows if row["passed"] or row["attention"] and row["attention"]["passed"]]
        for row in shown:
            yield (f"{row['test']}: {_faults_text(row['passed'], row['assertions'])}; {', '.join(row['tolerances'])}; largest "
                   f"error {_number_text(row['largest_error'])}")
            known = row["attention"]
            if known:
                yield (f"    of attention: {_faults_text(known['passed'], known['assertions'])}; the data explain errors up to "
                       f"{_number_text(known['justified'])}{_part_text(known)}")
        if rows:
            yield (f"{len(shown)} of {len(rows)} tests let some of {len(FAULTS)} faults through; "
                   f"{sum(row['assertions'] for row in rows)} assertions were asked again")
            yield attention_text(rows)
        if self.skipped:
            yield f"{sum(self.skipped.values())} further assertions were not asked again: --kvcheck-audit-limit"
        if self.not_asked:
            reasons = ", ".join(f"{reason} ({count})" for reason, count in self.not_asked.most_common())
            yield f"{sum(self.not_asked.values())} assertions are not asked again: {reasons}"
        if self.broken:
            yield f"{len(self.broken)} assertions could not be asked again: {self.broken[0]}"

    def write_summary(self, reporter):
        reporter.section(TITLE)
        for line in self.lines():
            reporter.write_line(line)

    def markdown(self):
        """The same for a page that takes Markdown: as it stands, and no longer than a summary may be."""
        lines, size = [], 0
        for line in self.lines():
            size += len(line.encode()) + 1
            if size > MOST_MARKDOWN_BYTES:
                lines.append("...")
                break
            lines.append(line)
        text = "\n".join(lines)
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
        return f"### {TITLE}\n\n{fence}text\n{text}\n{fence}\n"

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
                  f"{row['attention']['rows']} of {row['attention']['of_rows']}",
                  *_cells(row["attention"], OF_ATTENTION)] for row in known]
        note = ("Assertions about the output of a scaled_dot_product_attention of the test, asked about the answers that "
                "`kvcheck faults` makes of the same inputs, as far as the bound tells them from right ones. Explained: the "
                "largest |actual - expected| of two right answers of these types, by the bound of kernels of which nothing "
                "is known; a tolerance above it admits more than rounding. Error/bound: of the output that was judged. Of large "
                "calls the last queries were asked about. "
                f"{attention_text(rows).capitalize()}.")
        report.add_table("Audit of attention", note,
                         ["test", "tolerance", "largest error", "explained", "error/bound", "queries", *OF_ATTENTION], table)


def attention_counts(rows):
    """Of rows(): how many tests were asked about faults of attention, and why the others were not."""
    reasons = collections.Counter(row["attention_not_asked"] for row in rows if not row["attention"])
    return {"asked": sum(bool(row["attention"]) for row in rows), "tests": len(rows), "not_asked": dict(reasons.most_common())}


def attention_text(rows):
    """attention_counts in a sentence, which a table of faults that were all caught needs beside it."""
    counts = attention_counts(rows)
    reasons = "; ".join(f"{count}: {reason}" for reason, count in counts["not_asked"].items())
    return f"faults of attention: asked of {counts['asked']} of {counts['tests']} tests{'; ' if reasons else ''}{reasons}"


def _part_text(known):
    return "" if known["rows"] == known["of_rows"] else f", by the last {known['rows']} of {known['of_rows']} queries"


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
    """The tolerance as the call has it: "atol=0.015 rtol=0.01"; "default" where it names none. arguments: without the
    first; behind the second one every function of TARGETS that takes more by place has rtol and atol."""
    given = {**dict(zip(("rtol", "atol"), arguments[1:])), **keywords}
    return " ".join(f"{name}={given[name]}" for name in ("atol", "rtol") if given.get(name) is not None) or "default"


def _finite(x):
    """x with None for what JSON has no number for."""
    if isinstance(x, dict):
        return {key: _finite(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(value) for value in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def _largest_error(actual, expected):
    """Of |actual - expected|, where both have numbers in the same places; None: it has none."""
    from ._arrays import of, widened
    pairs = zip([leaf for leaf, _ in leaves(actual)], [leaf for leaf, _ in leaves(expected)])
    if hasattr(actual, "shape"):
        pairs = [(actual, expected)]
    errors = []
    for x, y in pairs:
        try:
            errors.append(float(np.nanmax(np.abs(widened(*of(x, "actual")) - widened(*of(y, "expected"))))))
        except (TypeError, ValueError, RuntimeError):  # kvcheck.Error among them
            continue
    return max((error for error in errors if not math.isnan(error)), default=None)


def _number_text(number):
    return "-" if number is None else f"{number:.2g}"
