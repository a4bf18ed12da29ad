"""Whatever a call holds, it gives a verdict or raises; nothing crashes, and what is refused is named."""
import ctypes
import os

import numpy as np
import pytest
from attention import attention, tensors

import kvcheck
from kvcheck import formats

PLAN = "plain_f32"
# asan.sh draws more.
CALLS = int(os.environ.get("KVCHECK_HOSTILE_CALLS", "2000"))


def refused(match, **changes):
    q, k, v = tensors()
    call = {"out": attention(q, k, v), "q": q, "k": k, "v": v, "plan": PLAN, **changes}
    with pytest.raises(kvcheck.Error, match=match or None) as raised:
        kvcheck.judge_attention(call.pop("out"), call.pop("q"), call.pop("k"), call.pop("v"), **call)
    return raised.value


def test_what_is_wrong_is_named():
    q, k, v = tensors()
    assert refused("array 'q'", q=q[0]).code == "illegal case"
    assert "k" in str(refused("", k=k[:, :, :, :8]))
    refused("layout", layout="bhsx")
    refused("layout", layout="")
    refused("is no array", q="q")
    refused("is no array", q={"a": 1})
    refused("not understood", q=q.astype(complex))
    refused("not understood", q=np.array([[[[object()]]]]))
    refused("", plan="no_such_plan")
    refused("", profile="masked_row=sometimes")
    refused("mask", mask=np.ones((3, 5), bool))
    refused("mask", mask=np.ones((1, 1, 1, 1, 1), bool))
    refused("threads", threads=0)
    refused("rows", rows=-1)
    refused("", scale=float("nan"))
    refused("", window=0)
    refused("", softcap=-1.0)
    refused("k_scale", k_scale=0.5)
    refused("plan=None", plan=None)
    refused("profile=None", profile=None)
    refused("softcap=array", softcap=np.ones(4))
    refused("scale='a'", scale="a")
    for window in ("a", 2.7, (2.7, 0)):
        refused("window=.*whole number", window=window)
    refused("window=0: a number counts tokens with the query's own.*\\(0, 0\\)", window=0)
    for window in ((3, -2), (3,), (1, 2, 3)):
        refused("window=\\(", window=window)
    refused("3 tokens after the query's own.*mask of bools", window=(15, 3))
    refused("other values than 0 and 1", mask=np.arange(9 * 17, dtype="i4").reshape(9, 17))
    refused("lse_layout 'bsh' fits", lse=np.zeros((2, 9, 4), "f4"))
    refused("no order of its axes fits", lse=np.zeros((2, 4, 8), "f4"))
    refused("array 'lse': has type int32", lse=np.zeros((2, 4, 9), "i4"))
    refused("seed=-1", seed=-1)
    refused("threads=1.0", threads=1.0)
    refused("causal=array", causal=np.ones(3))
    refused("array 'out': None", out=None)
    refused("array 'k': None", k=None)
    refused("masked array", mask=np.ma.masked_array(np.ones((9, 17), bool), mask=np.eye(9, 17)))
    refused("cu_seqlens_q", cu_seqlens_q=np.int32([0, 1]))
    refused("", causal="upwards")
    refused("", q=np.zeros((2, 0, 9, 16), "f4"))
    refused("", q=np.zeros((2, 4, 0, 16), "f4"), out=np.zeros((2, 4, 0, 16), "f4"))


def test_a_bool_of_numpy_is_one():
    q, k, v = tensors()
    out = attention(q, k, v, causal=True)
    assert kvcheck.judge_attention(out, q, k, v, plan=PLAN, causal=np.True_).passed
    assert not kvcheck.judge_attention(out, q, k, v, plan=PLAN, causal=np.False_).passed


def test_tables_that_point_outside_are_refused():
    q, k, v = tensors(b=1)
    rows = [x[0].swapaxes(0, 1) for x in (attention(q, k, v), q, k, v)]
    for q_starts, k_starts in (([0, 10], [0, 17]), ([0, 9], [0, 18]), ([0, -1], [0, 17]), ([5, 9], [0, 17]), ([0], [0]),
                               ([0, 9, 9], [0, 17]), ([0, 2**40], [0, 17])):
        with pytest.raises(kvcheck.Error):
            kvcheck.judge_attention(*rows, layout="shd", plan=PLAN, cu_seqlens_q=np.int64(q_starts),
                                    cu_seqlens_k=np.int64(k_starts))
    with pytest.raises(kvcheck.Error, match="type"):
        kvcheck.judge_attention(*rows, layout="shd", plan=PLAN, cu_seqlens_q=np.float32([0, 9]),
                                cu_seqlens_k=np.int32([0, 17]))


class Lies:
    """Says that it speaks DLPack, or that it is an array."""

    def __init__(self, what):
        self.what = what

    def __dlpack__(self, **_):
        if isinstance(self.what, Exception):
            raise self.what
        return self.what

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("what", [None, 7, "capsule", b"bytes", RuntimeError("no"), KeyError("x"), [1, 2]])
def test_objects_that_lie_are_refused(what):
    refused("is no array", q=Lies(what))


class Tensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Capsule:
    """Speaks DLPack, and says of an array of f32 what it is told."""

    def __init__(self, x, **says):
        self.x = np.ascontiguousarray(x)
        self.shape = (ctypes.c_int64 * max(x.ndim, 1))(*x.shape)
        self.tensor = Tensor(**{"data": self.x.ctypes.data, "device_type": 1, "ndim": x.ndim, "code": 2, "bits": 32,
                                "lanes": 1, "shape": self.shape, **says})

    def __dlpack__(self, **_):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)

    def __dlpack_device__(self):
        return (self.tensor.device_type, self.tensor.device_id)


