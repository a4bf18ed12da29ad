"""Prefix caches of vllm-mlx before kvcheck: `--store memory` (the default), `codes` (the same, which keeps
codes) or `blocks`."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "mlx_prefix"))  # prompts.py, stores.py
from stores import chosen

ADAPTER = chosen("vllm_mlx", {"memory": "memory_store", "codes": "memory_store:CodedStore", "blocks": "block_store"})
