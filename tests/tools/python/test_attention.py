"""judge_attention and assert_attention_close: every argument takes part, every layout means the same."""
import copy
import json
import os
import pickle
import subprocess
import warnings

import numpy as np
import pytest
from attention import attention, tensors

import kvcheck
from kvcheck import testing
from kvcheck._command import program
from kvcheck.testing import assert_attention_close

PLAN = "plain_f32"
KEYWORDS = [
    {}, {"causal": True}, {"causal": True, "window": 5}, {"scale": 0.5}, {"softcap": 3.0},
    {"sinks": np.float32([0.5, -1, 2, 0])},
    {"mask": np.tri(9, 17, 6, dtype=bool)},
    {"mask": np.where(np.tri(9, 17, 6, dtype=bool), 0, -np.inf).astype(np.float32)},
    {"mask": np.arange(17) != 3},
    {"mask": (np.arange(2 * 9 * 17) % 5 != 0).reshape(2, 1, 9, 17)},
    {"mask": (np.arange(2 * 4 * 9 * 17) % 7 != 0).reshape(2, 4, 9, 17)},
    {"mask": (np.arange(2 * 17) % 6 != 0).reshape(2, 1, 1, 17)},
    {"mask": (np.arange(4 * 9 * 17) % 7 != 0).reshape(1, 4, 9, 17)},
]


@pytest.fixture(autouse=True)
def failures(tmp_path, monkeypatch):
    monkeypatch.setenv("KVCHECK_FAILURES", str(tmp_path / "failures"))
    return tmp_path / "failures"


@pytest.mark.parametrize("keywords", KEYWORDS, ids=lambda keywords: "+".join(keywords) or "plain")
def test_the_right_answer_passes_and_that_of_the_call_without_an_argument_fails(keywords):
    q, k, v = tensors()
    out = attention(q, k, v, **keywords)
    verdict = assert_attention_close(out, q, k, v, plan=PLAN, **keywords)
    assert verdict.outcome == "PASS" and verdict.exit_code == 0
    for left_out in keywords:
        others = {name: value for name, value in keywords.items() if name != left_out}
        if left_out == "causal" and "window" in keywords:
            continue  # a window without it is another question, not that one
        with pytest.raises(AssertionError, match="FAIL.*  attention  out"):
            assert_attention_close(out, q, k, v, plan=PLAN, **others)


def test_every_call_has_the_default_plan_of_the_library():
    case = kvcheck.cases.attention(hq=4, hkv=2, l=5, t=9, d=16)
    out = case.answer()["out"]
    plans = {kvcheck.judge_attention(out, case.q, case.k, case.v).plan, case.judge(out).plan,
             kvcheck.judge_case(case.text, {}, {"out": out}).plan, assert_attention_close(out, case.q, case.k, case.v).plan}
    plan, = plans
    assert plan == kvcheck.judge_attention(out, case.q, case.k, case.v, plan="stranger").plan


def test_a_wrong_mask_is_named():
    q, k, v = tensors(b=1, l=17)
    out = attention(q, k, v, causal=True)
    wrong = attention(q, k, v, mask=np.tri(17, 17, 1, dtype=bool))
    assert assert_attention_close(out, q, k, v, causal=True, plan=PLAN).passed
    with pytest.raises(AssertionError) as raised:
        assert_attention_close(wrong, q, k, v, causal=True, plan=PLAN)
    text = str(raised.value)
    assert "hint" in text and "where" in text and "reproduce" in text
    assert any("key" in hint for hint in kvcheck.judge_attention(wrong, q, k, v, causal=True, plan=PLAN).hints)


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "sbhd", "hbds"])
def test_a_layout_is_an_order_of_axes(layout):
    q, k, v = tensors(dv=8)
    out, lse = attention(q, k, v, causal=True, lse=True)
    order = ["bhsd".index(axis) for axis in layout]
    moved = [np.ascontiguousarray(x.transpose(order)) for x in (out, q, k, v)]
    assert assert_attention_close(*moved, lse=lse, causal=True, layout=layout, plan=PLAN).passed
    # Views with the strides of another order are read where they lie.
    views = [np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order)) for x in (out, q, k, v)]
    assert assert_attention_close(*views, lse=lse, causal=True, plan=PLAN).passed
    if layout != "hbds":
        with pytest.raises((AssertionError, kvcheck.Error)):
            assert_attention_close(*moved, causal=True, layout="hbds", plan=PLAN)


