"""A small model with random weights in which attention decides what is generated, for the programs generate_*.py."""
import mlx.core as mx
from mlx.utils import tree_map_with_path

SIZES = {"model_type": "random", "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2,
         "num_key_value_heads": 1, "vocab_size": 64, "rms_norm_eps": 1e-6}


def weights(path, parameter):
    if parameter.ndim < 2:
        return mx.ones(parameter.shape) if "norm" in path else mx.zeros(parameter.shape)
    gain = 0.1 if "down_proj" in path else 4.0 if "o_proj" in path else 1.5
    return mx.random.normal(parameter.shape) * gain * parameter.shape[-1] ** -0.5


def filled(model, seed):
    mx.random.seed(seed)
    model.update(tree_map_with_path(weights, model.parameters()))
    mx.eval(model.parameters())
    return model


def prompt(tokens):
    return mx.random.randint(0, SIZES["vocab_size"], (tokens,)).tolist()
