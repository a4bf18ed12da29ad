"""A decoder in transformers, teacher-forced through the library's caches; float32, attention of sdpa.

    venv/bin/python agree.py GOLD FOLDER RUN... --model FOLDER

What a RUN is: ../teacher_forced.py. A batch is padded on the left, with the two-dimensional mask and the positions that
generate() makes of it. Restored: torch.save and torch.load of the cache, as no format of the library's own exists.
"""
import copy
import logging
import pathlib
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache, QuantizedCache, StaticCache

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from teacher_forced import PADDING, main  # noqa: E402

GROUP, RESIDUAL = 64, 32  # channels of a scale; tokens that a QuantizedCache keeps as they are


class State:
    def __init__(self, cache, mask):
        self.cache, self.mask = cache, mask


class Transformers:
    version = f"transformers {transformers.__version__}, torch {torch.__version__}"

    def __init__(self, options):
        logging.getLogger("transformers").setLevel(logging.ERROR)
        torch.set_num_threads(options.threads)
        self.model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, attn_implementation="sdpa").eval()
        # The class takes models of full layers alone; it is told so, and the mask has the window, as with DynamicCache().
        full = copy.deepcopy(self.model.config)
        full.layer_types = ["full_attention"] * full.num_hidden_layers
        quantized = lambda backend, bits, axis: lambda longest: QuantizedCache(
            backend, full, nbits=bits, axis_key=axis, axis_value=axis, q_group_size=GROUP, residual_length=RESIDUAL)
        self.made = {
            "plain": (lambda longest: DynamicCache(), "DynamicCache(), full layers under a window's mask"),
            "sliding": (lambda longest: DynamicCache(config=self.model.config), "DynamicCache(config), a sliding layer"),
            "static": (lambda longest: StaticCache(self.model.config, max_cache_len=longest), "StaticCache(config)"),
            "quanto4": (quantized("quanto", 4, 0), f"QuantizedCache, quanto, 4 bits, residual {RESIDUAL}"),
            "quanto2": (quantized("quanto", 2, 0), f"QuantizedCache, quanto, 2 bits, residual {RESIDUAL}"),
            "hqq8": (quantized("hqq", 8, 1), f"QuantizedCache, HQQ, 8 bits, residual {RESIDUAL}"),
            "hqq4": (quantized("hqq", 4, 1), f"QuantizedCache, HQQ, 4 bits, residual {RESIDUAL}"),
            "fp8": (lambda longest: QuantizedCache("fp8", full), "QuantizedCache, fp8"),
            "of_its_config": (lambda longest: QuantizedCache("fp8", self.model.config), "QuantizedCache of the model's config"),
        }
        self.caches = {name: words for name, (_, words) in self.made.items()}

    def start(self, name, lengths):
        return State(self.made[name][0](max(lengths)), torch.zeros(len(lengths), 0, dtype=torch.long))

    def feed(self, state, tokens):
        tokens = torch.tensor(tokens)
        state.mask = torch.cat([state.mask, (tokens != PADDING).long()], dim=1)
        positions = (state.mask.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1]:]
        with torch.no_grad():
            return self.model(input_ids=tokens.clamp(min=0), attention_mask=state.mask, position_ids=positions,
                              past_key_values=state.cache, use_cache=True).logits.numpy()

    def save(self, state, path):
        torch.save((state.cache, state.mask), path)

    def load(self, path, name):
        return State(*torch.load(path, weights_only=False))


if __name__ == "__main__":
    main(Transformers)
