#!/usr/bin/env python3
"""Trains the model by which `kvcheck agree` asks whether a cache still says the same: a byte-level decoder
of Llama's architecture (RMSNorm, RoPE, grouped queries, SwiGLU, tied embeddings), one layer with a sliding
window. Minutes on a GPU.

    train.py --text TRAIN.txt --held-out HELD_OUT.txt --out FOLDER [--steps 4000] [--seed 1]

The texts are those of make_text.py. Writes to FOLDER:

    model.safetensors   weights in bfloat16, named as in transformers' Llama; what was measured, in __metadata__
    config.json         transformers' and mlx-lm's configuration
    training.csv        step, training loss and held-out loss, in bits per byte
    statistics.json     what K and V of the held-out text look like, layer by layer

Every sequence begins with the byte 0, which no text has: like a model's BOS token it gives attention a place
to rest. Held-out bits per byte are those of the bfloat16 weights, computed in float32, over windows of 2048
bytes with a stride of 1024: every byte is predicted from at least 1024 others where the text has them.
"""

import argparse
import csv
import hashlib
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

CONFIG = {
    "architectures": ["MinistralForCausalLM"],
    "model_type": "ministral",
    "vocab_size": 256,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "sliding_window": 256,
    "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": None,
    "torch_dtype": "bfloat16",
}
BOS = CONFIG["bos_token_id"]
LENGTH = 2048
BATCH = 24
DROPOUT = 0.1
HEADS, KV_HEADS, HEAD_DIM = (CONFIG[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))


def rms_norm(x, weight):
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + CONFIG["rms_norm_eps"])
    return (x.float() * scale).to(x.dtype) * weight.to(x.dtype)