def test_one_sequence_needs_no_batch():
    q, k, v = tensors(b=1)
    out = attention(q, k, v)
    assert assert_attention_close(out[0], q[0], k[0], v[0], layout="hsd", plan=PLAN).passed
    assert assert_attention_close(*(x[0].swapaxes(0, 1) for x in (out, q, k, v)), layout="shd", plan=PLAN).passed


def test_lse_is_judged_in_both_bases():
    q, k, v = tensors()
    out, lse = attention(q, k, v, lse=True)
    assert assert_attention_close(out, q, k, v, lse=lse, plan=PLAN).passed
    assert assert_attention_close(out, q, k, v, lse=(lse / np.log(2)).astype("f4"), lse_base2=True, plan=PLAN).passed
    with pytest.raises(AssertionError, match="lse"):
        assert_attention_close(out, q, k, v, lse=lse, lse_base2=True, plan=PLAN)
    assert assert_attention_close(out, q, k, v, lse=lse.swapaxes(1, 2), lse_layout="bsh", plan=PLAN).passed


def test_an_lse_in_f64_is_judged_as_the_f32_next_to_it():
    q, k, v = tensors()
    out, lse = attention(q, k, v, lse=True)
    assert assert_attention_close(out, q, k, v, lse=lse.astype("f8"), plan=PLAN).passed
    bound = kvcheck.reference_attention(q, k, v, lse=True, plan=PLAN)["lse"][2]
    # Beyond the bound and half a step of the f32 that it becomes.
    wrong = lse.astype("f8")
    wrong[1, 2, 3] += 2 * bound[1, 2, 3] + np.spacing(np.abs(lse[1, 2, 3]))
    with pytest.raises(AssertionError, match="lse.b=1, hq=2, l=3"):
        assert_attention_close(out, q, k, v, lse=wrong, plan=PLAN)
    assert assert_attention_close(out, q, k, v, lse=lse.astype("f2"), plan=PLAN).passed  # as it may be stored
    with pytest.raises(kvcheck.Error, match="array 'lse': has type int32"):
        assert_attention_close(out, q, k, v, lse=lse.astype("i4"), plan=PLAN)
    with pytest.raises(kvcheck.Error, match="lse_layout 'bsh' fits"):
        assert_attention_close(out, q, k, v, lse=lse.swapaxes(1, 2), plan=PLAN)


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_may_be_that_of_flash_attention(causal):
    q, k, v = tensors(l=17, t=33)
    out = attention(q, k, v, causal=True, window=16)
    # 15 tokens before the query's own, none after it.
    assert assert_attention_close(out, q, k, v, window=(15, 0), causal=causal, plan=PLAN).passed
    assert assert_attention_close(out, q, k, v, window=np.int64([15, 0]), causal=causal, plan=PLAN).passed
    with pytest.raises(AssertionError):
        assert_attention_close(out, q, k, v, window=(16, 0), causal=causal, plan=PLAN)
    everything = attention(q, k, v, causal=causal)
    for window in (-1, (-1, -1), None):
        assert assert_attention_close(everything, q, k, v, window=window, causal=causal, plan=PLAN).passed
    assert assert_attention_close(attention(q, k, v, causal=True), q, k, v, window=(-1, 0), plan=PLAN).passed
    later = attention(q, k, v, causal=causal, window=16)
    assert assert_attention_close(later, q, k, v, window=(15, -1), causal=causal, plan=PLAN).passed
    assert assert_attention_close(out, q, k, v, window=(15, 3), causal=True, plan=PLAN).passed
    own = attention(q, k, v, causal=True, window=1)
    assert assert_attention_close(own, q, k, v, window=(0, 0), plan=PLAN).passed


@pytest.mark.parametrize("kind", ["i1", "u1", "i4", "i8"])
def test_a_mask_of_integers_is_one_of_bools(kind):
    q, k, v = tensors()
    seen = np.tri(9, 17, 6, dtype=bool)
    out = attention(q, k, v, mask=seen)
    assert assert_attention_close(out, q, k, v, mask=seen.astype(kind), plan=PLAN).passed
    with pytest.raises(AssertionError, match="FAIL"):
        assert_attention_close(out, q, k, v, mask=(~seen).astype(kind), plan=PLAN)


