"""mlx-vlm: the text of a prompt alone and beside another one, where bits are halves."""
from _random_model import generated, small_model
from mlx_vlm.generate.ar import BatchGenerator

prompts = [list(range(1, 9)), list(range(40, 60))]
options = {"kv_bits": 4, "kv_key_bits": 3.5, "kv_quant_scheme": "turboquant", "quantized_kv_start": 0, "prefill_step_size": None}
print("alone   ", generated(BatchGenerator(*small_model(), **options), prompts[1:])[0])
print("together", generated(BatchGenerator(*small_model(), **options), prompts)[1])
