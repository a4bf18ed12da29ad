"""Arrays of torch and mlx, where they are installed; what a cache's adapter class is judged by."""
import importlib.util

import numpy as np
import pytest
from attention import attention, tensors

import kvcheck
from kvcheck.testing import assert_attention_close, assert_cache_correct

PLAN = "plain_f32"


@pytest.fixture(autouse=True)
def failures(tmp_path, monkeypatch):
    monkeypatch.setenv("KVCHECK_FAILURES", str(tmp_path / "failures"))


def test_torch_tensors_are_read_where_they_lie():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x) for x in tensors())
    out = torch.nn.functional.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    assert assert_attention_close(out, q.requires_grad_(), k, v, plan="torch_cpu_math").passed
    transposed = [x.detach().transpose(1, 2) for x in (out, q, k, v)]
    assert assert_attention_close(*transposed, layout="bshd", plan="torch_cpu_math").passed
    half = [x.detach().bfloat16() for x in (q, k, v)]
    low = torch.nn.functional.scaled_dot_product_attention(half[0], *(x.repeat_interleave(2, 1) for x in half[1:]))
    assert "q=bf16" in assert_attention_close(low, *half, plan="stranger").case
    with pytest.raises(AssertionError):
        assert_attention_close(low * 1.05, *half, plan="stranger")
    with pytest.raises(kvcheck.Error):
        kvcheck.judge_attention(out.to_sparse(), q, k, v)
    with pytest.raises(kvcheck.Error, match="meta"):
        kvcheck.judge_attention(out.to("meta"), q, k, v)


def test_tensors_without_memory_of_their_own_are_refused():
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode
    q, k, v = tensors()
    with FakeTensorMode():
        fake = torch.zeros(q.shape)
    with pytest.raises(kvcheck.Error, match="array 'out'"):
        kvcheck.judge_attention(fake, q, k, v)
    with pytest.raises(kvcheck.Error, match="array 'q'"):
        torch.vmap(lambda x: kvcheck.judge_attention(q[:1], x[None], k[:1], v[:1]))(torch.from_numpy(q))
    with pytest.raises(kvcheck.Error, match="quantized"):
        kvcheck.judge_attention(torch.quantize_per_tensor(torch.from_numpy(q), 0.1, 0, torch.qint8), q, k, v)


def test_fp8_of_torch_is_fp8():
    torch = pytest.importorskip("torch")
    q, k, v = tensors()
    codes = [torch.from_numpy(x * 3).to(torch.float8_e4m3fn) for x in (k, v)]
    out = attention(q, *(x.float().numpy() * np.float32(0.25) for x in codes))
    assert assert_attention_close(out, q, *codes, k_scale=0.25, v_scale=torch.tensor(0.25), plan="stranger").passed


def test_mlx_arrays_are_read():
    mx = pytest.importorskip("mlx.core")
    q, k, v = tensors()
    arrays = [mx.array(x) for x in (attention(q, k, v), q, k, v)]
    assert assert_attention_close(*arrays, plan=PLAN).passed
    low = [x.astype(mx.bfloat16) for x in arrays[1:]]
    out = mx.fast.scaled_dot_product_attention(*low, scale=16**-0.5)
    assert "q=bf16" in assert_attention_close(out, *low, plan="stranger").case


class Exported:
    """An array of a library that is not known by name."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **keywords):
        return self.x.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def test_whatever_speaks_dlpack_or_has_a_buffer_is_an_array():
    q, k, v = tensors()
    arrays = (attention(q, k, v), q, k, v)
    assert assert_attention_close(*(Exported(x) for x in arrays), plan=PLAN).passed
    assert assert_attention_close(*(memoryview(x) for x in arrays), plan=PLAN).passed


CACHE = """
from kvcheck.testing import Adapter, Unsupported
import numpy as np

class Plain(Adapter):
    name, version, kinds, off = "plain", "1", ("cache",), 0
    spaces = [{"kind": "cache", "layouts": ["linear"], "formats": ["f32"], "x": ["f32"], "same_format": True,
               "stored_as_given": True, "rows": "single", "padding": False, "operations": ["new", "append", "trim", "drop"]}]

    def new(self, layout, k, v, rows, padding):
        s = self.setup
        return [np.zeros((rows, s.kv_heads, 0, s.k_dim), "f4"), np.zeros((rows, s.kv_heads, 0, s.v_dim), "f4")]

    def append(self, cache, k, v):
        held = cache[0].shape[2]
        for stored, given in zip(cache, (k, v)):
            fits = given.shape[2] == k.shape[2] and given.dtype == stored.dtype
            if not fits or [given.shape[i] for i in (0, 1, 3)] != [stored.shape[i] for i in (0, 1, 3)]:
                raise ValueError("columns that do not fit")
        cache[:] = [np.concatenate(pair, axis=2) for pair in zip(cache, (k, v))]
        n, t = k.shape[2], cache[0].shape[2]
        return cache[0], cache[1], np.tri(n, t, held, dtype=bool)[None, None]

    def trim(self, cache, count):
        if count < 0:
            raise ValueError("a negative number of tokens")
        count = min(count, cache[0].shape[2])
        cache[:] = [x[:, :, :x.shape[2] - count + (self.off if count > 1 else 0)] for x in cache]
        return count

    def tell(self, cache):
        held = cache[0].shape[2]
        return {"rows": 1, "empty": held == 0, "offsets": [held], "held": [held]}

class Broken(Plain):
    off = 1
"""


def test_a_cache_class_is_judged_in_a_process_of_its_own(tmp_path, monkeypatch):
    pytest.importorskip("msgpack")
    (tmp_path / "my_cache.py").write_text(CACHE)
    monkeypatch.syspath_prepend(tmp_path)
    import my_cache
    assert "200" in assert_cache_correct(my_cache.Plain, cases=200)
    with pytest.raises(AssertionError, match="trim"):
        assert_cache_correct(my_cache.Broken, cases=200)

    with pytest.raises(kvcheck.Error, match="not judged within"):
        assert_cache_correct(my_cache.Plain, cases=10**9, timeout=1)

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "msgpack" else find_spec(name))
    with pytest.raises(kvcheck.Error, match="pip install msgpack"):
        assert_cache_correct(my_cache.Plain, cases=200)
    monkeypatch.undo()

    class Local(my_cache.Plain):
        pass

    with pytest.raises(kvcheck.Error, match="another process"):
        assert_cache_correct(Local)