def rotate(x, cos, sin):
    """RoPE on the halves of a head: x (batch, heads, tokens, head_dim), cos and sin (tokens, head_dim / 2)."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Layer(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
        self.window = CONFIG["sliding_window"] if kind == "sliding_attention" else None
        self.input_layernorm = torch.nn.Parameter(torch.ones(width))
        self.post_attention_layernorm = torch.nn.Parameter(torch.ones(width))
        linear = lambda rows, columns: torch.nn.Linear(columns, rows, bias=False)
        self.q_proj, self.o_proj = linear(HEADS * HEAD_DIM, width), linear(width, HEADS * HEAD_DIM)
        self.k_proj, self.v_proj = linear(KV_HEADS * HEAD_DIM, width), linear(KV_HEADS * HEAD_DIM, width)
        self.gate_proj, self.up_proj, self.down_proj = linear(inner, width), linear(inner, width), linear(width, inner)

    def keys_and_values(self, x, cos, sin):
        heads = lambda y, n: y.unflatten(-1, (n, HEAD_DIM)).transpose(1, 2)
        n = rms_norm(x, self.input_layernorm)
        q = rotate(heads(self.q_proj(n), HEADS), cos, sin)
        k = rotate(heads(self.k_proj(n), KV_HEADS), cos, sin)
        return q, k, heads(self.v_proj(n), KV_HEADS)

    def forward(self, x, cos, sin, masks, drop):
        q, k, v = self.keys_and_values(x, cos, sin)
        repeat = HEADS // KV_HEADS
        k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
        if self.window is None:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=masks[self.window])
        x = x + drop(self.o_proj(out.transpose(1, 2).flatten(-2)))
        n = rms_norm(x, self.post_attention_layernorm)
        return x + drop(self.down_proj(F.silu(self.gate_proj(n)) * self.up_proj(n)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(CONFIG["vocab_size"], CONFIG["hidden_size"])
        self.layers = torch.nn.ModuleList(Layer(kind) for kind in CONFIG["layer_types"])
        self.norm = torch.nn.Parameter(torch.ones(CONFIG["hidden_size"]))
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                torch.nn.init.normal_(weight, std=0.02)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.data /= math.sqrt(2 * CONFIG["num_hidden_layers"])

    def forward(self, tokens, trace=None):
        length = tokens.shape[1]
        positions = torch.arange(length, device=tokens.device)
        inverse = CONFIG["rope_theta"] ** (-torch.arange(0, HEAD_DIM, 2, device=tokens.device).float() / HEAD_DIM)
        angles = positions.float()[:, None] * inverse
        cos, sin = angles.cos(), angles.sin()
        distance = positions[:, None] - positions[None, :]
        masks = {layer.window: (distance >= 0) & (distance < layer.window)
                 for layer in self.layers if layer.window}
        drop = (lambda y: F.dropout(y, DROPOUT)) if self.training else (lambda y: y)
        x = drop(self.embed_tokens(tokens))
        for layer in self.layers:
            if trace is not None:
                trace.append((layer, *layer.keys_and_values(x, cos, sin)))
            x = layer(x, cos, sin, masks, drop)
        return F.linear(rms_norm(x, self.norm), self.embed_tokens.weight)


def after_bos(tokens):
    """What is read to predict tokens (batch, length): BOS, and all but the last."""
    return F.pad(tokens[:, :-1], (1, 0), value=BOS)


def held_out_bits(model, text, device):
    """Bits per byte, of each byte once, and how many bytes."""
    model.eval()
    stride, total, count = LENGTH // 2, 0.0, 0
    with torch.no_grad():
        for start in range(0, len(text), stride):
            window = text[start : start + LENGTH].to(device)
            first = 0 if start == 0 else LENGTH - stride
            if len(window) <= first:
                break
            logits = model(after_bos(window[None]))[0, first:]
            total += F.cross_entropy(logits.double(), window[first:], reduction="sum").item()
            count += len(window) - first
    model.train()
    return total / count / math.log(2), count


def statistics(model, text, device):
    """Of the first window of the held-out text: outlier channels, attention on early tokens."""
    model.eval()
    trace = []
    with torch.no_grad():
        model(after_bos(text[None, :LENGTH].to(device)), trace)
    rows = []
    for index, (layer, q, k, v) in enumerate(trace):
        row = {"layer": index, "kind": CONFIG["layer_types"][index]}
        for name, x in (("k", k[0]), ("v", v[0])):
            # The largest magnitude of each channel beside the median channel's, largest over heads.
            largest = x.abs().amax(dim=1)
            ratio = largest.amax(dim=1) / largest.median(dim=1).values
            row[name] = {
                "rms": round(x.pow(2).mean().sqrt().item(), 4),
                "max": round(x.abs().max().item(), 3),
                "largest_channel_over_median_channel": round(ratio.max().item(), 2),
                "excess_kurtosis": round((((x - x.mean()) / x.std()).pow(4).mean() - 3).item(), 2),
            }
        scores = q[0] @ k[0].repeat_interleave(HEADS // KV_HEADS, dim=0).transpose(-1, -2) / math.sqrt(HEAD_DIM)
        positions = torch.arange(LENGTH, device=device)
        distance = positions[:, None] - positions[None, :]
        visible = (distance >= 0) & (distance < (layer.window or LENGTH))
        mass = scores.masked_fill(~visible, -math.inf).softmax(-1)
        late = mass[:, LENGTH // 2 :]
        row["attention_of_late_queries"] = {
            "on_bos_per_head": [round(m, 4) for m in late[..., 0].mean(-1).tolist()],
            "on_first_4_tokens_per_head": [round(m, 4) for m in late[..., :4].sum(-1).mean(-1).tolist()],
            "on_last_4_tokens_per_head": [
                round(m, 4)
                for m in (late * ((distance >= 0) & (distance < 4))[LENGTH // 2 :]).sum(-1).mean(-1).tolist()
            ],
        }
        rows.append(row)
    return rows


def weights_for_llama(model):
    weights = {"model.embed_tokens.weight": model.embed_tokens.weight, "model.norm.weight": model.norm}
    for index, layer in enumerate(model.layers):
        prefix = f"model.layers.{index}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = getattr(layer, name)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weights[f"{prefix}self_attn.{name}.weight"] = getattr(layer, name).weight
        for name in ("gate_proj", "up_proj", "down_proj"):
            weights[f"{prefix}mlp.{name}.weight"] = getattr(layer, name).weight
    return {name: weight.detach().to(torch.bfloat16).cpu().contiguous() for name, weight in weights.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--held-out", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(arguments.seed)
    read = lambda path: torch.tensor(list(path.read_bytes()), dtype=torch.long)
    text, held_out = read(arguments.text).to(device), read(arguments.held_out)
    model = Model().to(device)
    parameters = sum(weight.numel() for weight in model.parameters())
    matrices = [w for w in model.parameters() if w.dim() == 2]
    vectors = [w for w in model.parameters() if w.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=2e-3, betas=(0.9, 0.95))
    warm_up = max(1, arguments.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(
        (step + 1) / warm_up, 0.05 + 0.475 * (1 + math.cos(math.pi * step / arguments.steps))))
    curve, running = [], []
    for step in range(arguments.steps + 1):
        if step % 200 == 0 or step == arguments.steps:
            held, _ = held_out_bits(model, held_out, device)
            train = sum(running) / len(running) if running else float("nan")
            curve.append((step, round(train, 4), round(held, 4)))
            running = []
            print(f"step {step}: training {train:.4f}, held out {held:.4f} bits per byte", flush=True)
        if step == arguments.steps:
            break
        starts = torch.randint(0, len(text) - LENGTH + 1, (BATCH,), device=device)
        tokens = text[starts[:, None] + torch.arange(LENGTH, device=device)]
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(after_bos(tokens))
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running.append(loss.item() / math.log(2))

    weights = weights_for_llama(model)
    with torch.no_grad():  # what is stored is what is measured
        for weight in model.parameters():
            weight.copy_(weight.to(torch.bfloat16).float())
    bits, count = held_out_bits(model, held_out, device)
    sha256 = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()
    metadata = {
        "format": "pt",
        "description": "byte-level decoder trained on the King James Bible (public domain)",
        "seed": str(arguments.seed),
        "steps": str(arguments.steps),
        "bytes_trained_on": str(arguments.steps * BATCH * LENGTH),
        "parameters": str(parameters),
        "held_out_bits_per_byte": f"{bits:.4f}",
        "held_out_bytes": str(count),
        "script_sha256": sha256(pathlib.Path(__file__)),
        "text_sha256": sha256(arguments.text),
        "held_out_sha256": sha256(arguments.held_out),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(0) if device == "cuda" else "cpu",
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_file(weights, arguments.out / "model.safetensors", metadata)
    (arguments.out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    with open(arguments.out / "training.csv", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("step", "training_bits_per_byte", "held_out_bits_per_byte"), *curve])
    rows = statistics(model, held_out, device)
    (arguments.out / "statistics.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(json.dumps(metadata, indent=1))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