CAPSULES = [{"ndim": -1}, {"ndim": 1000}, {"lanes": 4}, {"bits": 7}, {"bits": 0}, {"code": 77},
            {"device_type": 2}, {"device_type": -5}]


@pytest.mark.parametrize("says", CAPSULES, ids=str)
def test_capsules_of_dlpack_that_lie_are_refused(says):
    q, k, v = tensors()
    out = attention(q, k, v)
    assert kvcheck.judge_attention(Capsule(out), Capsule(q), k, v, plan=PLAN).passed
    refused("", q=Capsule(q, **says))
    refused("", out=Capsule(out, **says))


def drawn_call(random):
    """A call of judge_attention that may be right, nearly right or nonsense."""
    q, k, v = tensors(b=int(random.integers(1, 3)), l=int(random.integers(1, 5)), t=int(random.integers(1, 6)), d=8)
    arrays = {"out": attention(q, k, v), "q": q, "k": k, "v": v}

    def spoil(x):
        choice = random.integers(0, 12) if isinstance(x, np.ndarray) else -1
        if choice == 0:
            return x[..., ::-1]
        if choice == 1:
            return np.broadcast_to(x[..., :1], x.shape)
        if choice == 2:
            return x[..., ::2]
        if choice == 3:
            return x.astype(random.choice(["f2", "f8", "i1", "u2", "?", ">f4"]))
        if choice == 4:
            return x.reshape(-1)
        if choice == 5:
            return x[:0]
        if choice == 6:
            return np.full_like(x, random.choice([np.nan, np.inf, 3e38, 1e-45]))
        if choice == 7:
            return np.lib.stride_tricks.as_strided(x, x.shape, (0, 0, 0, 0))
        if choice == 8:
            return [None, "q", 3.5, [[1.0]], b"xx"][random.integers(0, 5)]
        if choice == 9 and x.ndim > 2:
            return x.swapaxes(1, 2)
        if choice == 10 and x.dtype == np.float32:
            return Capsule(x, **CAPSULES[random.integers(0, len(CAPSULES))])
        return x

    for name in random.choice(list(arrays), 0 if random.random() < 0.4 else random.integers(1, 3)):
        arrays[name] = spoil(arrays[name])
    keywords = {"plan": random.choice([PLAN, "stranger", "flash_attention_3", "nothing", "p=f3", ""])
                if random.random() < 0.3 else PLAN}
    options = {"causal": [True, False, "top_left", 3], "window": [1, 4, -1, 2**40, 0, (3, 0), (-1, -1), (0, 2)], "scale": [0.1, 0.0, -1, np.inf],
               "softcap": [1.0, np.nan, 1e-320], "sinks": [np.zeros(4, "f4"), np.zeros(3, "f4"), [1, 2, 3, 4]],
               "mask": [np.ones((5, 5), bool), np.zeros(q.shape[2:3] + k.shape[2:3], bool), np.zeros((1, 1), "f4"), "none",
                        "window:2", "bool:LT", "left_pad:0", "left_pad:-1"],
               "layout": ["bshd", "hsd", "shd", "bbbb", "dshb"], "lse": [np.zeros(q.shape[:3], "f4"), np.zeros(1)],
               "k_scale": [0.5, np.ones(2, "f4"), np.ones(20), np.float32(np.nan)], "rows": [1, 2, 10**9],
               "kv_lens": [np.int32([1] * q.shape[0]), np.int32([-5]), np.int64([2**62] * q.shape[0])],
               "block_table": [np.zeros((q.shape[0], 2), "i4"), np.full((1, 1), 99, "i8")],
               "block_starts": [np.int32([0, 1]), np.int64([0, -1, 2**50])],
               "cu_seqlens_q": [np.int32([0, 1]), np.int32([3, 2, 1])], "seed": [0, 2**64 - 1],
               "profile": ["masked_row=nan", "x=y"], "threads": [1, 3]}
    for name in random.choice(list(options), random.integers(0, 4), replace=False):
        keywords[name] = options[name][random.integers(0, len(options[name]))]
    return arrays, keywords


def test_drawn_calls_give_a_verdict_or_raise():
    random = np.random.default_rng(27)
    outcomes, refusals = set(), 0
    for number in range(CALLS):
        arrays, keywords = drawn_call(random)
        try:
            verdict = kvcheck.judge_attention(*arrays.values(), **{"threads": 1, **keywords})
        except (kvcheck.Error, TypeError, OverflowError, ValueError):
            refusals += 1
            continue
        outcomes.add(verdict.outcome)
        assert str(verdict) and verdict.to_json() and verdict._repr_html_(), number
    # The draw reaches what it is for.
    assert outcomes >= {"PASS", "FAIL", "MISTRUSTED"} and CALLS / 10 < refusals < 0.9 * CALLS


def test_drawn_rows_give_codes_or_raise():
    random = np.random.default_rng(28)
    names = formats.names()
    made = 0
    for _ in range(500):
        format = names[random.integers(0, len(names))] if random.random() < 0.8 else random.choice(
            ["affine:9:g64:f16", "", "fp8:e4m3fn:s0:bf16", "q8_0 ", "affine", "mxfp4:f32:f32", "é"])
        x = random.standard_normal((random.integers(0, 3), random.choice([1, 31, 64, 256, 512]))).astype("f4")
        try:
            planes = kvcheck.encode(x, format, threads=1)
            kvcheck.decode({name: plane[:, :-1] if random.random() < 0.2 else plane for name, plane in planes.items()},
                           format, threads=1)
            made += 1
        except (kvcheck.Error, ValueError):
            continue
    assert made > 50
