"""The problems that make_mlx.py puts to mx.fast.scaled_dot_product_attention: a table of what each one is for."""

ALL = ("f32", "f16", "bf16")
TWO = ("f32", "bf16")  # where the type changes nothing but roundings that other problems have

# name, types, fields of Problem.
PROBLEMS = [
    # Queries: decode and prefill.
    ("decode.none", ALL, dict(batch=2, query_heads=4, kv_heads=2, query_len=1, kv_len=17)),
    ("decode.one_key", ALL, dict(query_heads=2, kv_heads=1, query_len=1, kv_len=1, k_dim=64)),
    ("prefill.none", ALL, dict(query_heads=4, kv_heads=2, query_len=5, kv_len=17)),
    ("decode.t600", TWO, dict(query_heads=4, kv_heads=1, query_len=2, kv_len=600, k_dim=8)),
    # Causal, bottom right: L = T, L < T, and L > T, where the first queries see nothing.
    ("causal.square", ALL, dict(query_heads=2, kv_heads=1, query_len=16, kv_len=16, k_dim=32, causal="bottom_right")),
    ("causal.chunk", ALL, dict(query_heads=4, kv_heads=2, query_len=5, kv_len=21, k_dim=32, causal="bottom_right")),
    ("causal.more_queries_than_keys", ALL, dict(query_heads=2, kv_heads=2, query_len=7, kv_len=4, k_dim=32,
                                                causal="bottom_right")),
    # Windows and padding, as arrays.
    ("window.square", ALL, dict(query_heads=2, kv_heads=1, query_len=12, kv_len=12, k_dim=32, causal="bottom_right",
                                window=3)),
    ("window.chunk", ALL, dict(query_heads=2, kv_heads=1, query_len=6, kv_len=17, k_dim=32, causal="bottom_right",
                               window=4)),
    ("window.decode", ALL, dict(query_heads=4, kv_heads=2, query_len=1, kv_len=20, k_dim=32, causal="bottom_right",
                                window=1)),
    ("left_pad.prefill", ALL, dict(batch=2, query_heads=2, kv_heads=1, query_len=9, kv_len=9, k_dim=16,
                                   causal="bottom_right", left_pad=(0, 4))),
    ("left_pad.decode", ALL, dict(batch=3, query_heads=4, kv_heads=2, query_len=1, kv_len=13, k_dim=32,
                                  left_pad=(0, 5, 12))),
    # Arrays, in every shape that broadcasts. B = Hkv, so that axes may be confused without an error.
    *[(f"{array}.{axes}", TWO, dict(batch=2, query_heads=4, kv_heads=2, query_len=3, kv_len=11, k_dim=32, array=array,
                                    axes=axes))
      for array in ("bool", "additive") for axes in ("T", "LT", "B1LT", "BHLT", "B11T")],
    ("bool.hidden_row", ALL, dict(query_heads=2, kv_heads=1, query_len=4, kv_len=9, k_dim=32, array="bool",
                                  hide_rows=(2,))),
    ("additive.hides", ALL, dict(query_heads=2, kv_heads=1, query_len=4, kv_len=9, k_dim=32, array="additive",
                                 additive_hides=True)),
    ("additive.hidden_row", ALL, dict(query_heads=2, kv_heads=1, query_len=4, kv_len=9, k_dim=32, array="additive",
                                      additive_hides=True, hide_rows=(2,))),
    # Attention sinks.
    ("sinks.none", ALL, dict(query_heads=8, kv_heads=2, query_len=1, kv_len=19, k_dim=32, sinks=True)),
    ("sinks.causal", ALL, dict(query_heads=4, kv_heads=2, query_len=6, kv_len=10, k_dim=32, causal="bottom_right",
                               sinks=True)),
    ("sinks.window", ALL, dict(query_heads=4, kv_heads=2, query_len=6, kv_len=15, k_dim=32, causal="bottom_right",
                               window=4, sinks=True)),
    ("sinks.hidden_row", ALL, dict(query_heads=4, kv_heads=2, query_len=3, kv_len=9, k_dim=32, array="bool",
                                   hide_rows=(1,), sinks=True)),
    ("sinks.additive", ALL, dict(query_heads=4, kv_heads=2, query_len=3, kv_len=9, k_dim=32, array="additive",
                                 sinks=True)),
    # Groups of query heads.
    *[(f"gqa.{hq}_{hkv}", TWO, dict(query_heads=hq, kv_heads=hkv, query_len=2, kv_len=9, k_dim=32))
      for hq, hkv in ((4, 4), (8, 4), (8, 2), (8, 1))],
    # Head sizes; alpha is no power of two in most of them.
    *[(f"head.{d}", TWO, dict(query_heads=2, kv_heads=1, query_len=2, kv_len=10, k_dim=d))
      for d in (1, 7, 80, 128, 256)],
    ("head.64_32", TWO, dict(query_heads=2, kv_heads=1, query_len=3, kv_len=10, k_dim=64, v_dim=32)),
    ("head.24_40", TWO, dict(query_heads=2, kv_heads=1, query_len=3, kv_len=10, k_dim=24, v_dim=40)),
    # Data.
    *[(f"data.{regime}", ALL, dict(query_heads=2, kv_heads=1, query_len=2, kv_len=20, k_dim=40, regime=regime))
      for regime in ("outlier", "sink_token", "same_sign_v", "huge_scores", "constant_v", "equal_keys")],
    ("data.scale_one", ALL, dict(query_heads=2, kv_heads=1, query_len=2, kv_len=12, k_dim=32, scale=1.0)),
]
