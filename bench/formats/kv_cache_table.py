#!/usr/bin/env python3
"""Prints what `kvcheck bench kv-cache --json FILE` measured as a Markdown table, for bench/tables.py add.

usage: kv_cache_table.py FILE
"""
import json
import sys

MIB = 1 << 20
COLUMNS = ["format", "tokens", "original MiB", "stored MiB", "vs f32", "vs 16 bits", "mean error", "max error", "quantize ms", "dequantize ms",
           "quantize ns per token", "dequantize ns per token", "peak MiB", "allowed MiB"]


def cells(cache):
    allowed = cache["original_bytes"] + cache["stored_bytes"] + cache["layer_bytes"]
    peak = cache["resident_peak_bytes"] or cache["held_peak_bytes"]
    return [cache["format"], str(cache["seq_len"]), f"{cache['original_bytes'] / MIB:.0f}", f"{cache['stored_bytes'] / MIB:.0f}",
            f"{cache['compression_of_f32']:.3f}", f"{cache['compression_of_16_bits']:.3f}", f"{cache['errors']['mean']:.3g}",
            f"{cache['errors']['max']:.3g}", f"{1e3 * cache['quantize']['seconds']:.1f}", f"{1e3 * cache['dequantize']['seconds']:.1f}",
            f"{cache['quantize']['ns_per_token_and_layer']:.0f}", f"{cache['dequantize']['ns_per_token_and_layer']:.0f}",
            f"{peak / MIB:.0f}", f"{allowed / MIB:.0f}"]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        caches = json.load(file)["caches"]
    for row in [COLUMNS, ["---"] * len(COLUMNS), *map(cells, caches)]:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
