"""LMCache before kvcheck: `--store memory` (the default), `disk` or `tiers`, both."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "mlx_prefix"))  # stores.py
from stores import chosen

ADAPTER = chosen("lmcache", {"memory": "engine_store", "disk": "engine_store:DiskStore", "tiers": "engine_store:TierStore"})