def test_pages_with_heads_before_tokens_are_named():
    q, k, v = tensors(b=1, hq=8, hkv=2, l=1, t=72)
    out = attention(q, k, v).swapaxes(1, 2)
    pages = [x.swapaxes(1, 2).reshape(9, 8, 2, 16) for x in (k, v)]
    keywords = {"layout": "bshd", "block_table": np.arange(9, dtype=np.int32)[None], "kv_lens": np.int32([72]), "plan": PLAN}
    assert assert_attention_close(out, q.swapaxes(1, 2), *pages, **keywords).passed
    with pytest.raises(kvcheck.Error, match=r"order \(pages, heads, tokens, D\), which FlashInfer calls HND.*swapaxes"):
        assert_attention_close(out, q.swapaxes(1, 2), *(x.swapaxes(1, 2) for x in pages), **keywords)


def packed(lengths, spoil=None):
    """q, k, v, out of sequences that follow each other, (tokens, H, D), and their starts. spoil: one that is not causal."""
    parts = []
    for i, (queries, keys) in enumerate(lengths):
        q, k, v = tensors(b=1, l=queries, t=keys, seed=i)
        out = attention(q, k, v, causal=i != spoil)
        parts.append([x[0].swapaxes(0, 1) for x in (out, q, k, v)])
    arrays = [np.concatenate(group) for group in zip(*parts)]
    starts = [np.cumsum([0, *column]).astype(np.int32) for column in zip(*lengths)]
    return arrays, starts


def test_packed_sequences_are_cases_of_their_own():
    lengths = [(5, 5), (1, 12), (9, 9)]
    arrays, (q_starts, k_starts) = packed(lengths)
    keywords = {"layout": "shd", "causal": True, "cu_seqlens_q": q_starts, "cu_seqlens_k": k_starts, "plan": PLAN}
    verdict = assert_attention_close(*arrays, **keywords)
    assert len(json.loads(verdict.to_json())["cases"][0]["outputs"]) == 3
    spoiled, _ = packed(lengths, spoil=2)
    with pytest.raises(AssertionError, match="sequence 2: out"):
        assert_attention_close(*spoiled, **keywords)
    # Starts of another split are another question.
    with pytest.raises(AssertionError):
        assert_attention_close(*arrays, **{**keywords, "cu_seqlens_q": np.int32([0, 6, 7, 15]),
                                           "cu_seqlens_k": np.int32([0, 6, 17, 26])})


def test_paged_k_and_v_are_read_by_their_table():
    q, k, v = tensors(b=3, l=1, t=16)
    lens = np.int32([16, 5, 9])
    outs = [attention(q[i:i + 1], k[i:i + 1, :, :n], v[i:i + 1, :, :n]) for i, n in enumerate(lens)]
    out = np.concatenate(outs).swapaxes(1, 2)
    order = np.random.default_rng(1).permutation(12)
    k_pages, v_pages = (np.full((12, 4, 2, 16), np.nan, np.float32) for _ in range(2))
    for pages, x in ((k_pages, k), (v_pages, v)):
        pages[order] = x.swapaxes(1, 2).reshape(12, 4, 2, 16)
    table = order.reshape(3, 4).astype(np.int32)
    keywords = {"layout": "bshd", "block_table": table, "kv_lens": lens, "plan": PLAN}
    query = q.swapaxes(1, 2)
    assert assert_attention_close(out, query, k_pages, v_pages, **keywords).passed
    with pytest.raises(AssertionError, match="sequence 1"):
        assert_attention_close(out, query, k_pages, v_pages, **{**keywords, "kv_lens": np.int32([16, 6, 9])})
    with pytest.raises(kvcheck.Error, match="page 12"):
        assert_attention_close(out, query, k_pages, v_pages, **{**keywords, "block_table": table + 1})


def without_keys():
    """q, k, v, lengths, out and lse, of which row 1 has no keys."""
    lens = np.int32([16, 0, 9])
    q, k, v = tensors(b=3, l=2, t=16)
    out, lse = np.zeros_like(q), np.full((3, 4, 2), -np.inf, np.float32)
    for i, n in enumerate(lens):
        if n:
            out[i:i + 1], lse[i:i + 1] = attention(q[i:i + 1], k[i:i + 1, :, :n], v[i:i + 1, :, :n], lse=True)
    return q, k, v, lens, out, lse


