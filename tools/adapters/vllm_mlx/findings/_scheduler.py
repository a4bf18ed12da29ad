"""A small random model under vllm-mlx's scheduler, for programs that generate."""
import logging

logging.disable(logging.CRITICAL)

import mlx.core as mx
from mlx.utils import tree_map_with_path
from mlx_lm.models import llama
from vllm_mlx.request import Request, SamplingParams
from vllm_mlx.scheduler import Scheduler, SchedulerConfig


def random_model(seed=1):
    mx.random.seed(seed)
    model = llama.Model(llama.ModelArgs(model_type="llama", hidden_size=32, num_hidden_layers=2, intermediate_size=32,
                                        num_attention_heads=2, num_key_value_heads=1, vocab_size=64, rms_norm_eps=1e-6))

    def weights(path, parameter):
        if parameter.ndim < 2:
            return mx.ones(parameter.shape)
        return mx.random.normal(parameter.shape) * 2 * parameter.shape[-1] ** -0.5
    model.update(tree_map_with_path(weights, model.parameters()))
    return model


class Tokenizer:
    eos_token_id, eos_token_ids, bos_token = None, set(), None
    clean_up_tokenization_spaces = False

    def encode(self, text, **options):
        return [ord(letter) % 64 for letter in text]

    def decode(self, tokens, **options):
        return " ".join(map(str, tokens))

    def convert_ids_to_tokens(self, tokens):
        return [str(token) for token in tokens]

    def get_vocab(self):
        return {str(token): token for token in range(64)}

    vocab = property(get_vocab)


def scheduler(model, **options):
    return Scheduler(model, Tokenizer(), SchedulerConfig(**options))


def generate(scheduler, name, prompt, tokens=8):
    """(tokens from the cache, tokens that are generated)"""
    scheduler.add_request(Request(name, prompt, SamplingParams(max_tokens=tokens, temperature=0.0),
                                  prompt_token_ids=list(prompt), num_prompt_tokens=len(prompt)))
    hit = scheduler.requests[name].cached_tokens
    made = []
    while name in scheduler.requests:
        for output in scheduler.step().outputs:
            if output.request_id == name:
                made = list(output.output_token_ids)
                if output.finished:
                    return hit, made
    return hit, made
