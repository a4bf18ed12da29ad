"""OpenVINO's paged cache with keys by channel, on a CPU: what its plugin itself writes into the cache tensors of a
PagedAttentionExtension, and its attention over them.

A block is 32 tokens of one head. Of keys it has, as bytes, one f32 scale a channel, one f32 zero a channel, then the codes token after
token (u4: two a byte, the first in the high half); of values, token after token, an f32 scale, an f32 zero and u8 codes: the plugin has no
plain values beside coded keys.

For adapter.py, and for golden/make/make_channel.py and count_channel.py.
"""
import copy
import functools

import numpy as np
import openvino as ov
from openvino.op import Parameter, _PagedAttentionExtension

TOKENS = 32  # of a block
_I32 = np.int32
_ELEMENT = {4: ov.Type.u4, 8: ov.Type.u8}


class PagedCache:
    """One layer; sequences of equal length, each with `blocks` blocks of its own."""

    def __init__(self, bits, channels, sequences, blocks, kv_heads=1, query_heads=1, value_channels=None):
        """value_channels: those of keys where left out."""
        value_channels = value_channels or channels
        self.bits, self.channels, self.value_channels, self.sequences, self.blocks = bits, channels, value_channels, sequences, blocks
        self.kv_heads, self.query_heads, self.length = kv_heads, query_heads, 0
        self.request = _compiled(bits, channels, value_channels, kv_heads, query_heads).create_infer_request()
        count = sequences * blocks
        self.keys = np.zeros((count, kv_heads, 8 * channels + TOKENS * channels * bits // 8), np.uint8)
        self.values = np.zeros((count, kv_heads, TOKENS, value_channels + 8), np.uint8)
        self._bind()

    def _bind(self):
        """Tensors over the arrays, which the plugin writes."""
        rows = TOKENS + 8 * 8 // self.bits
        shape = ov.Shape([len(self.keys), self.kv_heads, rows, self.channels])
        self._key_tensor = ov.Tensor(self.keys, shape, _ELEMENT[self.bits])
        self._value_tensor = ov.Tensor(self.values, shared_memory=True)

    def copied(self):
        """The same cache in memory of its own; one request serves both, one after the other."""
        other = copy.copy(self)
        other.keys, other.values = self.keys.copy(), self.values.copy()
        other._bind()
        return other

    def append(self, keys, values, queries, scale=1):
        """keys, values, queries: (sequences, heads, n, channels), float32. Returns attention of the queries, likewise."""
        sequences, _, new, _ = keys.shape
        after = self.length + new
        used = -(-after // TOKENS)

        def flat(x):
            return np.ascontiguousarray(x.swapaxes(1, 2), np.float32).reshape(sequences * new, -1)

        blocks = np.arange(used) + np.arange(sequences)[:, None] * self.blocks
        inputs = {
            "query": flat(queries), "key": flat(keys), "value": flat(values),
            "past_lens": np.full(sequences, self.length, _I32), "subsequence_begins": np.arange(sequences + 1, dtype=_I32) * _I32(new),
            "block_indices": blocks.reshape(-1).astype(_I32), "block_indices_begins": np.arange(sequences + 1, dtype=_I32) * _I32(used),
            "scale": np.array(scale, np.float32), "sliding_window": np.array(0, _I32), "alibi_slopes": np.zeros(0, np.float32),
            "max_context_len": np.array(after, _I32), "score_aggregation_window": np.zeros(0, _I32),
            "rotated_block_indices": np.zeros(0, _I32), "rotation_deltas": np.zeros((0, 0), _I32),
            "rotation_trig_lut": np.zeros((0, 0), np.float32), "xattention_threshold": np.zeros(0, np.float32),
            "xattention_block_size": np.array(64, _I32), "xattention_stride": np.array(8, _I32),
            "sinks": np.zeros((0, 0, 0, 0), np.float32), "adaptive_rkv_start_size": np.array(0, _I32),
            "adaptive_rkv_evictable_sizes": np.zeros(0, _I32),
            "adaptive_rkv_diversity_block_set_indices": np.zeros(0, _I32),
            "adaptive_rkv_diversity_block_set_indices_begins": np.zeros(0, _I32), "token_type_ids": np.zeros(0, _I32),
            "qq_bias": np.zeros(0, np.uint8), "qq_bias_begins": np.zeros(0, _I32)}
        for name, array in inputs.items():
            self.request.set_tensor(name, ov.Tensor(array))
        self.request.set_tensor("key_cache", self._key_tensor)
        self.request.set_tensor("value_cache", self._value_tensor)
        self.request.infer()
        self.length = after
        out = self.request.get_output_tensor(0).data.reshape(sequences, new, self.query_heads, self.value_channels)
        return out.swapaxes(1, 2).copy()

    def stored(self):
        """Of every block codes, one a byte, (blocks, heads, TOKENS, channels); scales and zeros, (blocks, heads, channels)."""
        split = 8 * self.channels
        parameters = self.keys[..., :split].copy().view(np.float32).reshape(*self.keys.shape[:2], 2, self.channels)
        codes = self.keys[..., split:]
        if self.bits == 4:
            codes = np.stack([codes >> 4, codes & 15], -1)
        return codes.reshape(*self.keys.shape[:2], TOKENS, self.channels), parameters[:, :, 0], parameters[:, :, 1]


@functools.cache
def _compiled(bits, channels, value_channels, kv_heads, query_heads):
    real, integer, any_type = ov.Type.f32, ov.Type.i32, ov.Type.dynamic
    inputs = (("query", real, 2), ("key", real, 2), ("value", real, 2), ("key_cache", any_type, 4), ("value_cache", any_type, 4),
              ("past_lens", integer, 1), ("subsequence_begins", integer, 1), ("block_indices", integer, 1),
              ("block_indices_begins", integer, 1), ("scale", real, 0), ("sliding_window", integer, 0), ("alibi_slopes", real, 1),
              ("max_context_len", integer, 0), ("score_aggregation_window", integer, 1), ("rotated_block_indices", integer, 1),
              ("rotation_deltas", integer, 2), ("rotation_trig_lut", real, 2), ("xattention_threshold", real, 1),
              ("xattention_block_size", integer, 0), ("xattention_stride", integer, 0), ("sinks", real, 4),
              ("adaptive_rkv_start_size", integer, 0), ("adaptive_rkv_evictable_sizes", integer, 1),
              ("adaptive_rkv_diversity_block_set_indices", integer, 1),
              ("adaptive_rkv_diversity_block_set_indices_begins", integer, 1), ("token_type_ids", integer, 1),
              ("qq_bias", ov.Type.u8, 1), ("qq_bias_begins", integer, 1))
    widths = {"query": query_heads * channels, "key": kv_heads * channels, "value": kv_heads * value_channels}
    parameters = []
    for name, element, rank in inputs:
        shape = [-1, widths[name]] if name in widths else [-1] * rank
        parameters.append(Parameter(element, ov.PartialShape(shape)))
        parameters[-1].output(0).set_names({name})
    attention = _PagedAttentionExtension([parameter.output(0) for parameter in parameters])
    for name in ("num_k_heads", "num_v_heads"):
        attention.get_rt_info()[name] = kv_heads
    attention.get_rt_info()["k_head_size"], attention.get_rt_info()["v_head_size"] = channels, value_channels
    model = ov.Model([attention.output(0)], parameters, "cache")
    return ov.Core().compile_model(model, "CPU", {
        "KEY_CACHE_PRECISION": f"u{bits}", "VALUE_CACHE_PRECISION": "u8", "KEY_CACHE_QUANT_MODE": "BY_CHANNEL",
        "INFERENCE_PRECISION_HINT": "f32"})