@pytest.mark.parametrize("strict", [False, True])
def test_rows_of_a_sequence_without_keys_are_fully_masked_ones(strict):
    q, k, v, lens, out, lse = without_keys()
    keywords = {"kv_lens": lens, "plan": PLAN, "strict": strict}
    verdict = assert_attention_close(out, q, k, v, lse=lse, **keywords)
    for value in (5, np.nan):
        bad = lse.copy()
        bad[1, 2, 1] = value
        with pytest.raises(AssertionError, match="sequence 1: lse"):
            assert_attention_close(out, q, k, v, lse=bad, **keywords)
    assert assert_attention_close(out, q, k, v, lse=lse.astype("f8"), **keywords).passed
    wrong = out.copy()
    for value in (7, np.nan):
        wrong[1, 2, 1, 3] = value
        with pytest.raises(AssertionError, match="sequence 1: out"):
            assert_attention_close(wrong, q, k, v, **keywords)
    undefined = np.where(np.arange(3)[:, None, None, None] == 1, np.float32(np.nan), out)
    assert assert_attention_close(undefined, q, k, v, profile="masked_row=nan", **keywords).passed
    # A sink is the only logit there.
    sinks = np.float32([0.5, -1, 2, 0])
    only = q[1:2], k[1:2], v[1:2]
    right = np.broadcast_to(sinks[None, :, None], (1, 4, 2))
    keywords = {"kv_lens": np.int32([0]), "plan": PLAN, "strict": strict, "sinks": sinks}
    assert assert_attention_close(out[1:2], *only, lse=right, **keywords).passed
    with pytest.raises(AssertionError, match="sequence 0: lse"):
        assert_attention_close(out[1:2], *only, lse=right + 1, **keywords)


def test_packed_and_paged_sequences_without_keys_are_judged_too():
    q, k, v, lens, out, _ = without_keys()
    starts = np.int32([0, 2, 4, 6])
    k_starts = np.cumsum([0, *lens]).astype(np.int32)
    flat = [x.swapaxes(1, 2).reshape(-1, 4, 16) for x in (out, q)]
    flat += [np.concatenate([x[i, :, :n].swapaxes(0, 1) for i, n in enumerate(lens)]) for x in (k, v)]
    packed = {"layout": "shd", "cu_seqlens_q": starts, "cu_seqlens_k": k_starts, "causal": True, "plan": PLAN}
    order = [attention(q[i:i + 1], k[i:i + 1, :, :n], v[i:i + 1, :, :n], causal=True) if n else out[i:i + 1]
             for i, n in enumerate(lens)]
    flat[0] = np.concatenate(order).swapaxes(1, 2).reshape(-1, 4, 16)
    assert assert_attention_close(*flat, **packed).passed
    pages = [x.swapaxes(1, 2).reshape(12, 4, 2, 16) for x in (k, v)]
    paged = {"layout": "bshd", "block_table": np.arange(12, dtype=np.int32).reshape(3, 4), "kv_lens": lens, "plan": PLAN}
    arrays = [x.swapaxes(1, 2) for x in (out, q)]
    assert assert_attention_close(*arrays, *pages, **paged).passed
    flat[0][3, 0, 0] = arrays[0][1, 1, 0, 0] = 7
    for call, keywords in (((*flat,), packed), ((*arrays, *pages), paged)):
        with pytest.raises(AssertionError, match="sequence 1: out"):
            assert_attention_close(*call, **keywords)


def test_tokens_behind_the_last_sequence_are_named():
    arrays, (q_starts, k_starts) = packed([(5, 5), (3, 4)])
    out, q, k, v = arrays
    longer = [np.concatenate([x, x[:2]]) for x in (out, q)]
    verdict = assert_attention_close(*longer, k, v, layout="shd", causal=True, cu_seqlens_q=q_starts,
                                     cu_seqlens_k=k_starts, plan=PLAN)
    assert any(line.startswith("2 of 10 tokens are behind the last sequence") for line in verdict.warnings)


