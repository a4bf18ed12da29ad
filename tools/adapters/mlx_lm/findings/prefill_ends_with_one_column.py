"""Prompts of 2 and 5 tokens, 4 at a time, through a small Gemma 3 with a window of 4 and random weights:
PromptProcessingBatch.prompt, to which they are given whole, then BatchGenerator, which hands it pieces."""
import mlx.core as mx
from mlx_lm.generate import BatchGenerator, PromptProcessingBatch
from mlx_lm.models import gemma3_text

mx.set_default_device(mx.cpu)

model = gemma3_text.Model(gemma3_text.ModelArgs(
    model_type="gemma3_text", hidden_size=16, num_hidden_layers=2, intermediate_size=16, num_attention_heads=2,
    head_dim=8, vocab_size=32, num_key_value_heads=1, sliding_window=4, sliding_window_pattern=2))
prompts = [[1] * 2, [2] * 5]
batch = PromptProcessingBatch(model, [0, 1], [model.make_cache() for _ in prompts], prefill_step_size=4)
try:
    batch.prompt([list(prompt) for prompt in prompts])
    print("PromptProcessingBatch.prompt: done")
except RuntimeError as error:
    print("PromptProcessingBatch.prompt:", error)
generator = BatchGenerator(model, prefill_step_size=4, max_tokens=1)
generator.insert(prompts)
answers = [answer for _ in range(6) for answer in generator.next()[1]]
print("BatchGenerator:", len(answers), "tokens")
