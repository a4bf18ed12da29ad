"""Two questions about two images, as mlx_vlm.chat_ui asks them in two conversations: one PromptCacheState for all. The second
question begins like the first one. Each should be answered as without what is kept."""
import types

import mlx.core as mx

mx.set_default_device(mx.cpu)

from mlx_vlm.generate import PromptCacheState, stream_generate
from mlx_vlm.models.llava.config import ModelConfig, TextConfig, VisionConfig
from mlx_vlm.models.llava.llava import Model

IMAGE, PATCHES = 127, 4


def small_llava():
    mx.random.seed(0)
    text = TextConfig(model_type="llama", hidden_size=64, num_hidden_layers=2, intermediate_size=64, num_attention_heads=2,
                      vocab_size=128, num_key_value_heads=2)
    vision = VisionConfig(model_type="clip_vision_model", num_hidden_layers=2, hidden_size=32, intermediate_size=32,
                          num_attention_heads=2, image_size=28, patch_size=14)
    model = Model(ModelConfig(text_config=text, vision_config=vision, model_type="llava", image_token_index=IMAGE, vocab_size=128))
    projector = model.multi_modal_projector.linear_2
    projector.weight = projector.weight * 40
    for layer in model.language_model.model.layers:
        layer.self_attn.v_proj.weight = layer.self_attn.v_proj.weight * 4
        layer.self_attn.o_proj.weight = layer.self_attn.o_proj.weight * 4
    mx.eval(model.parameters())
    return model


class Detokenizer:
    last_segment = ""

    def add_token(self, token, **_):
        pass

    def finalize(self):
        pass

    def reset(self):
        pass


model = small_llava()
tokenizer = types.SimpleNamespace(all_special_ids=[], stopping_criteria=lambda token: False, thinking_budget_criteria=None)
processor = types.SimpleNamespace(tokenizer=tokenizer, detokenizer=Detokenizer())


def asked(question, image, kept):
    """(tokens that were kept, tokens of the answer)."""
    ids = mx.array([[1, *[IMAGE] * PATCHES, *question]])
    *_, last = stream_generate(model, processor, "", input_ids=ids, pixel_values=image, mask=None, max_tokens=8, temperature=0.0,
                               prompt_cache_state=kept)
    return last.cached_tokens, last.token_ids


first, second = mx.random.normal((2, 1, 3, 28, 28))
kept = PromptCacheState()
asked([5, 6, 7], first, kept)
print("another image: %d tokens are kept, answer %s" % asked([5, 6, 7, 8, 9], second, kept))
print("by itself:     %d tokens are kept, answer %s" % asked([5, 6, 7, 8, 9], second, PromptCacheState()))
print("the old image: %d tokens are kept, answer %s" % asked([5, 6, 7, 8, 9], first, PromptCacheState()))
