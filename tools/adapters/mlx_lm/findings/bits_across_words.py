"""A quantized cache of each number of bits takes one token, of heads as wide as models have them; then a model of heads
of 128 channels generates with each."""
import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models import qwen2
from mlx_lm.models.cache import QuantizedKVCache

mx.set_default_device(mx.cpu)

for bits in (2, 3, 4, 5, 6, 8):
    stored, raised, message = [], [], ""
    for channels in (32, 64, 96, 128, 160, 192, 256):
        cache = QuantizedKVCache(group_size=64 if channels % 64 == 0 else 32, bits=bits)
        try:
            cache.update_and_fetch(mx.ones((1, 1, 1, channels)), mx.ones((1, 1, 1, channels)))
            stored.append(channels)
        except ValueError as error:
            raised.append(channels)
            message = str(error)
    print(f"{bits} bits: stored {stored}" + (f", raised {raised}, the last time\n        {message}" if raised else ""))
model = qwen2.Model(qwen2.ModelArgs("qwen2", hidden_size=256, num_hidden_layers=1, intermediate_size=32,
                                    num_attention_heads=2, rms_norm_eps=1e-6, vocab_size=64, num_key_value_heads=1))
for bits in (3, 5, 6):
    made = generate_step(mx.array([1, 2, 3]), model, max_tokens=300, kv_bits=bits, quantized_kv_start=0)
    print(f"generate_step(kv_bits={bits}): {len(list(made))} tokens")
