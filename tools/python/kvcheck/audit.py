"""Which faults would a suite's tolerances let through? Every torch.testing.assert_close, torch.allclose,
numpy.testing.assert_allclose, numpy.allclose and mlx.core.allclose that passes while a test runs is asked again, by its own function and
with its own tolerance, about a copy of `actual` with a fault in it. What still passes would not have been noticed.

A fault that leaves `actual` as it is (zeros of zeros) is not asked. What a test shows of itself is its own question
alone: that a fault passes says that the assertion cannot see it, and not that the kernel has it.
"""
import collections
import contextlib
import functools
import sys
import time

import numpy as np


def _rows(x):
    return x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(1, -1)


def _zeros(x, m):
    return m.zeros_like(x)


def _garbage_row(x, m):
    """One row of the last axis is that of another one, its elements in reverse."""
    y = m.copy(x)
    rows = m.rows(y)
    rows[len(rows) // 2] = m.flip(rows[len(rows) // 2 - 1])
    return y


def _one_element(x, m):
    """The largest element is replaced by 0."""
    y = m.copy(x)
    flat = m.flat(y)
    flat[m.argmax_abs(flat)] = 0
    return y


def _scaled(x, m):
    return m.like(m.wide(x) * 0.72, x)


def _shifted(x, m):
    """The rows are those of their neighbours."""
    return m.roll_rows(x)


def _noise(x, m):
    """Random numbers of the same mean square."""
    return m.like(m.noise(x), x)


def _sign_of_a_head(x, m):
    """The sign is turned in one slice of the axis before the rows (heads of (B, H, L, D)), or in half of the elements."""
    y = m.copy(x)
    if y.ndim >= 3:
        axis = y.ndim - 3
        index = tuple(slice(None) for _ in range(axis)) + (y.shape[axis] // 2,)
        y[index] = -y[index]
    else:
        flat = m.flat(y)
        flat[len(flat) // 2:] = -flat[len(flat) // 2:]
    return y


FAULTS = {
    "all zero": _zeros,
    "random, same norm": _noise,
    "one head's sign": _sign_of_a_head,
    "rows shifted by one": _shifted,
    "times 0.72": _scaled,
    "one row garbage": _garbage_row,
    "one element 0": _one_element,
}


class _Numpy:
    zeros_like = staticmethod(np.zeros_like)
    copy = staticmethod(np.array)
    flip = staticmethod(lambda x: x[::-1].copy())
    rows = staticmethod(_rows)
    flat = staticmethod(lambda x: x.reshape(-1))
    wide = staticmethod(lambda x: np.asarray(x, np.float64))

    @staticmethod
    def like(y, x):
        return y.astype(x.dtype)

    @staticmethod
    def argmax_abs(flat):
        return int(np.argmax(np.abs(np.nan_to_num(np.asarray(flat, np.float64)))))

    @staticmethod
    def roll_rows(x):
        return np.roll(x, 1, axis=-2) if x.ndim > 1 else np.roll(x, 1)

    @staticmethod
    def noise(x):
        wide = np.nan_to_num(np.asarray(x, np.float64))
        return np.random.default_rng(1).standard_normal(x.shape) * np.sqrt(np.mean(wide * wide))

    @staticmethod
    def differs(y, x):
        return not np.array_equal(np.asarray(y, np.float64), np.asarray(x, np.float64), equal_nan=True)


class _Torch:
    def __init__(self, torch):
        self.torch = torch
        self.zeros_like = torch.zeros_like

    def copy(self, x):
        return x.clone(memory_format=self.torch.contiguous_format)

    def flip(self, x):
        return x.flip(0)

    rows = staticmethod(_rows)

    def flat(self, x):
        return x.reshape(-1)

    def wide(self, x):
        return x.double()

    def like(self, y, x):
        return y.to(x.dtype)

    def argmax_abs(self, flat):
        return int(self.torch.argmax(self.torch.nan_to_num(flat.double()).abs()))

    def roll_rows(self, x):
        return self.torch.roll(x, 1, dims=-2 if x.ndim > 1 else 0)

    def noise(self, x):
        wide = self.torch.nan_to_num(x.double())
        # A generator of its own: the test's random numbers stay what they were.
        generator = self.torch.Generator().manual_seed(1)
        noise = self.torch.randn(x.shape, generator=generator, dtype=self.torch.float64).to(x.device)
        return noise * wide.square().mean().sqrt()

    def differs(self, y, x):
        return not self.torch.equal(self.torch.nan_to_num(y.double()), self.torch.nan_to_num(x.double()))


def _library_of(x):
    """(operations, array that they take, how to give it back to the assertion), or None for what is no array of floats."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        fits = x.is_floating_point() and x.layout == torch.strided and x.device.type != "meta" and x.numel() > 1
        return (_Torch(torch), x.detach(), lambda y: y) if fits else None
    mx = sys.modules.get("mlx.core")
    if mx is not None and isinstance(x, mx.array):
        if x.size < 2 or not mx.issubdtype(x.dtype, mx.floating):
            return None
        return _Numpy, np.array(x.astype(mx.float32)), lambda y: mx.array(np.ascontiguousarray(y)).astype(x.dtype)
    if isinstance(x, np.ndarray) and x.size > 1 and (np.issubdtype(x.dtype, np.floating) or x.dtype.name == "bfloat16"):
        return _Numpy, x, lambda y: y
    return None


def with_faults(x):
    """(name, copy of x with the fault) of every fault that changes the array; nothing for what is no array of floats."""
    found = _library_of(x)
    if found is None:
        return
    library, plain, back = found
    for name, fault in FAULTS.items():
        made = fault(library.copy(plain) if plain.ndim else plain, library)
        if library.differs(made, plain):
            yield name, back(made)


class Assertion:
    """One assertion of a test that passed, and what passed in its place."""

    def __init__(self, function, tolerance, shape, needed):
        self.function, self.tolerance, self.shape, self.needed = function, tolerance, shape, needed
        self.caught, self.passed = [], []


# (module, attribute, whether it returns the answer in place of raising)
TARGETS = (("torch.testing", "assert_close", False), ("torch", "allclose", True),
           ("numpy.testing", "assert_allclose", False), ("numpy", "allclose", True), ("mlx.core", "allclose", True))


class Audit:
    """limit: how many times as long as a test its assertions may be asked again."""

    def __init__(self, limit=2.0):
        self.limit = limit
        self.tests = collections.defaultdict(list)
        self.skipped = collections.Counter()
        self._test = None
        self._inside = False
        self._begun = self._spent = 0.0

    @contextlib.contextmanager
    def watching(self, test):
        """While a test runs. Libraries that are loaded later are watched from the next test on."""
        self._test, self._begun, self._spent = test, time.perf_counter(), 0.0
        replaced = []
        try:
            for module_name, name, answers in TARGETS:
                module = sys.modules.get(module_name)
                original = getattr(module, name, None)
                if original is None:
                    continue
                watched = self._watched(original, f"{module_name}.{name}", answers)
                # The name that a test module imported is another reference to the same function.
                for holder in [*sys.modules.values()]:
                    try:
                        held = [key for key, value in vars(holder).items() if value is original]
                    except (TypeError, RuntimeError):
                        continue
                    for key in held:
                        setattr(holder, key, watched)
                        replaced.append((holder, key, original))
            yield
        finally:
            for holder, key, original in replaced:
                setattr(holder, key, original)
            self._test = None

    def _watched(self, original, label, answers):
        @functools.wraps(original)
        def watched(actual, *arguments, **keywords):
            __tracebackhide__ = True
            result = original(actual, *arguments, **keywords)
            if not self._inside and (not answers or bool(result)):
                self._ask_again(original, label, answers, actual, arguments, keywords)
            return result
        return watched

    def _ask_again(self, original, label, answers, actual, arguments, keywords):
        begun = time.perf_counter()
        if self._spent > self.limit * max(begun - self._begun - self._spent, 0.01):
            self.skipped[self._test] += 1
            return
        self._inside = True
        try:
            expected = arguments[0] if arguments else keywords.get("expected", keywords.get("other", keywords.get(
                "desired", keywords.get("b"))))
            record = None
            for name, faulty in with_faults(actual):
                if record is None:
                    record = Assertion(label, _tolerance_text(arguments, keywords), tuple(actual.shape),
                                       _largest_error(actual, expected))
                (record.passed if _passes(original, answers, faulty, arguments, keywords) else record.caught).append(name)
            if record is not None:
                self.tests[self._test].append(record)
        finally:
            self._inside = False
            self._spent += time.perf_counter() - begun

    # ------------------------------------------------------------------------------------------------------- reports
    def rows(self):
        """Per test: (test, assertions, tolerances, faults that some assertion let through with how many of them did,
        largest |actual - expected|)."""
        rows = []
        for test, records in self.tests.items():
            passed = collections.Counter(name for record in records for name in record.passed)
            tolerances = collections.Counter(record.tolerance for record in records)
            needed = [record.needed for record in records if record.needed is not None]
            rows.append((test, len(records), ", ".join(tolerances), passed, max(needed) if needed else None))
        return sorted(rows, key=lambda row: (-sum(row[3].values()) / row[1], row[0]))

    def write_summary(self, reporter):
        rows = self.rows()
        reporter.section("kvcheck audit: faults that the tolerances let through")
        if not rows:
            reporter.write_line("no assertion about arrays of floats passed")
            return
        shown = [row for row in rows if row[3]]
        for test, count, tolerances, passed, needed in shown:
            faults = ", ".join(f"{name} ({n} of {count})" for name, n in passed.most_common())
            reporter.write_line(f"{test}: {faults}; {tolerances}; largest error {_number_text(needed)}")
        reporter.write_line(f"{len(shown)} of {len(rows)} tests let some of {len(FAULTS)} faults through; "
                            f"{sum(row[1] for row in rows)} assertions were asked again")
        if self.skipped:
            reporter.write_line(f"{sum(self.skipped.values())} further assertions were not asked again: "
                                "--kvcheck-audit-limit")

    def add_to(self, report):
        table = []
        for test, count, tolerances, passed, needed in self.rows():
            cells = [f"!passes ({passed[name]} of {count})" if passed[name] else
                     "=caught" if any(name in record.caught for record in self.tests[test]) else "-" for name in FAULTS]
            table.append([test, str(count), tolerances, _number_text(needed), *cells])
        note = ("Every assertion that passed was asked again with a fault in `actual`. 'passes': the assertion would not "
                "have noticed it. Largest error: of |actual - expected|, what the data needed of an absolute tolerance.")
        report.add_table("Audit of tolerances", note,
                         ["test", "assertions", "tolerance", "largest error", *FAULTS], table)


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
    try:
        def wide(x):
            if type(x).__module__.startswith("mlx"):
                x = np.array(x.astype(sys.modules["mlx.core"].float32))
            return np.asarray(x.detach().cpu().double().numpy() if hasattr(x, "detach") else x, np.float64)
        with np.errstate(all="ignore"):
            return float(np.nanmax(np.abs(wide(actual) - wide(expected))))
    except (TypeError, ValueError, RuntimeError):
        return None


def _number_text(number):
    return "-" if number is None else f"{number:.2g}"
