"""Writes a decoder of golden/model's architecture as GGUF, for llama.cpp.

    venv/bin/python make_gguf.py MODEL OUT.gguf          MODEL: a folder with config.json and model.safetensors

llama.cpp's `llama` has no layers with a window. `mimo2` has exactly the parts of the model when it has no experts: RMSNorm,
RoPE on the halves of a head, SwiGLU, a window per layer. (`granite_swa` has them too, and rotates neighbouring channels, so
that blocks of a quantized cache would hold other channels.) Weights are stored in float32: their 16 bits are exact in it,
and llama.cpp rounds activations to bfloat16 where a matrix is bfloat16. There is no tokenizer: tokens are bytes.
"""
import json
import pathlib
import sys

import gguf
import numpy as np

# transformers' names, of the model and of a layer
MODEL = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def read_bfloat16(path):
    """Tensors of a safetensors file in bfloat16, as float32; safetensors' numpy has no bfloat16."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            sys.exit(f"make_gguf.py: {path}: {name} is {entry['dtype']}; weights in BF16 are read")
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(data[begin:end], dtype="<u2").astype(np.uint32) << 16
        yield name, bits.view(np.float32).reshape(entry["shape"])


def gguf_name(name):
    if name in MODEL:
        return MODEL[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{LAYER[rest.removesuffix('.weight')]}.weight"


def write(folder, out):
    config = json.loads((folder / "config.json").read_text())
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    writer = gguf.GGUFWriter(out, "mimo2")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_array("mimo2.attention.sliding_window_pattern",
                     [kind == "sliding_attention" for kind in config["layer_types"]])
    writer.add_rope_freq_base_swa(config["rope_theta"])
    writer.add_expert_feed_forward_length(0)
    writer.add_tokenizer_model("no_vocab")
    for name, tensor in read_bfloat16(folder / "model.safetensors"):
        writer.add_tensor(gguf_name(name), tensor)
        if name == "model.embed_tokens.weight" and config["tie_word_embeddings"]:
            writer.add_tensor("output.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write(pathlib.Path(sys.argv[1]), sys.argv[2])
