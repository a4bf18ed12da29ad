"""vLLM before kvcheck: its managers of blocks, or what it offloads them to."""
import argparse
import importlib

STORES = {"groups": ("block_managers", "GroupManager", "full attention and a sliding window"),
          "offload": ("offload", "OffloadStore", "memory of the host, by LRU"),
          "offload-arc": ("offload", "ArcStore", "the same, by ARC"),
          "file-tier": ("offload", "FileTierStore", "the same over files")}


def ADAPTER(*options):
    parser = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    chosen = parser.add_mutually_exclusive_group()
    for name, (module, store, what) in STORES.items():
        chosen.add_argument(f"--{name}", dest="store", action="store_const", const=(module, store), help=what)
    parser.add_argument("--patched", action="store_true", help="with the causes of FINDINGS.md repaired")
    asked = parser.parse_args(options)
    module, store = asked.store or ("block_managers", "BlockManager")
    module = importlib.import_module(module)
    made = getattr(module, store)()
    if asked.patched:
        module.repair()
        made.name, made.version = f"{made.name}-patched", f"{made.version}, patched"
    return made
