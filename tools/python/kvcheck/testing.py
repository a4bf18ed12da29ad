"""Assertions for tests. A failure's text is the verdict; the failing inputs are saved beside, so that

    kvcheck run --data kvcheck-failures/FILE.h5#case

judges them again. The folder is that of the environment variable KVCHECK_FAILURES; empty: nothing is saved. A test that
fails again replaces its files; beyond MOST_FILES files, or MOST_BYTES of them, no more are saved, and the failure says so.
What a verdict says beside PASS is a kvcheck.KvcheckWarning.
"""
import collections
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np

from . import _arrays, _attention, _core, formats
from ._errors import Error, KvcheckWarning
from ._listeners import listeners as listeners  # called with (name of the check, Verdict): the pytest plugin's report

__tracebackhide__ = True  # of pytest: a failure is shown at the test's own line

# Of the folder of failures. What is not saved stays in memory alone: its case and seed are in the text of the failure.
MOST_FILES = 100
MOST_BYTES = 1 << 30
_saved = collections.Counter()  # questions by the name of their test


def __getattr__(name):
    # What an author of a cache derives from.
    if name in ("Adapter", "Refused", "Unsupported"):
        import kvcheck_adapter
        return getattr(kvcheck_adapter, name)
    raise AttributeError(f"module 'kvcheck.testing' has no attribute '{name}'")


def _place(arrays):
    """Where the arrays of a failing question are saved, or None, and why not."""
    folder = os.environ.get("KVCHECK_FAILURES", "kvcheck-failures")
    if not folder:
        return None, None
    test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" (")[0]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", test).strip("-.") or f"failure-{os.getpid()}"
    if len(name) > 120:
        name = f"{name[-111:].strip('-.')}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
    _saved[name] += 1
    path = os.path.join(folder, f"{name}-{_saved[name]}.h5")
    size, others, other_bytes = _arrays.bytes_of(arrays), 0, 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".h5") and not entry.name.startswith(f"{name}-{_saved[name]}."):
                    others += 1
                    other_bytes += entry.stat().st_size
    except OSError:  # it is not there, or not to be read: whoever writes says so
        pass
    if others < MOST_FILES and other_bytes + size <= MOST_BYTES:
        return path, None
    return None, (f"the inputs of {size / 1e6:.3g} MB were not saved: {folder} has {others} files of {other_bytes / 1e6:.3g} MB, "
                  f"and holds at most {MOST_FILES} files and {MOST_BYTES / 1e6:.0f} MB; remove what is no longer needed, or name "
                  "another folder with KVCHECK_FAILURES")


def _judged(arrays, judge, name, msg, if_mistrusted=None):
    """Judges with a place to save to; raises unless it passes, and warns of what a verdict says beside PASS. Called by
    the assertion itself, whose caller the warning names. if_mistrusted: what proves more where nothing was proved."""
    path, reason = _place(arrays)
    try:
        verdict = judge(path)
    except Error as error:
        # A question that is put anew without a file has the same answer.
        if path is None or error.code != "unreadable file":
            raise
        reason = f"the inputs were not saved: {error}"
        verdict = judge(None)
    for listener in listeners:
        listener(name, verdict)
    if verdict.passed:
        for text in verdict.warnings:
            warnings.warn(f"{name}: {text}", KvcheckWarning, stacklevel=3)
        return verdict
    text = str(verdict)
    for note in (if_mistrusted if verdict.outcome == "MISTRUSTED" else None, reason):
        if note:
            text += f"  note         {note}\n"
    if msg is not None:
        text = msg(text) if callable(msg) else f"{msg}\n{text}"
    raise AssertionError(text)


def assert_attention_close(out, q, k, v, *, mask=None, causal=False, window=None, scale=None, softcap=None, sinks=None,
                           lse=None, k_scale=None, v_scale=None, layout="bhsd", plan=_attention.DEFAULT_PLAN,
                           strict=False, profile="", alibi_slopes=None, lse_base2=False, lse_layout=None,
                           cu_seqlens_q=None, cu_seqlens_k=None, cu_seqlens_q_padded=None, cu_seqlens_k_padded=None,
                           block_table=None, block_starts=None, kv_lens=None,
                           rule="statistics", must_see=None, rows=None, seed=1, threads=None, device=None, msg=None):
    """Raises AssertionError unless every element of `out` (and of `lse`) is as near to the exact value as `plan` explains.

    Arguments, shapes and errors: kvcheck.judge_attention. A verdict that proves nothing (MISTRUSTED) is no pass.
    msg: a text before that of the verdict, or a function of it. Returns the Verdict.
    """
    arrays = _attention.attention_arrays(
        out, q, k, v, mask=mask, sinks=sinks, alibi_slopes=alibi_slopes, lse=lse, k_scale=k_scale, v_scale=v_scale,
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, cu_seqlens_q_padded=cu_seqlens_q_padded,
        cu_seqlens_k_padded=cu_seqlens_k_padded, block_table=block_table,
        block_starts=block_starts, kv_lens=kv_lens)
    words = _attention.attention_words(mask=mask, causal=causal, window=window, scale=scale, softcap=softcap,
                                       layout=layout, lse_layout=lse_layout, lse_base2=lse_base2)
    sums = _attention.device_sums(q, k, v, layout, device, k_scale, v_scale, cu_seqlens_q, block_table)

    def judge(path):
        asked = _attention.settings(plan, profile, strict, rule, must_see, threads, rows, seed, path)
        return _core.judge_attention(arrays, words, asked, sums)

    return _judged(arrays, judge, "attention", msg)


