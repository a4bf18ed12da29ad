"""Counts bytes in which libraries that code keys per channel, and values per token as KIVI does, differ from the definition
(channel_groups.py, formats.md, sections G and A), over at least COUNT values a setting:

quanto, hqq        groups of tokens by themselves, by the calls of make_channel.py
quanto_affine      groups of channels of one token, likewise: KIVI's V
transformers       QuantoQuantizedLayer of transformers' quantized cache, axis -1 and its default, axis 0, fed with runs of any length: what it codes at
                   every pass, decoded keys, residual and new columns together (contract.md, section 4.1, "regroup all"), its
                   residual, and what every update returns
openvino           OpenVINO's CPU plugin, u8 and u4 keys by channel in whole blocks of 32 tokens
openvino, open     the same fed with runs of any length: the open block is decoded and coded again at every append ("regroup open")

Usage: python count_channel.py [--only NAME ...] [--values COUNT]       (default: all, 1000000)
Needs the packages of requirements-channel.txt. Exit status 1 where a byte differs: codes under a scale of 0, which mean nothing,
are counted apart.
"""
import argparse
import dataclasses
import importlib.metadata

import numpy as np

import channel_groups
import make_channel
import regimes

CHANNELS = 64
RESIDUAL = 128


@dataclasses.dataclass
class Counted:
    """values: coded ones, once for every pass; differ: {what: elements}."""
    values: int = 0
    passes: int = 0
    without_meaning: int = 0
    differ: dict = dataclasses.field(default_factory=lambda: dict.fromkeys(("codes", "scales", "zeros", "read"), 0))

    def add_pass(self, got, want):
        """codes (groups, g, D), scales and zeros (groups, D), of both sides as float32."""
        meaning = want[1][:, None] != 0
        self.values += got[0].size
        self.passes += 1
        self.without_meaning += int((~meaning).sum()) * got[0].shape[1]
        self.differ["codes"] += int(((got[0] != want[0]) & meaning).sum())
        for name, index in (("scales", 1), ("zeros", 2)):
            self.differ[name] += int((got[index] != want[index]).sum())

    def add_read(self, got, want):
        self.differ["read"] += int((got != want).sum())


def tokens_of(rng, shape):
    """Magnitudes 2^-6 to 2^6 from channel to channel; one channel in 64 without a range."""
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape[-1])
    x[..., 5] = 0.75
    return x


def runs(rng, total):
    """Lengths that add up to it."""
    while total > 0:
        length = int(min(total, rng.choice([1, 1, 1, 2, 7, 31, 60])))
        yield length
        total -= length


# ------------------------------------------------------------------------------------- settings: name, count(values)


def groups_of(x, group, axis):
    """(groups, members, channels): of axis -1 runs of rows, of axis 0 consecutive elements."""
    return x.reshape(-1, group, CHANNELS if axis == -1 else 1)


def groups_alone(writer, bits, group, kind, profile):
    def count(values):
        counted = Counted()
        x = make_channel.rows_of(group, kind, f"count.{bits}.{group}.{kind}", values)
        tokens = regimes.widen(x, kind).astype(np.float32).reshape(len(x), group, -1)
        if writer is make_channel.quanto_affine:
            x = make_channel.rows_of_tokens(x, group)
            tokens = groups_of(regimes.widen(x, kind).astype(np.float32), group, 0)
        codes, scales, zeros, y = writer(x, kind, bits, group)
        want = channel_groups.encode(tokens, bits, kind, profile)
        stored = [regimes.widen(part, kind).astype(np.float32).reshape(len(tokens), -1) for part in (scales, zeros)]
        got_codes = codes.reshape(tokens.shape).astype(np.float32)
        counted.add_pass((got_codes, *stored), want)
        counted.add_read(regimes.widen(y, kind).reshape(tokens.shape), channel_groups.decode(got_codes, *stored, kind, profile))
        return counted
    return count