def test_pages_may_be_one_list_with_starts():
    lens = [9, 5]
    q, k, v = tensors(b=2, l=1, t=12)
    out = np.concatenate([attention(q[i:i + 1], k[i:i + 1, :, :n], v[i:i + 1, :, :n]) for i, n in enumerate(lens)])
    pages = [x.swapaxes(1, 2).reshape(6, 4, 2, 16)[::-1] for x in (k, v)]
    table, starts = np.int32([5, 4, 3, 2, 1]), np.int32([0, 3, 5])
    keywords = {"layout": "bshd", "kv_lens": np.int32(lens), "plan": PLAN}
    arrays = [x.swapaxes(1, 2) for x in (out, q)]
    assert assert_attention_close(*arrays, *pages, block_table=table, block_starts=starts, **keywords).passed
    with pytest.raises(AssertionError, match="sequence 0"):
        assert_attention_close(*arrays, *pages, block_table=table[[3, 1, 2, 0, 4]], block_starts=starts, **keywords)
    with pytest.raises(kvcheck.Error, match="block_starts"):
        kvcheck.judge_attention(*arrays, *pages, block_table=table, block_starts=starts + 1, **keywords)


@pytest.mark.parametrize("of", ["tensor", "head", "vector"])
def test_scales_of_codes_take_part(of):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = tensors()
    by_vector = np.random.default_rng(3).uniform(0.1, 0.5, (2, 2, 17)).astype(np.float32)
    k_scale, v_scale = {"tensor": (0.25, 0.5), "head": (np.float32([0.25, 0.5]), np.float32([0.125, 0.25])),
                        "vector": (by_vector, by_vector[::-1] * 2)}[of]
    codes = [(x * 3).astype(ml_dtypes.float8_e4m3fn) for x in (k, v)]

    def wide(x, scale):
        return x.astype(np.float32) * (scale[..., None] if of == "vector" else np.reshape(scale, (1, -1, 1, 1)))

    out = attention(q, wide(codes[0], k_scale), wide(codes[1], v_scale))
    assert assert_attention_close(out, q, *codes, k_scale=k_scale, v_scale=v_scale, plan="stranger").passed
    with pytest.raises(AssertionError):
        assert_attention_close(out, q, *codes, k_scale=k_scale, v_scale=k_scale, plan="stranger")


def test_bfloat16_of_ml_dtypes_is_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = tensors(kind=ml_dtypes.bfloat16)
    out = attention(q, k, v)
    verdict = assert_attention_close(out, q, k, v, plan="flash_attention_2")
    assert "q=bf16" in verdict.case
    with pytest.raises(AssertionError):
        assert_attention_close(out * ml_dtypes.bfloat16(1.03), q, k, v, plan="flash_attention_2")