def assert_codec_close(codes, x, *, format, exact=False, profile="", strict=False, threads=None, msg=None):
    """Raises AssertionError unless stored rows are what `format` keeps of x.

    codes: the planes (a dict, or the one array of a format with one plane), or decoded values of x's shape. x (..., d).
    exact=False: what the codes mean lies within the format's own error of x, as `kvcheck compare --tol codec:FORMAT` judges
        it: a code beside the right one fails. (Behind a rotation an error of one code reaches all channels of its block, and
        the values prove nothing: MISTRUSTED, where exact=True proves it.) Where libraries differ any of their encoders may have made them, unless
        `profile` names one ("encode=mlx_gpu"). exact=True: the codes equal, bit for bit, what the format's encoder makes of
        x, in its own form or that of `profile`.
    """
    given, kind = _arrays.of(x, "x")
    given = np.asarray(given)
    if given.ndim < 1 or given.size == 0:
        raise Error("array 'x': no rows", "illegal case", "array 'x'")
    d = given.shape[-1]
    rows = given.size // d
    known = formats.facts(format)
    inputs = {"x": (given.reshape(-1, d), kind)}
    is_decoded = not isinstance(codes, dict) and _is_decoded(codes, given, known)
    if is_decoded and exact and not known["plain"]:
        raise Error("exact=True compares planes: give them as a dict", "usage", "codes")
    if is_decoded and not exact:
        value, of = _arrays.of(codes, "codes")
        outputs = {"y": (np.asarray(value).reshape(-1, d), of)}
    else:
        outputs = _planes(codes, given.shape[:-1], known, format)
    if known["plain"] and not is_decoded and not exact:
        y = _core.decode(outputs, format, kind, d, _attention.settings(profile=profile, threads=threads))
        outputs = {"y": (y[0].view(f"u{y[0].size // max(given.size, 1)}").reshape(-1, d), y[1])}
    short = {long: short for short, long in _arrays.SHORT_NAMES.items()}.get(kind, kind)

    def judge(path):
        asked = _attention.settings(profile=profile, strict=strict, threads=threads, save=path)
        if not exact:
            return _core.judge_stored_rows(inputs, outputs, format, asked)
        return _core.judge_case(f"codec op=encode format={format} x={short} rows={rows} d={d} data=file", inputs, outputs,
                                asked)

    bits = None if exact or is_decoded else "exact=True compares the codes bit by bit, which proves what the values do not"
    return _judged({**inputs, **outputs}, judge, "codec", msg, bits)


def _is_decoded(codes, x, known):
    """Whether an array is values of x's shape, of any type of floats, and not the one plane of a format."""
    value, kind = _arrays.of(codes, "codes")
    is_plane = known["plain"] and kind == known["rows"]
    return np.shape(value) == x.shape and not is_plane and kind in ("float64", "float32", "float16", "bfloat16")


def _planes(codes, leading, known, format):
    """The planes of rows whose axes are `leading`, each (rows, elements of a row). Raises AssertionError for another
    number of rows, kvcheck.Error for names that the format has not."""
    names = known["planes"]
    if not isinstance(codes, dict):
        if len(names) != 1:
            raise Error(f"format '{format}' has the planes {', '.join(names)}: give a dict", "missing data", "codes")
        codes = {names[0]: codes}
    rows = int(np.prod(leading))
    planes = {}
    for name, (x, kind) in _arrays.held(codes).items():
        if name not in names:
            raise Error(f"format '{format}' has the planes {', '.join(names)}, and no '{name}'", "usage", "codes")
        plane = np.asarray(x)
        # One number for each row may have no axis of its own, and all rows may follow each other.
        is_flat = plane.shape == tuple(leading) or plane.ndim == 1 and plane.size and plane.size % rows == 0
        if not is_flat and (plane.ndim < 1 or int(np.prod(plane.shape[:-1])) != rows):
            there = int(np.prod(plane.shape[:-1])) if plane.ndim else 0
            raise AssertionError(f"plane '{name}' of shape {plane.shape} has {there} rows, where x has {rows}")
        planes[name] = (plane.reshape(rows, -1), kind)
    return planes


