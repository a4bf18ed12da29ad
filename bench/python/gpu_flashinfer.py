#!/usr/bin/env python3
"""FlashInfer's kernels on a GPU, dumped by its own logging, for `kvcheck flashinfer`.

  python3 bench/python/gpu_flashinfer.py FOLDER
  kvcheck flashinfer FOLDER/right; kvcheck flashinfer FOLDER/faults

Calls: single decode and prefill, batches over pages and ragged, FA2 and on Hopper FA3, f16, bf16 and bf16 over fp8 pages; causal,
window, soft cap, custom masks, log-sum-exp. Each fault changes what a wrapper's own buffers hold after its plan was dumped, so that
the real kernel computes something else than its arguments say. A call that raises is printed and left out.
"""
import math
import os
import pathlib
import sys
import time

HEADS, KV_HEADS, DIM, PAGE = 8, 2, 128, 16
LENGTHS = [900, 1, 333, 514]  # keys of each request
QUERIES = [128, 1, 77, 5]


def rows(torch, *shape, dtype):
    """Normal values; two channels some 8 times as large, as keys of real models have them."""
    values = torch.randn(*shape, device="cuda")
    values[..., [1, DIM // 2]] *= 8
    return values.to(dtype)


def tables(torch):
    """Page tables of all requests, pages in a drawn order, as int32 on the GPU."""
    pages = [math.ceil(length / PAGE) for length in LENGTHS]

    def starts(counts):
        return torch.tensor([0, *counts], device="cuda").cumsum(0).int()
    return {"indptr": starts(pages), "indices": torch.randperm(sum(pages), device="cuda").int(),
            "last_page_len": torch.tensor([(length - 1) % PAGE + 1 for length in LENGTHS], dtype=torch.int32, device="cuda"),
            "queries": starts(QUERIES), "keys": starts(LENGTHS), "pages": sum(pages)}


def singles(torch, api):
    for dtype in (torch.float16, torch.bfloat16):
        k, v = (rows(torch, KV_HEADS, 2001, DIM, dtype=dtype) for _ in "kv")
        q = rows(torch, HEADS, DIM, dtype=dtype)
        yield f"single decode {dtype}", lambda: api.single_decode_with_kv_cache(q, k, v, "HND", return_lse=True)
        yield "single decode, window and cap", lambda: api.single_decode_with_kv_cache(q, k, v, "HND", window_left=700, logits_soft_cap=30.0)
    k, v = (rows(torch, 777, KV_HEADS, DIM, dtype=torch.bfloat16) for _ in "kv")
    q = rows(torch, 130, HEADS, DIM, dtype=torch.bfloat16)
    mask = torch.rand(130, 777, device="cuda") < 0.5
    mask[:, 0] = True
    for backend in ("fa2", "fa3"):
        yield f"single prefill {backend}", lambda: api.single_prefill_with_kv_cache(q, k, v, causal=True, return_lse=True, backend=backend)
    yield "single prefill, custom mask", lambda: api.single_prefill_with_kv_cache(q, k, v, custom_mask=mask, backend="fa2")


def workspace(torch):
    return torch.zeros(32 << 20, dtype=torch.uint8, device="cuda")


def decode(torch, api, kv_type, tensor_cores, **scales):
    table = tables(torch)
    wrapper = api.BatchDecodeWithPagedKVCacheWrapper(workspace(torch), "NHD", use_tensor_cores=tensor_cores)
    wrapper.plan(table["indptr"], table["indices"], table["last_page_len"], HEADS, KV_HEADS, DIM, PAGE, q_data_type=torch.bfloat16,
                 kv_data_type=kv_type)
    pools = tuple(rows(torch, table["pages"], PAGE, KV_HEADS, DIM, dtype=torch.bfloat16).to(kv_type) for _ in "kv")
    wrapper.run(rows(torch, len(LENGTHS), HEADS, DIM, dtype=torch.bfloat16), pools, return_lse=True, **scales)


def paged(torch, api, backend, fault=None, **options):
    table = tables(torch)
    wrapper = api.BatchPrefillWithPagedKVCacheWrapper(workspace(torch), "NHD", backend=backend)
    wrapper.plan(table["queries"], table["indptr"], table["indices"], table["last_page_len"], HEADS, KV_HEADS, DIM, PAGE, causal=True,
                 q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16, **options)
    if fault:
        fault(wrapper)
    pool = rows(torch, table["pages"], 2, PAGE, KV_HEADS, DIM, dtype=torch.bfloat16)
    wrapper.run(rows(torch, sum(QUERIES), HEADS, DIM, dtype=torch.bfloat16), pool, return_lse=True)


def ragged(torch, api, backend, masked):
    table = tables(torch)
    wrapper = api.BatchPrefillWithRaggedKVCacheWrapper(workspace(torch), "NHD", backend=backend)
    mask = None
    if masked:
        mask = torch.rand(sum(q * k for q, k in zip(QUERIES, LENGTHS)), device="cuda") < 0.6
        at = 0
        for q, k in zip(QUERIES, LENGTHS):
            mask[at:at + q * k:k] = True  # each query sees its first key
            at += q * k
    wrapper.plan(table["queries"], table["keys"], HEADS, KV_HEADS, DIM, custom_mask=mask, causal=not masked,
                 q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)
    k, v = (rows(torch, sum(LENGTHS), KV_HEADS, DIM, dtype=torch.bfloat16) for _ in "kv")
    wrapper.run(rows(torch, sum(QUERIES), HEADS, DIM, dtype=torch.bfloat16), k, v, return_lse=True)


def batches(torch, api):
    for cores in (False, True):
        yield f"decode, tensor cores {cores}", lambda: decode(torch, api, torch.bfloat16, cores)
    yield "decode, fp8 pages", lambda: decode(torch, api, torch.float8_e4m3fn, False, k_scale=0.5, v_scale=0.25)
    for backend in ("fa2", "fa3"):
        yield f"paged {backend}", lambda: paged(torch, api, backend)
        yield f"ragged {backend}", lambda: ragged(torch, api, backend, False)
    yield "paged, window and cap", lambda: paged(torch, api, "fa2", window_left=200, logits_soft_cap=20.0)
    yield "ragged, custom mask", lambda: ragged(torch, api, "fa2", True)


def exchanged_pages(wrapper):
    """Of two requests: a query that sees both of two pages gives the same in either order."""
    pages, other = wrapper._paged_kv_indices_buf, math.ceil(LENGTHS[0] / PAGE) + math.ceil(LENGTHS[1] / PAGE)
    pages[[3, other + 2]] = pages[[other + 2, 3]]


def shorter_last_page(wrapper):
    wrapper._paged_kv_last_page_len_buf[0] -= 1


def scaled_scores(wrapper):
    wrapper._sm_scale = 1.02 / math.sqrt(DIM)


def no_causal_mask(wrapper):
    wrapper._causal = False


def faults(torch, api):
    for fault in (exchanged_pages, shorter_last_page, scaled_scores, no_causal_mask):
        yield fault.__name__, lambda: paged(torch, api, "fa2", fault)


def main(folder):
    os.environ.update(FLASHINFER_LOGLEVEL="10", FLASHINFER_DUMP_SAFETENSORS="1", FLASHINFER_LOGDEST=os.devnull,
                      FLASHINFER_DUMP_DIR=str(folder / "right"))
    import types

    import torch
    from flashinfer import api_logging, decode as decoding, prefill
    api = types.SimpleNamespace(**{name: getattr(module, name) for module in (decoding, prefill) for name in dir(module)
                                   if name.startswith(("single_", "Batch"))})
    torch.manual_seed(29)
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for name, makers in (("right", (singles, batches)), ("faults", (faults,))):
        api_logging._DUMP_DIR = str(folder / name)
        for make in makers:
            for what, call in make(torch, api):
                start = time.perf_counter()
                try:
                    call()
                    torch.cuda.synchronize()
                    said = "ok"
                except Exception as error:  # what one release or card lacks takes nothing from the others
                    said = f"{type(error).__name__}: {str(error)[-300:]}"
                print(f"{what}: {said}, {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
