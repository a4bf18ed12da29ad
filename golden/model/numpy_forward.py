#!/usr/bin/env python3
"""The model in numpy, float64, on its own: K and V of every layer, and logits, of the first tokens of a text.

    numpy_forward.py OUT.h5 [--tokens 2048] [--text HELD_OUT.txt] [--model FOLDER]

OUT.h5 holds `layers/I/k` (after RoPE) and `layers/I/v` (KV heads, tokens, head_dim) in float32, as a cache is
given them, and `logits` (tokens, vocabulary) in float64. Token 0 is BOS; token i > 0 is byte i - 1 of the text.
Needs numpy and h5py (golden/make/requirements-check.txt). Rows of a real model for `kvcheck bench formats`:

    kvcheck bench formats --tensor OUT.h5:layers/0/k --tensor OUT.h5:layers/0/v
"""

import argparse
import json
import pathlib
import struct

import h5py
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent


def read_bfloat16(path):
    """Tensors of a safetensors file of bfloat16, as float64."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            raise SystemExit(f"{path}: {name} is {entry['dtype']}, the model's weights are BF16")
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(data[begin:end], dtype="<u2").astype(np.uint32) << 16
        tensors[name] = bits.view(np.float32).astype(np.float64).reshape(entry["shape"])
    return tensors


def forward(config, weights, tokens):
    """Yields (k, v) of each layer, then logits."""
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    positions = np.arange(len(tokens))
    angles = positions[:, None] * config["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angles), np.sin(angles)
    distance = positions[:, None] - positions[None, :]

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * weights[name + ".weight"]

    def project(x, name, count):
        return (x @ weights[name + ".weight"].T).reshape(len(tokens), count, dim).transpose(1, 0, 2)

    def rotate(x):
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)

    x = weights["model.embed_tokens.weight"][tokens]
    for layer, kind in enumerate(config["layer_types"]):
        prefix = f"model.layers.{layer}."
        n = norm(x, prefix + "input_layernorm")
        q = rotate(project(n, prefix + "self_attn.q_proj", heads))
        k = rotate(project(n, prefix + "self_attn.k_proj", kv_heads))
        v = project(n, prefix + "self_attn.v_proj", kv_heads)
        yield k, v
        visible = distance >= 0
        if kind == "sliding_attention":
            visible &= distance < config["sliding_window"]
        outputs = []
        for head in range(heads):
            of = head // (heads // kv_heads)
            scores = np.where(visible, q[head] @ k[of].T / np.sqrt(dim), -np.inf)
            probabilities = np.exp(scores - scores.max(-1, keepdims=True))
            outputs.append(probabilities / probabilities.sum(-1, keepdims=True) @ v[of])
        x = x + np.concatenate(outputs, axis=-1) @ weights[prefix + "self_attn.o_proj.weight"].T
        n = norm(x, prefix + "post_attention_layernorm")
        gate = n @ weights[prefix + "mlp.gate_proj.weight"].T
        up = n @ weights[prefix + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[prefix + "mlp.down_proj.weight"].T
    yield norm(x, "model.norm") @ weights["model.embed_tokens.weight"].T


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--text", type=pathlib.Path, default=HERE / "held_out.txt")
    parser.add_argument("--model", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    config = json.loads((arguments.model / "config.json").read_text())
    weights = read_bfloat16(arguments.model / "model.safetensors")
    text = np.frombuffer(arguments.text.read_bytes(), dtype=np.uint8)
    if not 1 <= arguments.tokens <= len(text):
        raise SystemExit(f"--tokens: 1 to {len(text)}, the bytes of {arguments.text}")
    tokens = np.concatenate(([config["bos_token_id"]], text[: arguments.tokens - 1])).astype(np.int64)
    *layers, logits = forward(config, weights, tokens)
    with h5py.File(arguments.out, "w") as file:
        for index, (k, v) in enumerate(layers):
            file[f"layers/{index}/k"] = k.astype(np.float32)
            file[f"layers/{index}/v"] = v.astype(np.float32)
        file["logits"] = logits
    top = logits.max(-1, keepdims=True)
    log_sum = top[:, 0] + np.log(np.exp(logits - top).sum(-1))
    bits = (log_sum - logits[np.arange(len(tokens)), text[: len(tokens)]]) / np.log(2)
    print(f"{arguments.out}: {len(tokens)} tokens, {len(layers)} layers, {bits.mean():.4f} bits per byte")


if __name__ == "__main__":
    main()
