"""SGLang before kvcheck: its prefix caches over allocators of slots, and the files of its hierarchical cache."""
import argparse
import importlib

TREES = ("rust", "python", "radix")


def ADAPTER(*options):
    parser = argparse.ArgumentParser(prog="sglang", allow_abbrev=False)
    parser.add_argument("--tree", choices=TREES, help="the tree of UnifiedRadixCache (rust), or RadixCache itself")
    parser.add_argument("--window", action="store_true", help="full attention in even layers, a sliding window in odd ones")
    parser.add_argument("--file", action="store_true", help="HiCacheFile")
    parser.add_argument("--patched", action="store_true", help="with the causes of FINDINGS.md repaired, which are of files")
    asked = parser.parse_args(options)
    if asked.patched and not asked.file:
        parser.error("nothing is to be repaired but --file")
    if asked.file:
        if asked.tree or asked.window:
            parser.error("files have no tree and no window")
        files = importlib.import_module("file_store")
        return files.RepairedStore() if asked.patched else files.FileStore()
    slots = importlib.import_module("radix_caches")
    tree = asked.tree or "rust"
    if tree == "radix":
        if asked.window:
            parser.error("RadixCache has no sliding window")
        return slots.RadixSlots()
    return slots.WindowSlots(tree) if asked.window else slots.UnifiedSlots(tree)
