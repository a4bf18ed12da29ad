"""A small model with random weights in which attention decides what is generated, for the programs generate_*.py."""
import torch

SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
         "vocab_size": 32, "eos_token_id": None}


def filled(model, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                gain = 0.15 if "down_proj" in name else 4.5 if "o_proj" in name else 1.5
                parameter.normal_(0, gain * parameter.shape[-1] ** -0.5)
    return model.eval()
