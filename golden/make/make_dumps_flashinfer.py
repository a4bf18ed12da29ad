"""Makes golden/dumps/flashinfer*: folders of calls as FlashInfer's own logging writes them.

Usage: python make_dumps_flashinfer.py WHEEL [DIRECTORY]     (default: ../dumps beside this file)
Needs the packages of requirements-torch.txt and the wheel of flashinfer-python 0.7.2.post1 as a file, of which
api_logging.py runs and decode.py and prefill.py give the signatures. Its kernels need a GPU: here stand-ins with these
signatures, the wrappers' names and the wrappers' rules answer, in float64 and rounded to the type of the output.

  flashinfer         right answers: both single functions, the three wrappers (one planned twice), a function that is no
                     attention
  flashinfer_faults  the paged prefill with two pages exchanged, with a last page one token short, with the causal mask
                     ignored, with the log-sum-exp in base e; and a call that did not return. Without session.jsonl
"""
import ast
import datetime
import importlib
import math
import os
import pathlib
import shutil
import sys
import tempfile
import types
import typing
import zipfile

import torch

SEED = 23
HEADS, KV_HEADS, DIM, PAGE = 4, 2, 32, 4
WRAPPERS = ("BatchDecodeWithPagedKVCacheWrapper", "BatchPrefillWithPagedKVCacheWrapper",
            "BatchPrefillWithRaggedKVCacheWrapper")
LOG = "flashinfer.api_logging"


class Clock:
    """In place of datetime in the log: a call a second, the same names each time."""
    seconds = 0

    @classmethod
    def now(cls):
        cls.seconds += 1
        return datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=cls.seconds)


def logging_module(unpacked, dump):
    os.environ.update(FLASHINFER_LOGLEVEL="10", FLASHINFER_DUMP_SAFETENSORS="1", FLASHINFER_DUMP_DIR=dump,
                      FLASHINFER_LOGDEST=os.devnull)
    package = types.ModuleType("flashinfer")
    package.__path__ = [str(unpacked / "flashinfer")]
    sys.modules["flashinfer"] = package
    sys.modules.pop(LOG, None)
    log = importlib.import_module(LOG)
    Clock.seconds = 0
    numbers = {}
    log.datetime = Clock
    log.id = lambda of: numbers.setdefault(id(of), 1 + len(numbers))
    log.os = types.SimpleNamespace(getpid=lambda: 1, environ=os.environ)
    return log