def assert_close(actual, expected, *, rule=None, rtol=None, atol=None, equal_nan=False, check_dtype=True, strict=False,
                 msg=None, threads=None, **ignored):
    """Raises AssertionError unless two arrays of one shape agree: torch.testing.assert_close, whose keywords it takes,
    with a verdict (worst element, ulp, where the failures are) in place of a percentage.

    rule: "exact", "ulp:2", "abs:2^-20,rel:0.001"; or rtol and atol: |actual - expected| <= atol + rtol |expected|,
        decided in exact arithmetic; not both. Neither: bit for bit. A tolerance above a tenth of the data proves
        nothing, and is MISTRUSTED. check_dtype=False compares the values of two types in f64 (not of i64).
    """
    unknown = set(ignored) - {"allow_subclasses", "check_device", "check_layout", "check_stride"}
    if unknown:
        raise TypeError(f"assert_close has no argument {', '.join(sorted(unknown))}")
    if equal_nan:
        raise Error("NaN agrees with nothing here, but for equal bits under rule='exact'", "unsupported", "equal_nan")
    if rule is not None and not (rtol is None and atol is None):
        raise Error("rule and rtol or atol are two answers to one question: give one of them", "usage", "rule")
    if rule is None:
        rule = "exact" if rtol is None and atol is None else (
            f"abs:{_attention.number('atol', 0 if atol is None else atol, float)!r},"
            f"rel:{_attention.number('rtol', 0 if rtol is None else rtol, float)!r}")
    arrays = {"want": _arrays.of(expected, "expected"), "got": _arrays.of(actual, "actual")}
    kinds = {kind for _, kind in arrays.values()}
    if not check_dtype and len(kinds) == 2 and not kinds & {"int64", "uint64"}:
        # f64 holds every value of the other types.
        arrays = {name: (_arrays.widened(x, kind), "float64") for name, (x, kind) in arrays.items()}

    def judge(path):
        return _core.judge_arrays(arrays, rule, _attention.settings(strict=strict, threads=threads, save=path))

    return _judged(arrays, judge, "arrays", msg)


def assert_cache_correct(adapter, *arguments, cases=2000, seed=1, layouts=(), formats=(), python=sys.executable,
                         timeout=None):
    """Raises AssertionError unless a cache does what the contract says, in `cases` drawn traces of operations.

    adapter: a subclass of kvcheck.testing.Adapter in a module or file that can be imported (the cache under test is what
    it makes), or the path of such a file; it runs in a process of its own, whose crash or endless loop is a finding.
    arguments: texts for its constructor. layouts, formats: globs of what is drawn ("ring", "affine:*").
    A failure is shrunk, and written as a .case file that `kvcheck run` replays. The adapter's Python needs msgpack.
    Lengths: appends of a few tokens to caches of up to some 40; of 50 traces one appends up to 135 to caches of up to 240. So
        `cases` of 2000 have about 40 traces that see a buffer of 128 tokens grow, 200 have few, and none of any number sees
        one of 512: give the class the step self.setup.growth_tokens (1 to 16, drawn) here, or write a long trace as a case
        for `kvcheck run`.
    timeout: seconds for all of it. Errors: kvcheck.Error where the class cannot be reached from another process, or the
        time is over.
    """
    from ._adapters import command_of
    from ._command import program
    if python == sys.executable and importlib.util.find_spec("msgpack") is None:
        raise Error("an adapter speaks with kvcheck through msgpack, which is not installed here: pip install msgpack", "usage",
                    "assert_cache_correct")
    folder = os.environ.get("KVCHECK_FAILURES", "kvcheck-failures") or tempfile.mkdtemp(prefix="kvcheck-")
    command = [str(program()), "fuzz", "--kind", "cache", "--impl", command_of(adapter, arguments, python), "--cases",
               str(cases), "--seed", str(seed), "--out", folder]
    if os.environ.get("KVCHECK_THREADS") or os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
        command += ["-j", str(_attention.default_threads())]
    for option, globs in (("--layout", layouts), ("--format", formats)):
        for glob in globs:
            command += [option, glob]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise Error(f"{cases} cases were not judged within {error.timeout} s: give fewer, or more time", "unsupported",
                    "timeout") from None
    if done.returncode == 2:
        raise Error((done.stderr or done.stdout).strip(), "usage", "assert_cache_correct")
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout
