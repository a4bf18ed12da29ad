"""mlx-vlm: a prompt longer than quantized_kv_start and a shorter one, one of which joins the other's running batch."""
from _random_model import generated, small_model
from mlx_vlm.generate.ar import BatchGenerator

prompts = {"short": list(range(1, 9)), "long": list(range(40, 60))}
options = {"kv_bits": 4, "kv_quant_scheme": "turboquant", "quantized_kv_start": 10, "prefill_step_size": None}
for first, later in (("short", "long"), ("long", "short")):
    try:
        generated(BatchGenerator(*small_model(), **options), [prompts[first], prompts[later]], late=1)
        print(f"{later} after {first}: both are generated")
    except Exception as error:
        print(f"{later} after {first}: {type(error).__name__}: {error}")
print("both at once:", [len(tokens) for tokens in generated(BatchGenerator(*small_model(), **options), list(prompts.values()))], "tokens")
