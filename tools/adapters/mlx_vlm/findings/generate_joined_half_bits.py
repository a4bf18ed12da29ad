"""mlx-vlm: a request that joins a running batch is decoded with the channels of the first one, where bits are halves."""
from _random_model import generated, small_model
from mlx_vlm.generate.ar import BatchGenerator

prompts = [list(range(1, 9)), list(range(40, 60))]
for key_bits in (3, 3.5):
    options = {"kv_bits": 4, "kv_key_bits": key_bits, "kv_quant_scheme": "turboquant", "quantized_kv_start": 0, "prefill_step_size": None}
    (alone,) = generated(BatchGenerator(*small_model(), **options), prompts[1:])
    joined = generated(BatchGenerator(*small_model(), **options), prompts, late=1)[1]
    print(f"{key_bits} bits of K: alone  {alone}\n{key_bits} bits of K: joined {joined}")
