"""Sums over keys by torch: the verdict is that of the host, in outcome and element. On the processor, by the code of a GPU."""
import json

import numpy as np
import pytest
from attention import attention, tensors

import kvcheck
from kvcheck import _device

try:
    import torch
except ImportError as error:
    pytestmark = pytest.mark.skip(reason=f"{error.name} is not installed: tools/test.sh --leg python_torch")

QUERIES, KEYS = 80, 96
SEEN = np.random.default_rng(5).random((QUERIES, KEYS)) < 0.7
QUESTIONS = {
    "plain": {}, "causal": {"causal": True}, "window": {"causal": True, "window": 33}, "softcap": {"softcap": 3.0},
    "scale": {"scale": 0.4}, "sinks": {"sinks": np.float32([0.5, -1, 2, 0])}, "gaps": {"mask": SEEN},
    "gaps of batch rows": {"mask": np.stack([SEEN, ~SEEN])[:, None]},
}


def asked(kind, question):
    q, k, v = tensors(b=2, hq=4, hkv=2, l=QUERIES, t=KEYS, d=16, dv=24, kind=np.float32, seed=3)
    q, k, v = (torch.from_numpy(x).to(kind) for x in (q, k, v))
    out = attention(*(x.double().numpy() for x in (q, k, v)), **question)
    return torch.from_numpy(out).to(kind), q, k, v


@pytest.fixture
def calls(monkeypatch):
    counted = []
    call = _device.HeadSums.__call__

    def counting(self, question):
        counted.append((question["batch"], question["kv_head"]))
        return call(self, question)

    monkeypatch.setattr(_device.HeadSums, "__call__", counting)
    return counted


def told(verdict):
    """What a verdict says, but for the last bits of what is measured of rows that pass."""
    case = json.loads(verdict.to_json())["cases"][0]
    outputs = [(output["name"], output["outcome"], output["counts"], output.get("worst")) for output in case["outputs"]]
    return verdict.outcome, verdict.reasons, verdict.hints, outputs


@pytest.mark.parametrize("plan", ["flash_attention_2", "torch_cpu_math", "stranger", "plain_f32"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_verdicts_are_those_of_the_host(name, plan, calls):
    question = QUESTIONS[name]
    for kind in (torch.bfloat16, torch.float32):
        out, *inputs = asked(kind, question)
        wrong = out.clone()
        wrong[1, 3, 41] *= 1.5
        for answer in (out, wrong):
            verdicts = [kvcheck.judge_attention(answer, *inputs, plan=plan, device=device, **question)
                        for device in ("torch", "cpu")]
            assert told(verdicts[0]) == told(verdicts[1])
            if plan != "flash_attention_2" or kind == torch.bfloat16:
                assert verdicts[0].outcome == ("PASS" if answer is out else "FAIL")
    # Every head was asked for, and nothing that was is left.
    assert set(calls) == {(b, h) for b in range(2) for h in range(2)}


def test_rows_are_decided_by_them(calls):
    out, *inputs = asked(torch.bfloat16, {"causal": True})
    verdict = kvcheck.judge_attention(out, *inputs, plan="flash_attention_2", causal=True, device="torch")
    counts = json.loads(verdict.to_json())["cases"][0]["outputs"][0]["counts"]
    assert calls and counts["accepted"] > 0.4 * counts["judged"]


def test_what_they_say_decides(monkeypatch):
    """A device that is wrong is seen: rows that it calls right are not written out."""
    out, *inputs = asked(torch.bfloat16, {})
    call = _device.HeadSums.__call__

    def off(self, question):
        answer = call(self, question)
        answer["sums"][0][0] *= 1.01
        return answer

    monkeypatch.setattr(_device.HeadSums, "__call__", off)
    verdict = kvcheck.judge_attention(out, *inputs, plan="torch_cpu_math", device="torch")
    counts = json.loads(verdict.to_json())["cases"][0]["outputs"][0]["counts"]
    # No value is within the bound, so that the host evaluates every row.
    assert verdict.outcome == "PASS" and counts["accepted"] == 0


def test_chunks_and_layouts_make_no_difference(monkeypatch):
    question = {"causal": True, "sinks": np.float32([0.5, -1, 2, 0])}
    out, q, k, v = asked(torch.bfloat16, question)
    whole = kvcheck.judge_attention(out, q, k, v, plan="flash_attention_2", device="torch", **question)
    monkeypatch.setattr(_device, "MEMORY", 8 * 6 * 2 * KEYS * 7)  # 7 queries of a head group
    chunks = kvcheck.judge_attention(out, q, k, v, plan="flash_attention_2", device="torch", **question)
    assert told(whole) == told(chunks)
    turned = [x.transpose(1, 2).contiguous() for x in (out, q, k, v)]
    assert told(kvcheck.judge_attention(*turned, layout="bshd", plan="flash_attention_2", device="torch", **question)) == told(whole)
    assert kvcheck.judge_attention(*(x[0] for x in (out, q, k, v)), layout="hsd", plan="flash_attention_2", device="torch",
                                   **question).outcome == "PASS"


def test_threads_ask_for_each_head_once(calls):
    out, *inputs = asked(torch.bfloat16, {"causal": True})
    one = kvcheck.judge_attention(out, *inputs, causal=True, plan="flash_attention_2", device="torch", threads=1)
    calls.clear()
    four = kvcheck.judge_attention(out, *inputs, causal=True, plan="flash_attention_2", device="torch", threads=4)
    assert told(one) == told(four)
    assert len(calls) == len(set(calls)) == 4


def test_what_cannot_be_asked_of_a_device_is_evaluated_here(calls):
    out, q, k, v = asked(torch.bfloat16, {})
    bias = torch.zeros(QUERIES, KEYS)
    bias[:, 3] = 0.5
    biased = attention(*(x.double().numpy() for x in (q, k, v)), mask=bias.numpy())
    assert kvcheck.judge_attention(torch.from_numpy(biased).bfloat16(), q, k, v, mask=bias, device="torch").outcome == "PASS"
    assert kvcheck.judge_attention(out, q, k, v, device="cpu").outcome == "PASS"
    assert kvcheck.judge_attention(out, q, k, v).outcome == "PASS"
    assert kvcheck.judge_attention(out[:, :, :8], q[:, :, :8], k, v, device="torch").outcome == "PASS"
    assert not calls
    with pytest.raises(kvcheck.Error, match="device='gpu'"):
        kvcheck.judge_attention(out, q, k, v, device="gpu")
    for refused in ((q[0], k, v), (q[:, :1], k, v), (q, k, v[:, :1])):
        with pytest.raises(kvcheck.Error):
            kvcheck.judge_attention(out, *refused, device="torch")


@pytest.mark.parametrize("error", [MemoryError("full"), RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")])
def test_without_memory_the_host_evaluates(monkeypatch, error):
    def full(self, torch, question):
        raise error

    monkeypatch.setattr(_device.HeadSums, "_make", full)
    out, *inputs = asked(torch.bfloat16, {})
    assert kvcheck.judge_attention(out, *inputs, device="torch").outcome == "PASS"


def test_an_error_of_the_device_is_said(monkeypatch):
    def broken(self, torch, question):
        raise RuntimeError("the card fell off")

    monkeypatch.setattr(_device.HeadSums, "_make", broken)
    out, *inputs = asked(torch.bfloat16, {})
    with pytest.raises(kvcheck.Error, match="the card fell off"):
        kvcheck.judge_attention(out, *inputs, device="torch")
