"""Sums over keys where the tensors lie: what the tolerance of a row needs of its keys, in float64, by torch.

The judge asks for a head at a time (reference/attention/row_sums.h) and decides from the sums which rows are right; only
those that it cannot decide are evaluated on the host. Torch's products, exp and tanh in float64 are within what it assumes:
sums in any order, exp and tanh within an ulp.
"""
import sys
import threading

import numpy as np

# Bytes on the device at once, of scores and weights and of the sums of the heads that are evaluated together, unless a single
# head needs more; beside them lie the K and V of these heads in float64, and the tensors of the call.
MEMORY = 1 << 30
_ARRAYS_AT_ONCE = 6  # of float64, a number for each row and key
_INFINITY = float("inf")


class HeadSums:
    """Answers HeadQuestion for a call. q (B, Hq, L, D), k (B, Hkv, T, D), v (B, Hkv, T, Dv): tensors of one device.

    As many heads are evaluated together as MEMORY holds, and what was not asked for yet is kept on the host.
    """

    def __init__(self, q, k, v, memory=None):
        self.q, self.k, self.v = q, k, v
        self.group = q.shape[1] // k.shape[1]
        # Bytes that one query of a head group takes: its sums, which are kept for all queries, and its scores.
        sums = 8 * 3 * self.group * v.shape[3]
        scores = 8 * _ARRAYS_AT_ONCE * self.group * k.shape[2]
        memory = memory or MEMORY
        self.heads = max(1, memory // ((scores + sums) * q.shape[2]))
        self.queries = max(1, min((memory - sums * q.shape[2]) // scores, q.shape[2]))
        self.batch = None  # whose columns are known
        self.first = self.end = self.visible = None
        self.made = {}
        self.answered = set()
        self.lock = threading.Lock()

    def __call__(self, question):
        """{"numbers": (9, rows), "sums": (3, rows, Dv)} in float64, or None where the device has no memory for them."""
        torch = sys.modules["torch"]
        key = question["batch"], question["kv_head"]
        with self.lock:
            if self.batch != question["batch"]:
                self._see(torch, question)
            if key not in self.made:
                try:
                    with torch.no_grad():
                        self._make(torch, question)
                except (torch.cuda.OutOfMemoryError, MemoryError):
                    return None
                except RuntimeError as error:  # of cuBLAS, and of pinned memory
                    if "ALLOC_FAILED" in str(error) or "out of memory" in str(error):
                        return None
                    raise
            self.answered.add(key)
            return self.made.pop(key)

    def _see(self, torch, question):
        self.first, self.end = (np.frombuffer(question[name], np.int32) for name in ("first", "end"))
        self.visible = None
        visible = question["visible"]()
        if visible:
            visible = np.frombuffer(visible, bool).reshape(len(self.first), -1)
            self.visible = torch.from_numpy(visible.copy()).to(self.q.device)
        self.batch = question["batch"]

    def _make(self, torch, question):
        batch, head = question["batch"], question["kv_head"]
        heads = min(self.heads, self.k.shape[1] - head)
        of_heads = slice(head, head + heads)
        q = self.q[batch].reshape(-1, self.group, *self.q.shape[2:])[of_heads]
        k = self.k[batch, of_heads].to(torch.float64).transpose(1, 2)
        v = self.v[batch, of_heads].to(torch.float64)
        values = (v, v.abs(), v.square())
        sinks = None
        if question["sinks"]:
            sinks = torch.tensor(question["sinks"], dtype=torch.float64, device=q.device)
            sinks = sinks.reshape(-1, self.group, 1)[of_heads]
        length = q.shape[2]
        parts = 3 if question["rounds"] else 2
        numbers = q.new_zeros((heads, 9, self.group, length), dtype=torch.float64)
        sums = q.new_zeros((heads, parts, self.group, length, v.shape[-1]), dtype=torch.float64)
        for begin in range(0, length, self.queries):
            at = slice(begin, min(begin + self.queries, length))
            self._chunk(torch, question, q[:, :, at], k, values, at, sinks, numbers[..., at], sums[:, :, :, at])
        on_host = []
        for tensor in (numbers, sums):
            on_host.append(torch.empty(tensor.shape, dtype=torch.float64, pin_memory=q.is_cuda))
            on_host[-1].copy_(tensor, non_blocking=True)
        if q.is_cuda:
            torch.cuda.current_stream(q.device).synchronize()
        numbers, sums = (x.numpy() for x in on_host)
        for i in range(heads):
            if (batch, head + i) in self.answered and i > 0:
                continue  # asked again is a head whose sums were let go; the others will not be
            self.made[batch, head + i] = {"numbers": (numbers[i].reshape(9, -1), "float64"),
                                          "sums": (sums[i].reshape(parts, self.group * length, -1), "float64")}

    def _hidden(self, torch, at, columns):
        """(queries, columns): what they do not see."""
        first, end = (torch.from_numpy(x[at].astype(np.int64)).to(self.q.device)[:, None] for x in (self.first, self.end))
        column = torch.arange(columns.start, columns.stop, device=self.q.device)
        hidden = (column < first) | (column >= end)
        return hidden if self.visible is None else hidden | ~self.visible[at, columns]

    def _chunk(self, torch, question, q, k, values, at, sinks, numbers, sums):
        """Queries of some heads over the columns that any of them sees. Shapes: q (heads, G, queries, D), k (heads, D, T),
        values (heads, T, Dv). Fills numbers (heads, 9, G, queries), sums (heads, 2 or 3, G, queries, Dv)."""
        sees = self.end[at] > self.first[at]
        if not sees.any():
            return
        columns = slice(int(self.first[at][sees].min()), int(self.end[at].max()))
        hidden = self._hidden(torch, at, columns)
        heads, rows = q.shape[0], q.shape[1] * q.shape[2]
        x = torch.bmm(q.reshape(heads, rows, -1).to(torch.float64), k[:, :, columns])
        x = x.view(*q.shape[:3], -1).mul_(question["scale"])
        numbers[:, 2] = x.abs().masked_fill_(hidden, 0).amax(-1)
        cap = question["softcap"]
        s = x.div_(cap).tanh_().mul_(cap) if cap > 0 else x
        numbers[:, 1] = s.masked_fill(hidden, _INFINITY).amin(-1)
        s.masked_fill_(hidden, -_INFINITY)
        top = s.amax(-1)
        if sinks is not None:
            top = torch.maximum(top, sinks)
        top = torch.where(top == -_INFINITY, 0.0, top)  # of rows that nothing is asked of
        e = s.sub_(top[..., None]).exp_()
        sink_e = torch.zeros_like(top) if sinks is None else torch.exp(sinks - top)
        denominator = e.sum(-1) + sink_e
        heaviest_e, heaviest = e.max(-1)
        for i, of_row in ((0, top), (3, denominator), (4, sink_e), (5, heaviest + columns.start), (6, heaviest_e)):
            numbers[:, i] = of_row
        values = [x[:, columns] for x in values]

        def sum_of(weights, value):
            return torch.bmm(weights.view(heads, rows, -1), value).view(*q.shape[:3], -1)

        sums[:, 0], sums[:, 1] = sum_of(e, values[0]), sum_of(e, values[1])
        if not question["rounds"]:
            return
        least = question["least"] * (denominator[..., None] if question["normalised"] else 1)
        others = e < least
        if question["most"] < _INFINITY:
            others |= e > question["most"]
        numbers[:, 8] = torch.where(others, e, 0.0).sum(-1)
        squares = e.masked_fill_(others, 0).square_()
        numbers[:, 7] = squares.sum(-1)
        sums[:, 2] = sum_of(squares, values[2])


def head_sums(q, k, v, layout, device):
    """What answers for a call, or None: its tensors are not torch's, not of one device, or of the host. device: None, where
    the tensors lie; "cpu", the host evaluates all; "torch", by torch wherever they lie."""
    torch = sys.modules.get("torch")
    if device == "cpu" or torch is None or not all(isinstance(x, torch.Tensor) for x in (q, k, v)):
        return None
    if len({x.device for x in (q, k, v)}) > 1 or not (q.is_cuda or (device == "torch" and q.device.type == "cpu")):
        return None
    axes = layout if "b" in layout else "b" + layout
    if sorted(axes) != sorted("bhsd") or any(x.ndim != len(layout) or 0 in x.shape for x in (q, k, v)):
        return None  # which the judge refuses, or has nothing to ask of
    at = layout.index("h")
    if q.shape[at] % k.shape[at] != 0 or k.shape[at] != v.shape[at]:
        return None

    def dense(x):
        x = x.detach() if "b" in layout else x.detach().unsqueeze(0)
        return x.permute(*(axes.index(axis) for axis in "bhsd"))

    return HeadSums(*(dense(x) for x in (q, k, v)))