def transformers_cache(bits, group, kind, axis):
    def count(values):
        from optimum.quanto.tensor.grouped import ungroup
        from transformers.cache_utils import QuantoQuantizedLayer

        rng = regimes.generator(f"count.transformers.{bits}.{group}.{kind}" + (".0" if axis == 0 else ""))
        counted = Counted()

        def columns(length):
            return regimes.to_storage(tokens_of(rng, (length, CHANNELS)), kind)

        def floats(tensor):
            return regimes.widen(make_channel.from_torch(tensor), kind).astype(np.float32)

        while counted.values < values:
            layer = QuantoQuantizedLayer(nbits=bits, axis_key=axis, axis_value=0, q_group_size=group, residual_length=RESIDUAL)
            coded = residual = None  # the definition's: groups as stored; columns as appended

            def append(length):
                nonlocal coded, residual
                new = columns(length)
                as_torch = make_channel.to_torch(new, kind).reshape(1, 1, length, CHANNELS)
                returned = floats(layer.update(as_torch, as_torch)[0][0, 0])
                new = regimes.widen(new, kind).astype(np.float32)
                read = channel_groups.decode(*coded, kind, "kivi").reshape(-1, CHANNELS) if coded else np.zeros((0, CHANNELS), np.float32)
                whole = np.concatenate([read, residual, new]) if coded else new
                counted.add_read(returned, whole)
                if coded and len(residual) + length < RESIDUAL:
                    residual = np.concatenate([residual, new])
                    counted.add_read(floats(layer.keys[0, 0]), residual)
                    return
                coded = channel_groups.encode(groups_of(whole, group, axis), bits, kind, "kivi")
                residual = np.zeros((0, CHANNELS), np.float32)
                stored = layer._quantized_keys
                got = groups_of(ungroup(stored._data.unpack(), axis, (1, 1, len(whole), CHANNELS)).numpy(), group, axis)
                parts = [floats(part.reshape(coded[1].shape[-1], -1).t()) for part in (stored._scale, -stored._shift + 0)]
                # What means nothing is taken as it is found, for the values read below.
                counted.add_pass((got.astype(np.float32), *parts), coded)
                coded = (np.where(coded[1][:, None] == 0, got, coded[0]).astype(np.float32), *coded[1:])

            append(4 * group)
            for _ in range(8):
                for length in runs(rng, RESIDUAL):
                    append(length)
        return counted
    return count


def openvino_blocks(bits, opens):
    def count(values):
        import openvino_cache

        rng = regimes.generator(f"count.openvino.{bits}.{opens}")
        counted = Counted()
        tokens = openvino_cache.TOKENS
        sequences, blocks = 64, 2 if opens else -(-values // (64 * tokens * CHANNELS))
        while counted.values < values:
            cache = openvino_cache.KeyCache(bits, CHANNELS, sequences, blocks)
            held = np.zeros((sequences, 0, CHANNELS), np.float32)  # of the open block, as read back
            first = 0  # block of `held`
            for length in runs(rng, blocks * tokens) if opens else [blocks * tokens]:
                new = tokens_of(rng, (sequences, length, CHANNELS)).astype(np.float32)
                cache.append(new)
                codes, scales, zeros = (part.reshape(sequences, blocks, *part.shape[1:]) for part in cache.stored())
                held = np.concatenate([held, new], 1)
                while held.shape[1] > 0:
                    block, held = held[:, :tokens], held[:, tokens:]
                    n = block.shape[1]
                    want = channel_groups.encode(block, bits, "f32", "openvino")
                    counted.add_pass((codes[:, first, :n].astype(np.float32), scales[:, first], zeros[:, first]), want)
                    if n < tokens:
                        held = channel_groups.decode(*want, "f32", "openvino")
                        break
                    first += 1
        return counted
    return count


def settings():
    for name, writer, all_bits, groups, profile in (("quanto", make_channel.quanto, (2, 4), (32, 64), "kivi"),
                                                    ("quanto_affine", make_channel.quanto_affine, (2, 4), (32, 64, 128), "kivi"),
                                                    ("hqq", make_channel.hqq, (2, 4, 8), (32,), "hqq")):
        for kind in make_channel.KINDS:
            for bits in all_bits:
                for group in groups:
                    yield name, f"{bits} bits, g{group}, {kind}", groups_alone(writer, bits, group, kind, profile)
    for axis in (-1, 0):
        for kind in make_channel.KINDS:
            for bits in (2, 4):
                for group in (32, 64):
                    setting = f"{bits} bits, g{group}, {kind}" + (", axis 0" if axis == 0 else "")
                    yield "transformers", setting, transformers_cache(bits, group, kind, axis)
    for bits in (4, 8):
        yield "openvino", f"u{bits}", openvino_blocks(bits, False)
        yield "openvino", f"u{bits}, open", openvino_blocks(bits, True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=["quanto", "quanto_affine", "hqq", "transformers", "openvino"])
    parser.add_argument("--values", type=int, default=1_000_000)
    arguments = parser.parse_args()
    for package in ("optimum-quanto", "hqq", "transformers", "openvino", "torch", "numpy"):
        try:
            print(package, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            print(package, "is not here")
    print(f"{'library':15}{'setting':25}{'values':>9}{'passes':>8}{'codes':>7}{'scales':>8}{'zeros':>7}{'read':>6}{'scale 0':>9}")
    wrong = 0
    for name, setting, count in settings():
        if name not in arguments.only:
            continue
        counted = count(arguments.values)
        wrong += sum(counted.differ.values())
        print(f"{name:15}{setting:25}{counted.values:9}{counted.passes:8}{counted.differ['codes']:7}{counted.differ['scales']:8}"
              f"{counted.differ['zeros']:7}{counted.differ['read']:6}{counted.without_meaning:9}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