def test_a_failure_replays_from_its_file(failures):
    q, k, v = tensors()
    out = attention(q, k, v)
    out[1, 2, 3, 4] += 1
    with pytest.raises(AssertionError) as raised:
        assert_attention_close(out, q, k, v, plan=PLAN)
    saved, = failures.iterdir()
    assert f"--data {saved}#case" in str(raised.value)
    assert "test_a_failure_replays" in saved.name
    done = subprocess.run([str(program()), "run", "--data", f"{saved}#case"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "out[b=1, hq=2, l=3, dv=4]" in done.stdout.splitlines()[0]


def test_a_failure_that_comes_again_replaces_its_file(failures, monkeypatch):
    q, k, v = tensors()
    for _ in range(3):
        with pytest.raises(AssertionError, match="reproduce"):
            assert_attention_close(q * 2, q, k, v, plan=PLAN)
        testing._saved.clear()  # as in another run
    assert len(list(failures.iterdir())) == 1


@pytest.mark.parametrize("limit", ["MOST_FILES", "MOST_BYTES"])
def test_the_folder_of_failures_is_bounded_and_says_so(failures, monkeypatch, limit):
    q, k, v = tensors()
    with pytest.raises(AssertionError):
        assert_attention_close(q * 2, q, k, v, plan=PLAN)
    first, = failures.iterdir()
    inputs = sum(x.nbytes for x in (q, q, k, v))
    monkeypatch.setattr(testing, limit, {"MOST_FILES": 2, "MOST_BYTES": 2 * first.stat().st_size + inputs}[limit])
    texts = []
    for _ in range(4):
        with pytest.raises(AssertionError) as raised:
            assert_attention_close(q * 2, q, k, v, plan=PLAN)
        texts.append(str(raised.value))
    assert len(list(failures.iterdir())) in (2, 3) and "reproduce" in texts[0] and "reproduce" not in texts[-1]
    assert "were not saved: " in texts[-1] and "holds at most" in texts[-1] and "KVCHECK_FAILURES" in texts[-1]


def test_what_is_said_beside_a_pass_is_a_warning():
    arrays, (q_starts, k_starts) = packed([(5, 5), (3, 4)])
    longer = [np.concatenate([x, x[:2]]) for x in arrays[:2]]
    keywords = {"layout": "shd", "causal": True, "cu_seqlens_q": q_starts, "cu_seqlens_k": k_starts, "plan": PLAN}
    with pytest.warns(kvcheck.KvcheckWarning, match="attention: 2 of 10 tokens are behind the last sequence") as caught:
        assert_attention_close(*longer, *arrays[2:], **keywords)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_attention_close(*arrays, **keywords)
        with pytest.raises(kvcheck.KvcheckWarning):
            assert_attention_close(*longer, *arrays[2:], **keywords)


def test_nothing_is_saved_where_the_folder_is_empty_or_cannot_be_written(monkeypatch, tmp_path):
    q, k, v = tensors()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVCHECK_FAILURES", "")
    with pytest.raises(AssertionError):
        assert_attention_close(q * 2, q, k, v, plan=PLAN)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVCHECK_FAILURES", str(tmp_path / "file" / "below"))
    with pytest.raises(AssertionError, match="were not saved"):
        assert_attention_close(q * 2, q, k, v, plan=PLAN)
    assert os.listdir(tmp_path) == ["file"]


def test_what_proves_nothing_is_no_pass():
    q, k, v = tensors(t=1, l=1)
    out = np.zeros_like(q)
    # Under a bound of infinity nothing is judged.
    verdict = kvcheck.judge_attention(out, q, k * np.float32(1e38), np.float32(1e38) * v, plan="flash_attention_3")
    assert not verdict.passed
    with pytest.raises(AssertionError):
        assert_attention_close(out, q, k * np.float32(1e38), np.float32(1e38) * v, plan="flash_attention_3")


def test_a_verdict_tells_what_it_is():
    q, k, v = tensors()
    out = attention(q, k, v)
    verdict = kvcheck.judge_attention(out, q, k, v, plan=PLAN)
    assert verdict.worst["ratio"] <= 1 and verdict.bound > 0
    assert json.loads(verdict.to_json())["cases"][0]["outcome"] == "PASS"
    out[0, 1, 2, 3] += 0.5
    verdict = kvcheck.judge_attention(out, q, k, v, plan=PLAN)
    assert verdict.outcome == "FAIL" and verdict.worst["coordinates"] == "[b=0, hq=1, l=2, dv=3]"
    assert verdict.worst["error"] == pytest.approx(0.5, abs=verdict.bound)
    assert "<pre" in verdict._repr_html_() and repr(verdict).startswith("<kvcheck.Verdict FAIL")


@pytest.mark.parametrize("fault", [0, 0.5, np.nan])
def test_a_verdict_can_be_pickled_and_copied(fault):
    q, k, v = tensors()
    out = attention(q, k, v, causal=True)
    out[0, 1, 2, 3] += fault
    out[1] += fault
    verdict = kvcheck.judge_attention(out, q, k, v, causal=True, plan=PLAN, rows=40)
    for made in (pickle.loads(pickle.dumps(verdict)), copy.copy(verdict), copy.deepcopy(verdict)):
        assert str(made) == str(verdict) and made.to_json() == verdict.to_json()
        assert made._repr_html_() == verdict._repr_html_() and made.outcome == ("FAIL" if fault else "PASS")
    state = verdict.__getstate__()
    for wrong in (b"", state[:-1], state + b"x", state.replace(b"kvcheck", b"another", 1)):
        with pytest.raises(kvcheck.Error, match="no verdict of this version"):
            kvcheck.Verdict.__new__(kvcheck.Verdict).__setstate__(wrong)


def test_a_verdict_is_neither_true_nor_false():
    q, k, v = tensors()
    for out in (attention(q, k, v), q * 2):
        verdict = kvcheck.judge_attention(out, q, k, v, plan=PLAN)
        with pytest.raises(TypeError, match=rf"\.passed.*\.outcome, which is {verdict.outcome}"):
            bool(verdict)


def test_a_sample_finds_a_fault_in_many_rows_and_says_what_it_judged():
    q, k, v = tensors(b=1, hq=4, hkv=2, l=700, t=33)
    out = attention(q, k, v)
    verdict = assert_attention_close(out, q, k, v, plan=PLAN, rows=200)
    sample = json.loads(verdict.to_json())["cases"][0]["outputs"][0]["sample"]
    assert sample["rows"] <= 200 < sample["of_rows"] == 2800
    assert "a sample of" in str(verdict)
    out[:, :, 100:400] *= 2  # 1200 of 2800 rows: more than found_rows
    assert sample["found_rows"] <= 1200
    with pytest.raises(AssertionError, match="rows-seed 3|a sample|sample"):
        assert_attention_close(out, q, k, v, plan=PLAN, rows=200, seed=3)


def test_threads_do_not_change_a_verdict():
    q, k, v = tensors(l=65)
    out = attention(q, k, v)
    out[0, 0, 40] += 1
    texts = {kvcheck.judge_attention(out, q, k, v, plan=PLAN, threads=n).to_json() for n in (1, 2, 7)}
    assert len(texts) == 1


def test_the_reference_is_attention_and_its_bound_holds():
    q, k, v = tensors()
    values = kvcheck.reference_attention(q, k, v, causal=True, lse=True, plan=PLAN)
    value, low, bound = values["out"]
    wide = attention(*(x.astype(np.float64) for x in (q, k, v)), causal=True)
    # The reference's own error is below the roundings of numpy's float64, whose sums have at most T + D terms.
    assert np.max(np.abs(value - wide)) <= 4 * (17 + 16) * np.finfo(np.float64).eps * np.max(np.abs(v))
    assert np.all(bound > 0) and np.all(np.abs(low) <= np.spacing(np.abs(value)))
    assert np.all(np.abs(attention(q, k, v, causal=True) - value) <= bound)
    assert values["lse"][0].shape == (2, 4, 9)
    moved = kvcheck.reference_attention(*(x.swapaxes(1, 2) for x in (q, k, v)), causal=True, layout="bshd", plan=PLAN)
    assert np.array_equal(moved["out"][0], value)


def test_statistics_fail_what_the_bound_lets_pass():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(3)
    q = rng.standard_normal((1, 4, 2, 64), np.float32).astype(ml_dtypes.bfloat16)
    k, v = rng.standard_normal((2, 1, 4, 8192, 64), np.float32).astype(ml_dtypes.bfloat16)
    without_the_last = kvcheck.reference_attention(q, k[:, :, :-1], v[:, :, :-1], dtype="bfloat16")["out"][0]
    wrong = without_the_last.astype(np.float32).astype(ml_dtypes.bfloat16)
    asked = {"plan": "flash_attention_2"}
    assert kvcheck.judge_attention(wrong, q, k, v, **asked).outcome == "FAIL"
    alone = kvcheck.judge_attention(wrong, q, k, v, rule="bound", **asked)
    assert alone.passed and "by the proven bound alone" in str(alone).splitlines()[0]
    right = kvcheck.reference_attention(q, k, v, dtype="bfloat16")["out"][0].astype(np.float32).astype(ml_dtypes.bfloat16)
    assert kvcheck.judge_attention(right, q, k, v, **asked).passed
    with pytest.raises(kvcheck.Error, match="'statistics' or 'bound'"):
        kvcheck.judge_attention(right, q, k, v, rule="noise", **asked)


def test_must_see_makes_blindness_no_pass():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(3)
    q = rng.standard_normal((1, 1, 1, 8), np.float32).astype(ml_dtypes.bfloat16)
    k, v = rng.standard_normal((2, 1, 1, 4096, 8), np.float32).astype(ml_dtypes.bfloat16)
    out = kvcheck.reference_attention(q, k, v, dtype="bfloat16")["out"][0].astype(np.float32).astype(ml_dtypes.bfloat16)
    lax = kvcheck.judge_attention(out, q, k, v, plan="flash_attention_2")
    assert lax.passed and "blind to: " in str(lax).splitlines()[0]
    for asked in ("standard", ["row factor"]):
        assert kvcheck.judge_attention(out, q, k, v, plan="flash_attention_2", must_see=asked).outcome == "MISTRUSTED"
    assert kvcheck.judge_attention(out, q, k, v, plan="flash_attention_2", must_see="none").passed
    with pytest.raises(kvcheck.Error, match="row factor"):
        kvcheck.judge_attention(out, q, k, v, plan="flash_attention_2", must_see="rows factor")
