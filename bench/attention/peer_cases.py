"""What peers.py measures: cases, and in each the entries that are interleaved."""

KINDS = ("decode", "layers", "layout", "prefill", "batch")
OWN_FORMATS = {"f32": "f32", "f16": "f16", "bf16": "bf16", "fp8": "f8e4m3fn", "8-bit": "affine:8:g64:f16",
               "4-bit": "affine:4:g64:f16"}
GGML_BLOCKS = {"q8_0 blocks": "q8_0", "q4_0 blocks": "q4_0"}  # the bytes that ggml reads
MLX_TOKENS = 4096


def own(name, **more):
    return {"server": "own", "kind": "attention", "format": (OWN_FORMATS | GGML_BLOCKS)[name], **more}


def decode_entries(tokens):
    entries = {f"ours {name}": own(name) for name in OWN_FORMATS | GGML_BLOCKS}
    entries |= {f"torch {name}, folded": {"server": "torch", "format": name, "way": "fold"} for name in ("f32", "f16", "bf16")}
    entries |= {f"ggml {name}": {"server": "ggml", "format": name} for name in ("f16", "q8_0", "q4_0")}
    entries |= {f"OpenVINO {name}": {"server": "openvino", "format": name} for name in ("f16", "u8")}
    if tokens <= MLX_TOKENS:
        entries["MLX f32"] = {"server": "mlx", "format": "f32"}
    return entries


def cases_of(kinds, contexts, prompts, cold):
    """(case, its entries by label). Contexts and prompts in tokens, cold in bytes; entries are the options of a server's setup."""
    for kind in kinds:
        if kind == "prefill":
            for tokens in prompts:
                for causal in (0, 1):
                    entries = {f"ours {name}": own(name) for name in ("f32", "8-bit", "4-bit")}
                    entries |= {f"torch f32, {words}": {"server": "torch", "format": "f32", "way": way}
                                for way, words in (("gqa", "enable_gqa"), ("expand", "K and V repeated"))}
                    size = {"tokens": tokens, "queries": tokens, "causal": causal}
                    yield {"case": kind, **size}, {label: {**entry, **size} for label, entry in entries.items()}
            continue
        for tokens in contexts:
            size = {"tokens": tokens, "queries": 1, "causal": 0}
            if kind in ("decode", "layers"):
                entries = decode_entries(tokens)
            elif kind == "layout":
                entries = {f"ours {name}, {layout}-major": own(name, layout=layout)
                           for name in ("f16", "8-bit", "4-bit") for layout in ("head", "token")}
            else:
                entries = {f"ours {name}, {words}": own(name, calls=calls, batch=4) for name in ("f32", "f16", "8-bit", "4-bit")
                           for calls, words in (("one", "one call"), ("each", "four calls"))}
            if kind == "layers":
                size["cold"] = cold
            yield {"case": kind, **size}, {label: {**entry, **size} for label, entry in entries.items()}


def key_of(case):
    """Cases of the report in their order."""
    return KINDS.index(case["case"]), case["tokens"], case["queries"], case["causal"]
