"""Prefix caches of mlx-lm and mlx-vlm before kvcheck: `--store mlx_lm` (the default) or `mlx_vlm`."""
from stores import chosen

ADAPTER = chosen("mlx_prefix", {"mlx_lm": "lru_prompt_cache", "mlx_vlm": "apc"})
