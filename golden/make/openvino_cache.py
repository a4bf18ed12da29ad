"""OpenVINO's paged cache of keys by channel, on a CPU: what its plugin itself writes into the cache tensor of a
PagedAttentionExtension. A block is 32 tokens of one head: as bytes, one f32 scale a channel, one f32 zero a channel, then the
codes token after token (u4: two a byte). For make_channel.py and count_channel.py."""
import numpy as np

TOKENS = 32  # of a block
_I32 = np.int32


class KeyCache:
    """One layer, one key/value head; sequences with blocks of their own."""

    def __init__(self, bits, channels, sequences, blocks):
        """blocks: of a sequence."""
        import openvino as ov

        self.bits, self.channels, self.sequences, self.blocks = bits, channels, sequences, blocks
        self.lengths = np.zeros(sequences, _I32)
        self.request = _compiled(bits, channels).create_infer_request()
        count = sequences * blocks
        self.keys = np.zeros((count, (8 * channels + TOKENS * channels * bits // 8)), np.uint8)
        rows = TOKENS + 8 * 8 // bits
        element = {4: ov.Type.u4, 8: ov.Type.u8}[bits]
        self._key_tensor = ov.Tensor(self.keys, ov.Shape([count, 1, rows, channels]), element)
        self._value_tensor = ov.Tensor(np.zeros((count, 1, TOKENS, channels + 8), np.uint8))

    def append(self, tokens):
        """tokens: (sequences, n, channels), float32."""
        import openvino as ov

        sequences, new, channels = tokens.shape
        after = self.lengths + new
        flat = np.ascontiguousarray(tokens, np.float32).reshape(-1, channels)
        used = -(-after // TOKENS)
        inputs = {
            "query": np.zeros_like(flat), "key": flat, "value": np.zeros_like(flat),
            "past_lens": self.lengths, "subsequence_begins": np.arange(sequences + 1, dtype=_I32) * _I32(new),
            "block_indices": np.concatenate([np.arange(n) + s * self.blocks for s, n in enumerate(used)]).astype(_I32),
            "block_indices_begins": np.concatenate([[0], np.cumsum(used)]).astype(_I32),
            "scale": np.array(1, np.float32), "sliding_window": np.array(0, _I32), "alibi_slopes": np.zeros(0, np.float32),
            "max_context_len": np.array(after.max(), _I32), "score_aggregation_window": np.zeros(0, _I32),
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
        self.lengths = after

    def stored(self):
        """Of every block codes, one a byte, (blocks, TOKENS, channels); scales and zeros, (blocks, channels)."""
        parameters = self.keys[:, :8 * self.channels].copy().view(np.float32).reshape(-1, 2, self.channels)
        codes = self.keys[:, 8 * self.channels:]
        if self.bits == 4:
            codes = _nibbles(codes)
        return codes.reshape(-1, TOKENS, self.channels), parameters[:, 0], parameters[:, 1]


def _nibbles(codes):
    return np.stack([codes >> 4, codes & 15], -1).reshape(len(codes), -1)


def _compiled(bits, channels):
    import openvino as ov
    from openvino.op import Parameter, _PagedAttentionExtension

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
    parameters = []
    for name, element, rank in inputs:
        width = [-1] * rank if name not in ("query", "key", "value") else [-1, channels]
        parameters.append(Parameter(element, ov.PartialShape(width)))
        parameters[-1].output(0).set_names({name})
    attention = _PagedAttentionExtension([parameter.output(0) for parameter in parameters])
    for name in ("num_k_heads", "num_v_heads"):
        attention.get_rt_info()[name] = 1
    for name in ("k_head_size", "v_head_size"):
        attention.get_rt_info()[name] = channels
    model = ov.Model([attention.output(0)], parameters, "keys")
    return ov.Core().compile_model(model, "CPU", {
        "KEY_CACHE_PRECISION": f"u{bits}", "VALUE_CACHE_PRECISION": "u8", "KEY_CACHE_QUANT_MODE": "BY_CHANNEL",
        "INFERENCE_PRECISION_HINT": "f32"})