def parameters(unpacked):
    """The text between the parentheses of each function that is called here, by its name."""
    found = {}
    for name in ("decode.py", "prefill.py"):
        for node in ast.parse((unpacked / "flashinfer" / name).read_text()).body:
            inside = [(node.name + ".", part) for part in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
            for prefix, part in inside:
                if isinstance(part, ast.FunctionDef):  # of overloads the last one counts
                    found[prefix + part.name] = ast.unparse(part.args)
    return found


def attend(q, k, v, visible, scale, cap=0.0):
    """q (L, Hq, D), k and v (T, Hkv, D), visible (L, T): out (L, Hq, D) and the log-sum-exp (L, Hq) in base 2."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("lhd,thd->lht", q.double(), k) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~visible[:, None, :], -math.inf)
    out = torch.einsum("lht,thd->lhd", torch.softmax(scores, dim=-1), v)
    return out, torch.logsumexp(scores, dim=-1) / math.log(2)


def see(length, keys, causal, window):
    at, key = torch.arange(keys - length, keys)[:, None], torch.arange(keys)[None, :]
    visible = torch.ones(length, keys, dtype=torch.bool)
    if causal:
        visible &= key <= at
    if window >= 0:
        visible &= key >= at - window
    return visible


def single(arguments):
    given = types.SimpleNamespace(**{"causal": False, "custom_mask": None, **arguments})
    one_token = given.q.dim() == 2
    q = given.q[None] if one_token else given.q
    k, v = (x.transpose(0, 1) if given.kv_layout == "HND" else x for x in (given.k, given.v))
    visible = given.custom_mask
    if visible is None:
        visible = see(len(q), len(k), given.causal, given.window_left)
    scale = given.sm_scale or 1 / math.sqrt(q.shape[-1])
    out, lse = attend(q, k, v, visible, scale, given.logits_soft_cap or 0.0)
    out, lse = out.to(q.dtype), lse.float()
    if one_token:
        out, lse = out[0], lse[0]
    return (out, lse) if given.return_lse else out


def joined(wrapper, given):
    """K and V of each sequence, and its queries, from what plan() said."""
    if "k" in given:
        for q0, q1, k0, k1 in zip(wrapper.qo_indptr, wrapper.qo_indptr[1:], wrapper.kv_indptr, wrapper.kv_indptr[1:]):
            yield (q0, q1), given["k"][k0:k1], given["v"][k0:k1]
        return
    cache = given["paged_kv_cache"]
    pools = (cache[:, 0], cache[:, 1]) if isinstance(cache, torch.Tensor) else cache
    pools = [pool.transpose(1, 2) if wrapper.kv_layout == "HND" else pool for pool in pools]
    for i, last in enumerate(wrapper.last_page_len):
        pages = wrapper.indices[wrapper.indptr[i]:wrapper.indptr[i + 1]].tolist()
        keys = (len(pages) - 1) * PAGE + int(last)
        starts = wrapper.qo_indptr if wrapper.qo_indptr is not None else range(len(wrapper.last_page_len) + 1)
        yield (starts[i], starts[i + 1]), *(pool[pages].flatten(0, 1)[:keys] for pool in pools)


def run(wrapper, given):
    q, outs, lses, at = given["q"], [], [], 0
    scale = (wrapper.sm_scale or 1 / math.sqrt(DIM)) * (given.get("k_scale") or 1.0)
    for (first, last), k, v in joined(wrapper, given):
        length, keys = int(last - first), len(k)
        visible = see(length, keys, wrapper.causal, wrapper.window_left)
        if wrapper.custom_mask is not None:
            visible = wrapper.custom_mask[at:at + length * keys].view(length, keys)
            at += length * keys
        out, lse = attend(q[first:last], k, v, visible, scale, wrapper.logits_soft_cap or 0.0)
        outs.append(out)
        lses.append(lse)
    out = torch.cat(outs).to(q.dtype)
    if given.get("v_scale"):
        out = out * given["v_scale"]
    lse = torch.cat(lses).float() * wrapper.lse_factor
    if given.get("lse_layout") == "HN":
        lse = lse.T.contiguous()
    return (out, lse) if given["return_lse"] else out


def plan(wrapper, given):
    wrapper.custom_mask, wrapper.causal, wrapper.window_left = None, False, -1
    wrapper.sm_scale = wrapper.logits_soft_cap = wrapper.qo_indptr = None
    wrapper.lse_factor = 1.0
    for name, value in {**given, **given.get("kwargs", {})}.items():
        setattr(wrapper, name.removeprefix("paged_kv_"), value)
    wrapper.__dict__.update(wrapper.fault)


def functions(log, unpacked):
    """The functions and classes of FlashInfer by name, of which calls are dumped."""
    texts = parameters(unpacked)
    names = {**vars(typing), "torch": torch}

    def defined(name, answer):
        local = {"answer": answer, **names}
        exec(f"def {name.split('.')[-1]}({texts[name]}):\n    return answer(dict(locals()))", local)
        return log.flashinfer_api(local[name.split(".")[-1]])

    made = {name: defined(name, single) for name in ("single_decode_with_kv_cache", "single_prefill_with_kv_cache")}
    for name in WRAPPERS:
        made[name] = type(name, (), {
            "fault": {},
            "__init__": defined(name + ".__init__", lambda given: setattr(given["self"], "kv_layout", given["kv_layout"])),
            "plan": defined(name + ".plan", lambda given: plan(given.pop("self"), given)),
            "run": defined(name + ".run", lambda given: run(given.pop("self"), given))})

    def rmsnorm(input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6):  # as flashinfer.norm has it
        return input / torch.sqrt(input.float().square().mean(-1, keepdim=True) + eps) * weight
    made["rmsnorm"] = log.flashinfer_api(rmsnorm)
    return types.SimpleNamespace(**made)


def drawn(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape).to(dtype)


def tables():
    return {"qo_indptr": torch.tensor([0, 3, 8], dtype=torch.int32),
            "paged_kv_indptr": torch.tensor([0, 2, 5], dtype=torch.int32),
            "paged_kv_indices": torch.tensor([5, 1, 4, 0, 2], dtype=torch.int32),
            "paged_kv_last_page_len": torch.tensor([3, 2], dtype=torch.int32)}


def workspace():
    return torch.zeros(16, dtype=torch.uint8)


def right(api):
    api.single_decode_with_kv_cache(drawn(HEADS, DIM), drawn(KV_HEADS, 37, DIM), drawn(KV_HEADS, 37, DIM), "HND",
                                    window_left=20, logits_soft_cap=30.0, return_lse=True)
    half = {"dtype": torch.float16}
    q, k, v = drawn(5, HEADS, DIM, **half), drawn(19, KV_HEADS, DIM, **half), drawn(19, KV_HEADS, DIM, **half)
    api.single_prefill_with_kv_cache(q, k, v, causal=True, sm_scale=0.125, return_lse=True)
    seen = torch.rand(5, 19) < 0.5
    seen[:, 0] = True
    api.single_prefill_with_kv_cache(q, k, v, custom_mask=seen)

    decode = api.BatchDecodeWithPagedKVCacheWrapper(workspace(), "HND", use_tensor_cores=False)
    table = tables()
    decode.plan(*(table["paged_kv_" + name] for name in ("indptr", "indices", "last_page_len")), HEADS, KV_HEADS, DIM,
                PAGE, q_data_type=torch.bfloat16, kv_data_type=torch.float8_e4m3fn)
    pools = tuple(drawn(6, KV_HEADS, PAGE, DIM, dtype=torch.float8_e4m3fn) for _ in "kv")
    decode.run(drawn(2, HEADS, DIM), pools, k_scale=0.75, v_scale=0.3)

    prefill = api.BatchPrefillWithPagedKVCacheWrapper(workspace())
    prefill.plan(*table.values(), HEADS, KV_HEADS, DIM, PAGE, causal=True, window_left=6, q_data_type=torch.bfloat16)
    q, pool = drawn(8, HEADS, DIM), drawn(6, 2, PAGE, KV_HEADS, DIM)
    prefill.run(q, pool, return_lse=True)
    table["paged_kv_last_page_len"] = torch.tensor([4, 1], dtype=torch.int32)
    prefill.plan(*table.values(), HEADS, KV_HEADS, DIM, PAGE, causal=True, q_data_type=torch.bfloat16)
    prefill.run(q, pool)

    ragged = api.BatchPrefillWithRaggedKVCacheWrapper(workspace())
    seen = torch.rand(3 * 7 + 5 * 10) < 0.7
    seen[0::7] = True
    ragged.plan(table["qo_indptr"], torch.tensor([0, 7, 17], dtype=torch.int32), HEADS, KV_HEADS, DIM, custom_mask=seen,
                q_data_type=torch.bfloat16)
    ragged.run(q, drawn(17, KV_HEADS, DIM), drawn(17, KV_HEADS, DIM), return_lse=True, lse_layout="HN")
    api.rmsnorm(drawn(3, DIM), drawn(DIM))
    api.rmsnorm(drawn(3, DIM), drawn(DIM))


def wrong(api):
    pool, q = drawn(6, 2, PAGE, KV_HEADS, DIM), drawn(8, HEADS, DIM)
    table = tables()
    for fault in ({"indices": torch.tensor([5, 1, 0, 4, 2], dtype=torch.int32)},
                  {"last_page_len": torch.tensor([2, 2], dtype=torch.int32)},
                  {"causal": False},
                  {"lse_factor": math.log(2)}):
        prefill = api.BatchPrefillWithPagedKVCacheWrapper(workspace())
        prefill.fault = fault
        prefill.plan(*table.values(), HEADS, KV_HEADS, DIM, PAGE, causal=True, q_data_type=torch.bfloat16)
        prefill.run(q, pool, return_lse=True)
    try:
        api.single_decode_with_kv_cache(drawn(HEADS, DIM), drawn(5, KV_HEADS, DIM + 1), drawn(5, KV_HEADS, DIM))
    except RuntimeError:
        pass


def main(arguments):
    wheel = pathlib.Path(arguments[1]).resolve()
    directory = pathlib.Path(arguments[2] if len(arguments) > 2 else pathlib.Path(__file__).parent.parent / "dumps")
    directory.mkdir(exist_ok=True)
    os.chdir(directory)  # paths in the records are as the variable names the folder
    with tempfile.TemporaryDirectory() as temporary:
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(temporary, [name for name in packed.namelist() if name.endswith(".py")])
        for dump, make in (("flashinfer", right), ("flashinfer_faults", wrong)):
            shutil.rmtree(dump, ignore_errors=True)
            torch.manual_seed(SEED)
            make(functions(logging_module(pathlib.Path(temporary), dump), pathlib.Path(temporary)))
    pathlib.Path("flashinfer_faults/session.jsonl").unlink()


if __name__ == "__main__":
    main(sys.argv)
