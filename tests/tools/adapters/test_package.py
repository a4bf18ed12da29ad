"""The parts of kvcheck_adapter by themselves: types, masks, texts, frames, damage."""
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/adapters/kvcheck_adapter"))

from kvcheck_adapter import case_mask, damage, from_float32, parse_format, parse_layout, to_float32, visible_of
from kvcheck_adapter.storage import STORED, name_of
from kvcheck_adapter.texts import case_fields
from kvcheck_adapter.wire import LIMIT_BYTES, ProtocolError, Stream, decode_array, encode_array, view_array


class Storage(unittest.TestCase):
    def test_every_16_bit_and_8_bit_code_survives_the_way_there_and_back(self):
        for kind, count in (("bf16", 1 << 16), ("f8e4m3fn", 256), ("f8e5m2", 256), ("f16", 1 << 16)):
            codes = np.arange(count).astype(STORED[kind] if kind != "f16" else np.uint16)
            stored = codes if kind != "f16" else codes.view(np.float16)
            values = to_float32(stored, kind)
            back = from_float32(values, kind)
            same = back.view(codes.dtype) == codes
            self.assertTrue((same | np.isnan(values)).all(), kind)
            self.assertTrue(np.isnan(to_float32(back, kind)[np.isnan(values)]).all(), kind)

    def test_values_of_fp8_and_bf16_are_those_of_their_definition(self):
        self.assertEqual(to_float32(np.uint8([0x7E, 0x01, 0xC0]), "f8e4m3fn").tolist(), [448.0, 2.0**-9, -2.0])
        self.assertEqual(to_float32(np.uint8([0x7B, 0x01, 0x7C]), "f8e5m2").tolist(), [57344.0, 2.0**-16, np.inf])
        self.assertEqual(to_float32(np.uint16([0x3F80, 0xC040]), "bf16").tolist(), [1.0, -3.0])

    def test_rounds_to_nearest_and_ties_to_even(self):
        for kind, low, high in (("bf16", 1.0, 1 + 2.0**-7), ("f8e4m3fn", 1.0, 1.125), ("f8e5m2", 1.0, 1.25),
                                ("f16", 1.0, 1 + 2.0**-10)):
            middle = (low + high) / 2
            rounded = from_float32(np.float32([middle, np.nextafter(np.float32(middle), np.float32(9)), -middle]), kind)
            self.assertEqual(to_float32(rounded, kind).tolist(), [low, high, -low], kind)

    def test_overflow_is_infinite_where_there_is_an_infinity(self):
        self.assertTrue(np.isnan(to_float32(from_float32(np.float32([1e6]), "f8e4m3fn"), "f8e4m3fn"))[0])
        self.assertEqual(to_float32(from_float32(np.float32([-1e6]), "f8e5m2"), "f8e5m2")[0], -np.inf)
        self.assertEqual(to_float32(from_float32(np.float32([3.4e38]), "bf16"), "bf16")[0], np.inf)

    def test_an_array_is_called_what_it_holds(self):
        self.assertEqual(name_of(np.zeros(1, np.uint16), "bf16"), "bf16")
        self.assertEqual(name_of(np.zeros(1, np.float32), "bf16"), "f32")
        self.assertEqual(name_of(np.zeros(1, bool)), "b8")
        with self.assertRaises(TypeError):
            name_of(np.zeros(1, complex))


class Masks(unittest.TestCase):
    SEEN = np.array([[1, 1, 0], [1, 0, 1]], bool)

    def test_every_shape_that_broadcasts_with_scores_gives_the_same_set(self):
        expected = np.broadcast_to(self.SEEN, (2, 2, 3))
        for mask in (self.SEEN, self.SEEN[None], self.SEEN[None, None], np.broadcast_to(self.SEEN, (2, 4, 2, 3)),
                     np.where(self.SEEN, 0, -np.inf), np.where(self.SEEN, 0, np.finfo(np.float16).min).astype("f2"),
                     np.where(self.SEEN, 0, -1e9).astype("f4"), np.where(self.SEEN, -3.5, -1e4),
                     np.where(self.SEEN, 1, -np.inf)[None, None]):
            self.assertTrue((visible_of(mask, 2, 2, 3) == expected).all(), mask.shape)
        self.assertTrue((visible_of(self.SEEN[0], 2, 2, 3) == self.SEEN[0]).all())
        per_row = np.array([[1, 0, 0], [1, 1, 0]], bool)[:, None, None]
        self.assertTrue((visible_of(per_row, 2, 2, 3) == per_row[:, 0]).all())

    def test_causal_stands_at_the_bottom_right(self):
        self.assertEqual(visible_of("causal", 1, 2, 3)[0].tolist(), [[True, True, False], [True, True, True]])
        self.assertTrue(visible_of("causal", 1, 1, 3).all())
        self.assertFalse(visible_of("causal", 1, 3, 2)[0, 0].any())
        self.assertTrue(visible_of(None, 2, 2, 3).all())

    def test_masks_that_do_not_fit_are_errors(self):
        for mask in (np.ones((2, 4), bool), "top", np.ones((1, 3), int), np.ones((1, 3), np.uint8), np.array([[[[1, 1, 1]], [[0, 1, 1]]]], bool)):
            with self.assertRaises(ValueError):
                visible_of(mask, 1, 1, 3)

    def test_terms_of_a_case_are_what_the_grammar_says(self):
        fields = {"l": 2, "t": 4}
        mask = case_mask({**fields, "mask": "causal_bottom_right+window:2+left_pad:0,3"}, {})
        self.assertEqual(mask[0, 0].astype(int).tolist(), [[0, 1, 1, 0], [0, 0, 1, 1]])
        self.assertEqual(mask[1, 0].astype(int).tolist(), [[0, 0, 0, 0], [0, 0, 0, 1]])
        self.assertEqual(case_mask({**fields, "mask": "causal_top_left"}, {}).astype(int).tolist(),
                         [[1, 0, 0, 0], [1, 1, 0, 0]])
        self.assertEqual(case_mask({**fields, "mask": "window:2"}, {}).astype(int).tolist(), [[0, 1, 1, 1], [0, 0, 1, 1]])
        self.assertIsNone(case_mask({**fields, "mask": "none"}, {}))
        added = case_mask({**fields, "mask": "causal_bottom_right+additive:T:bf16"},
                          {"mask": np.uint16([0x3F80, 0, 0, 0])})
        self.assertEqual(added.tolist(), [[1, 0, 0, -np.inf], [1, 0, 0, 0]])


class Texts(unittest.TestCase):
    def test_layouts_formats_and_cases_are_read(self):
        ring = parse_layout("ring:w=4:keep=1")
        self.assertEqual((ring.kind, ring.window, ring.keep), ("ring", 4, 1))
        self.assertEqual(parse_layout("chunk:c=3").chunk, 3)
        self.assertIsNone(parse_layout("linear").window)
        coded = parse_format("affine:5:g64:bf16")
        self.assertEqual((coded.bits, coded.group, coded.type, coded.is_plain), (5, 64, "bf16", False))
        self.assertTrue(parse_format("f8e5m2").is_plain)
        self.assertEqual(coded.shapes(128, (2, 3)), [[2, 3, 20], [2, 3, 2], [2, 3, 2]])
        self.assertEqual(list(coded.kinds.items()), [("codes", "u32"), ("scales", "bf16"), ("biases", "bf16")])
        self.assertEqual(parse_format("f16").shapes(7, (1,)), [[1, 7]])

    def test_affine_vectors_decode_as_their_codes_say(self):
        for bits in (2, 3, 4, 5, 6, 8):
            fmt = parse_format(f"affine:{bits}:g32:f32")
            codes = (np.arange(64) * 7) % (1 << bits)
            stream = ((codes[:, None] >> np.arange(bits)) & 1).astype(np.uint8).reshape(-1)
            words = np.packbits(stream, bitorder="little").view(np.uint32)[None]
            scales, biases = np.float32([[2, 0.5]]), np.float32([[-1, 8]])
            want = codes * np.repeat(scales[0], 32) + np.repeat(biases[0], 32)
            self.assertEqual(fmt.decode((words, scales, biases))[0].tolist(), want.tolist(), bits)
            self.assertEqual(fmt.level((words, scales, biases)).tolist(), [[-1, 8]])

    def test_q8_0_is_what_ggml_writes(self):
        fmt = parse_format("q8_0")
        self.assertEqual(fmt.shapes(64, (2,)), [[2, 68]])
        witness = np.float32([((7 * i) % 32 - 12) / 8 for i in range(32)])
        want = "ca24b0df0d3c6bc4f321507fd8073564bdec1b4a78d1002f5eb6e5144372cbf92857"
        for x86 in (False, True):
            self.assertEqual(fmt.encode(witness, x86=x86)[0].tobytes().hex(), want)
        ties = np.float32([127, 0.5, -1.5, 2.5] + 28 * [0])
        self.assertEqual(fmt.encode(ties)[0][:6].tobytes().hex(), "003c7f01fe03")
        self.assertEqual(fmt.encode(ties, x86=True)[0][:6].tobytes().hex(), "003c7f00fe02")
        decoded = fmt.decode(fmt.encode(witness))
        self.assertEqual(decoded[:3].view(np.uint32).tolist(), [0xBFBF9000, 0xBF1E0A00, 0x3E790800])
        # What a probe is known by.
        self.assertTrue((fmt.level(fmt.encode(np.full((2, 1, 3, 32), 3, np.float32))) > 2.5).all())

    def test_q4_0_is_what_ggml_writes(self):
        fmt = parse_format("q4_0")
        self.assertEqual(fmt.shapes(64, (2,)), [[2, 36]])
        witness = np.float32([((7 * i) % 32 - 12) / 8 for i in range(32)])
        self.assertEqual(fmt.encode(witness)[0].tobytes().hex(), "c0b46d3a07b4815c29d6a3704b18b5825c39")
        decoded = fmt.decode(fmt.encode(witness))
        self.assertEqual(decoded[:3].view(np.uint32).tolist(), [0xBFBE0000, 0xBF180000, 0x3E980000])

    def test_blocks_of_ggml_are_what_ggml_writes(self):
        witness = np.float32([((7 * i) % 32 - 12) / 8 for i in range(32)])
        for text, size, blocks, first in (
                ("q4_1", 20, "223400be80b3f72a6e91d5084c7fb3e62a5d91c4", [0xBFC00000, 0xBF39A000, 0x3E9DC000]),
                ("q5_0", 22, "c0b063c49831da741e6803a8429c36d0852f7913b853", [0xBFBE0000, 0xBF180000, 0x3E980000]),
                ("q5_1", 24, "003000be983367cc0077ee55cc33aa1188ff66dd44bb2299", [0xBFC00000, 0xBF200000, 0x3E800000]),
                ("iq4_nl", 18, "c1a46e3b07c3814c19d5a2603b17c4815d2a", [0xBFD38C80, 0xBF34A600, 0x3E3E2800])):
            fmt = parse_format(text)
            self.assertEqual(fmt.shapes(64, (2,)), [[2, 2 * size]])
            stored = fmt.encode(witness)
            self.assertEqual(stored[0].tobytes().hex(), blocks)
            self.assertEqual(fmt.decode(stored)[:3].view(np.uint32).tolist(), first)
            self.assertTrue((fmt.level(fmt.encode(np.full((2, 1, 3, 32), 3, np.float32))) > 2.5).all(), text)
            self.assertEqual(fmt.encode(np.zeros(32, np.float32))[0].shape, (size,))

    def test_the_middle_of_two_entries_of_iq4_nl_is_the_upper_one(self):
        x = np.float32([-127, 7, np.nextafter(np.float32(7), np.float32(0))] + 29 * [0])
        blocks = parse_format("iq4_nl").encode(x)[0]
        self.assertEqual((blocks[2:5] & 15).tolist(), [0, 9, 8])

    def test_small_floats_are_what_their_writers_write(self):
        witness = np.float32([((7 * i) % 32 - 12) / 8 for i in range(32)])
        fmt = parse_format("mxfp4:bf16")
        self.assertEqual((fmt.bits, fmt.group, fmt.type), (4, 32, "bf16"))
        self.assertEqual(fmt.shapes(64, (2,)), [[2, 32], [2, 2]])
        codes, scales = fmt.encode(witness, mx_encode="mlx")
        self.assertEqual(codes.tobytes().hex() + scales.tobytes().hex(), "ad41c629650b649c52b630d51a640c53" + "7e")
        codes, scales = parse_format("mxfp8:e4m3:bf16").encode(witness, mx_encode="mlx")
        self.assertEqual(codes[:4].tobytes().hex() + scales.tobytes().hex(), "f4ea6071" + "78")
        fmt = parse_format("nvfp4:bf16")
        codes, scales = fmt.encode(witness)
        self.assertEqual(codes.tobytes().hex() + scales.tobytes().hex(), "be51d639761c64ad63c740e62b759d64" + "2d2c")
        self.assertEqual(fmt.decode((codes, scales))[:3].tolist(), [-1.625, -0.609375, 0.203125])
        ties = np.float32([6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -0.1])
        small = parse_format("mxfp4:g16:f32")
        for writer, want in (("ocp", "07224466a8caec8e"), ("mlx", "0721436590badc0e"), ("sglang", "17325476a9cbed8f")):
            self.assertEqual(small.encode(ties, mx_encode=writer)[0].tobytes().hex(), want, writer)
        # A maximum of 7: floored, rounded up, rounded to nearest.
        for writer, want in (("ocp", 127), ("up", 128), ("mlx", 128), ("mlx_0_31", 127), ("sglang", 128)):
            self.assertEqual(small.encode(np.full(16, 7, np.float32), mx_encode=writer)[1].tolist(), [want], writer)
        scaled = parse_format("nvfp4:x0.25:f32")
        self.assertEqual(scaled.decode(scaled.encode(ties))[:3].tolist(), [6, 0, 0.5])
        row = np.float32([6, 4.5, 4.5, 4.5, 4.5] + 11 * [0])
        self.assertEqual(fmt.encode(row, nvfp4_encode="vllm")[1].tolist(), [0x38])
        self.assertEqual(fmt.encode(row, nvfp4_encode="vllm_4over6")[1].tolist(), [0x3C])
        for text in ("mxfp4", "mxfp4:g32:f32", "mxfp8:f32", "nvfp4:0.5:f32", "nvfp4:f64", "nvfp4:x0.5:swizzled:f32"):
            with self.assertRaises(ValueError):
                parse_format(text)

    def test_scales_of_a_page_stand_in_the_order_of_v_on_sm100(self):
        page, token = parse_format("nvfp4:swizzled:x0.25:bf16"), parse_format("nvfp4:x0.25:bf16")
        self.assertEqual(page.of_token, token)
        self.assertEqual((page.block, page.shapes(512, (3,))), (256, [[3, 256], [3, 32]]))
        values = np.random.default_rng(3).standard_normal((3, 512)).astype(np.float32) * np.repeat(np.exp2(np.arange(32) % 7), 16)
        codes, scales = page.encode(values)
        linear_codes, linear = token.encode(values)
        self.assertTrue((codes == linear_codes).all())
        self.assertFalse((scales == linear).all())
        for t in range(4):  # of 8 blocks each
            for s in range(8):
                place = s // 2 * 8 + s % 2 * 4 + t
                self.assertTrue((scales[:, place] == linear[:, t * 8 + s]).all(), (t, s))
        self.assertTrue((page.decode((codes, scales)) == token.decode((codes, linear))).all())

    def test_codes_per_channel_are_what_quanto_writes(self):
        witness = np.float32([((7 * i) % 32 - 12) / 8 for i in range(32)])  # 8 tokens of 4 channels
        for text, codes, scale, first in (
                ("channel:2:g8:f32", "90934f4e3a39e5e4", "5555953f", [0xBFC00000, 0xBF900000]),
                ("channel:4:g8:f16", "20b60f94fd62db40b92f960d64fb42d9", "7733", None),
                ("channel:4:g8:r16:bf16", "20b60f94fd62db40b92f960d64fb42d9", "6f3e", None)):
            fmt = parse_format(text)
            self.assertEqual(fmt.shapes(32, (3,)), [[3, 32 * fmt.bits // 32], [3, 4], [3, 4]])
            words, scales, zeros = fmt.encode(witness)
            self.assertEqual((words.tobytes().hex(), scales.tobytes().hex()), (codes, 4 * scale), text)
            self.assertEqual(to_float32(zeros, fmt.type).tolist(), [-1.5, -1.125, -1.25, -1.375])
            if first:
                self.assertEqual(fmt.decode((words, scales, zeros))[:2].view(np.uint32).tolist(), first)
        # A token of the residual is its zeros, whatever its codes.
        token = fmt.of_token
        self.assertEqual((token.text, token.block), ("channel:4:g1:bf16", 8))
        self.assertEqual(token.shapes(16, (2,)), [[2, 2], [2, 16], [2, 16]])
        values = np.float32(np.arange(8) - 3)
        self.assertEqual(token.decode(token.encode(values)).tolist(), values.tolist())
        self.assertIs(parse_format("q8_0").of_token, parse_format("q8_0"))
        for text in ("channel:4:f32", "channel:4:g8:f64", "channel:4:8:f32", "channel:4:g8:16:f32"):
            with self.assertRaises(ValueError):
                parse_format(text)

    def test_values_with_a_residual_are_codes_or_vectors(self):
        witness = np.float32([((7 * i) % 32 - 12) / 8 for i in range(32)])  # as quanto writes it: formats.md, section A
        for text, codes, scale, bias, first in (
                ("affine:2:g32:r128:f32", "94935e4e3a39e5a4", "5555a53f", "0000c0bf", [0xBFC00000, 0xBE555558, 0xBE555558, 0x3F8AAAAA]),
                ("affine:4:g32:r5:f32", "30a71e85fc63da41b82f960d74eb52c9", "4444843e", "0000c0bf",
                 [0xBFC00000, 0xBF39999A, 0x3E9DDDDC, 0x3F8AAAAA])):
            fmt = parse_format(text)
            self.assertEqual(fmt.shapes(64, (3,)), [[3, 2 * fmt.bits], [3, 2], [3, 2], [3, 64]])
            planes = fmt.encode(witness)
            self.assertEqual([plane.tobytes().hex() for plane in planes[:3]], [codes, scale, bias], text)
            self.assertFalse(planes[3].any())
            self.assertEqual(fmt.decode(planes)[:4].view(np.uint32).tolist(), first, text)
            kept = fmt.family.kept(fmt, witness)
            self.assertFalse(any(plane.any() for plane in kept[:3]))
            self.assertEqual(fmt.decode(kept).tolist(), witness.tolist())
            self.assertIs(fmt.of_token, fmt)
        self.assertEqual(parse_format("affine:2:g32:r128:f32").family.residual(parse_format("affine:2:g32:r128:f32")), 128)
        for text in ("affine:2:g32:r:f32", "affine:2:g32:128:f32", "affine:2:g32:r128:f64", "affine:2:g32:r128"):
            with self.assertRaises(ValueError):
                parse_format(text)

    def test_turboquant_is_what_mlx_vlm_writes(self):
        witness = np.float32([((7 * i) % 32 - 12) / 8 for i in range(32)])
        for bits, codes, first in ((1, [0x2F198D47], [0, 0xBF33A006, 0, 0x3F33A006]),
                                   (3, [0x5550B364, 0x480DC91B, 0x433B6C29], [0xBFB1E1D8, 0xBE47A79B, 0x3EE8B654, 0x3F8D501C]),
                                   (4, [0x49272B89, 0xC652AB4A, 0x3658912B, 0x41C6BAA9], [0xBFAE543B, 0xBF36C2A7, 0x3DA1ABAD])):
            fmt = parse_format(f"turboquant:{bits}:g32:mlx_vlm:f32")
            self.assertEqual(fmt.shapes(64, (2,)), [[2, 2 * bits], [2, 2]])
            words, norms = fmt.encode(witness)
            self.assertEqual((words.tolist(), norms.view(np.uint16).tolist()), (codes, [0x46FB]))
            self.assertEqual(fmt.decode((words, norms))[:len(first)].view(np.uint32).tolist(), first)
        exact = parse_format("turboquant:4:g128:s1:bf16")
        self.assertEqual((exact.bits, exact.group, exact.type), (4, 128, "bf16"))

    def test_turboquant_with_half_a_bit_is_two_halves(self):
        fmt = parse_format("turboquant:3.5:g64:mlx_vlm:hffff00000000ffff:s1:f16")
        high = [*range(16, 48)]  # words are written with their highest channel first
        low = [i for i in range(64) if i not in high]
        self.assertEqual(fmt.shapes(128, (2,)), [[2, 14], [2, 4]])
        values = np.random.default_rng(2).standard_normal((2, 128)).astype(np.float32)
        words, norms = fmt.encode(values)
        decoded = fmt.decode((words, norms)).reshape(2, 2, 64)
        at = 0
        for index, (text, channels) in enumerate((("turboquant:3:g32:mlx_vlm:s1:f16", low), ("turboquant:4:g32:mlx_vlm:s98:f16", high))):
            half = parse_format(text)
            part = half.encode(values.reshape(2, 2, 64)[..., channels].reshape(2, 64))
            width = part[0].shape[-1]
            self.assertTrue((words[:, at:at + width] == part[0]).all(), text)
            self.assertTrue((norms[:, 2 * index:2 * index + 2] == part[1]).all(), text)
            self.assertTrue((decoded[..., channels].reshape(2, 64) == half.decode(part)).all(), text)
            at += width
        self.assertEqual(at, 14)
        for text in ("turboquant:3.5:g64:f16", "turboquant:3.5:g64:hffff:f16", "turboquant:3.25:g64:hffff00000000ffff:f16"):
            with self.assertRaises(ValueError):
                parse_format(text)

    def test_the_inner_product_codec_is_a_bit_less_and_signs(self):
        fmt, codes = parse_format("turboquant:prod:4:g64:mlx_vlm:s1:f16"), parse_format("turboquant:3:g64:mlx_vlm:s1:f16")
        self.assertEqual((fmt.bits, fmt.group, fmt.type), (4, 64, "f16"))
        self.assertEqual(fmt.shapes(128, (2,)), [[2, 16], [2, 2], [2, 2]])
        values = np.random.default_rng(3).standard_normal((2, 128)).astype(np.float16).astype(np.float32)
        words, norms, residual_norms = fmt.encode(values)
        of_codes = codes.encode(values)
        self.assertTrue((words[:, :12] == of_codes[0]).all())
        self.assertTrue((norms == of_codes[1]).all())
        # Of each group the residual of the unit vector, and the signs of its projection, in float64.
        matrix = np.random.default_rng(1 + 1 + 2971 * 64 + 17).standard_normal((64, 64), dtype=np.float32).astype(np.float64)
        ones = np.full((2, 2), 0x3C00, np.uint16).view(norms.dtype)
        unit = codes.decode((of_codes[0], ones)).reshape(2, 2, 64).astype(np.float64)
        normed = values.reshape(2, 2, 64) / np.linalg.norm(values.reshape(2, 2, 64), axis=-1, keepdims=True).astype(np.float64)
        residual = normed - unit
        projected = residual @ matrix.T
        # The writer rounds a norm, a quotient and a difference to float32.
        band = 2**-24 * ((3 * np.abs(normed) + np.abs(residual)) @ np.abs(matrix).T)
        bits = np.unpackbits(np.ascontiguousarray(words[:, 12:]).view(np.uint8), axis=-1, bitorder="little").reshape(2, 2, 64)
        far = np.abs(projected) > band
        self.assertGreater(far.sum(), 250)
        self.assertTrue((bits == (projected >= 0))[far].all())
        gamma = to_float32(residual_norms, "f16")
        self.assertTrue(np.allclose(gamma, np.linalg.norm(residual, axis=-1), rtol=2**-10))
        want = unit + np.sqrt(np.pi / 2) / 64 * gamma[..., None] * ((bits * 2.0 - 1) @ matrix)
        want = (to_float32(norms, "f16")[..., None] * want).reshape(2, 128)
        self.assertTrue(np.allclose(fmt.decode((words, norms, residual_norms)), want, rtol=0, atol=1e-5))
        # Of one bit there are signs alone; those of a row of zeros are set.
        one = parse_format("turboquant:prod:1:g32:f32")
        words, norms, residual_norms = one.encode(np.zeros((1, 32), np.float32))
        self.assertEqual((words.tolist(), to_float32(norms, "f16").tolist(), to_float32(residual_norms, "f16").tolist()),
                         ([[0xFFFFFFFF]], [[0]], [[0]]))
        for text in ("turboquant:prod:4:f16", "turboquant:prod:3.5:g64:f16", "turboquant:prod:4:64:f16"):
            with self.assertRaises(ValueError):
                parse_format(text)

    def test_rotated_vectors_are_stored_rotated(self):
        fmt, stored = parse_format("hadamard:64:q4_0"), parse_format("q4_0")
        self.assertEqual(fmt.shapes(128, (2,)), stored.shapes(128, (2,)))
        self.assertEqual(parse_format("hadamard:16:affine:4:g128:bf16").block, 128)
        x = np.float32([(i * i + 7 * i) % 61 - 30 for i in range(128)])
        signs = np.array([[1 - 2 * (bin(i & j).count("1") % 2) for j in range(64)] for i in range(64)], np.float32)
        rotated = np.concatenate([signs @ x[:64], signs @ x[64:]]) / 8
        self.assertEqual(fmt.encode(x)[0].tolist(), stored.encode(rotated)[0].tolist())
        back = stored.decode(stored.encode(rotated))
        self.assertTrue(np.allclose(fmt.decode(fmt.encode(x)), np.concatenate([signs @ back[:64], signs @ back[64:]]) / 8, atol=1e-4))

    def test_fp8_and_int8_with_a_scale_are_what_pytorch_and_vllm_write(self):
        witness = np.float32([((7 * i) % 32 - 12) / 8 for i in range(32)])
        for code, codes, *scales in (
                ("fp8:e4m3fn", "f9ef64757cf5e46f797ef15c747bf7e96c787df200727af8ec69777df4dc717a", "dbb6ad3b", "dcb6ad3b"),
                ("fp8:e5m2fnuz", "fcf7727b7efbf2777c7ff86e7a7efbf4767c7ff900797dfcf6747b7efaee787d", "dbb62d38", "dcb62d38"),
                ("int8", "b0df0d3c6bc4f321507fd8073564bdec1b4a78d1002f5eb6e5144372cbf92857", "6532993c", "6532993c")):
            apart, inline = parse_format(f"{code}:token:f32"), parse_format(f"{code}:inline:f32")
            self.assertEqual(apart.shapes(64, (2,)), [[2, 64], [2, 1]])
            self.assertEqual(inline.shapes(64, (2,)), [[2, 68]])
            for vllm, scale in zip((False, True), scales):
                self.assertEqual([plane.tobytes().hex() for plane in apart.encode(witness, vllm=vllm)], [codes, scale])
                self.assertEqual(inline.encode(witness, vllm=vllm)[0].tobytes().hex(), codes + scale)
            self.assertEqual(apart.decode(apart.encode(witness)).tolist(), inline.decode(inline.encode(witness)).tolist())
        ties = np.float32([127, 0.5, -1.5, 2.5])
        int8 = parse_format("int8:token:f32")
        self.assertEqual(int8.encode(ties)[0].tolist(), [127, 0, -2, 2])
        self.assertEqual(int8.encode(ties, vllm=True)[0].tolist(), [127, 1, -2, 3])
        self.assertEqual(int8.encode(ties, vllm=True, truncate=True)[0].tolist(), [127, 0, -1, 2])
        given = parse_format("fp8:e4m3fn:s0.5:bf16")
        self.assertEqual(given.shapes(64, (2,)), [[2, 64]])
        self.assertEqual(given.decode(given.encode(np.float32([224, -3, 0, 0.5]))).tolist(), [224, -3, 0, 0.5])
        heads = parse_format("int8:h1/2:f32")
        vectors = np.full((1, 2, 3, 4), 6, np.float32)
        self.assertEqual(heads.encode(vectors)[0][0, :, 0, 0].tolist(), [6, 3])
        self.assertEqual(heads.decode(heads.encode(vectors)).tolist(), vectors.tolist())
        self.assertEqual(heads.encode(vectors[0, 0])[0][:, 0].tolist(), [6, 3, 6])
        values = np.isfinite(parse_format("fp8:e4m3fnuz:s1:f32").decode((np.arange(256, dtype=np.uint8),)))
        self.assertEqual(np.flatnonzero(~values).tolist(), [0x80])

    def test_int4zp_is_what_vllm_writes(self):
        fmt = parse_format("int4zp:inline:f32")
        self.assertEqual(fmt.shapes(64, (2,)), [[2, 36]])
        witness = np.float32([((7 * i) % 32 - 12) / 8 for i in range(32)])
        self.assertEqual(fmt.encode(witness)[0].tobytes().hex(), "40a72e85fc63da51b83f961d74eb62c94644843e")
        decoded = fmt.decode(fmt.encode(witness))
        self.assertEqual(decoded[:3].view(np.uint32).tolist(), [0xBFC66660, 0xBF044440, 0x3E844440])
        apart = parse_format("int4zp:token:f32")
        self.assertEqual(apart.decode(apart.encode(witness)).tolist(), decoded.tolist())

    def test_uniform_is_what_vllm_writes(self):
        witness = np.float32([((7 * i) % 32 - 12) / 8 for i in range(32)])
        for bits, codes, scale in ((4, "30a71e85fc63da41b82f960d74eb52c9", "2234"), (3, "d0ea887d5643ec331a5a1fd1", "6e38")):
            fmt = parse_format(f"uniform:{bits}:token:f32")
            planes = fmt.encode(witness)
            self.assertEqual([plane.tobytes().hex() for plane in planes], [codes, scale, "00be"])
            cells = parse_format(f"uniform:{bits}:inline:f32")
            self.assertEqual(cells.encode(witness)[0].tobytes().hex(), codes + scale + "00be")
            self.assertEqual(cells.decode(cells.encode(witness)).tolist(), fmt.decode(planes).tolist())
            self.assertEqual(cells.shapes(64, (2,)), [[2, 8 * bits + 4]])

    def test_encoded_vectors_decode_to_within_a_step(self):
        values = np.random.default_rng(1).standard_normal((3, 128)).astype(np.float32)
        for text, most in (("f32", 0), ("bf16", 0.01), ("affine:8:g32:f32", 0.05), ("q8_0", 0.05), ("q4_0", 0.6), ("q4_1", 0.3),
                           ("q5_0", 0.3), ("q5_1", 0.15), ("iq4_nl", 0.5), ("affine:5:g64:f16", 0.3), ("mxfp4:bf16", 1),
                           ("mxfp8:e4m3:f32", 0.3), ("mxfp8:e5m2:f16", 0.5), ("nvfp4:x0.011:bf16", 0.5), ("turboquant:5:g64:f16", 0.5),
                           ("turboquant:4.5:g64:hffff00000000ffff:f32", 0.8),
                           ("turboquant:3:g128:mlx_vlm:s1:f32", 1.5), ("hadamard:128:q8_0", 0.05), ("hadamard:64:affine:4:g64:bf16", 0.8),
                           ("fp8:e4m3fn:token:bf16", 0.2), ("int8:inline:f32", 0.02), ("int4zp:token:f32", 0.3),
                           ("uniform:4:inline:f32", 0.3), ("uniform:3:token:bf16", 0.6)):
            fmt = parse_format(text)
            planes = fmt.encode(values)
            self.assertEqual([list(plane.shape) for plane in planes], fmt.shapes(128, (3,)), text)
            error = np.abs(fmt.decode(planes) - values).max()
            self.assertTrue(error <= most and (error > most / 50 or most == 0), (text, error))
        for text in ("ring:w", "spiral", "linear:q=1"):
            with self.assertRaises(ValueError):
                parse_layout(text)
        with self.assertRaises(ValueError):
            parse_format("affine:4")
        self.assertEqual(case_fields("codec op=encode d=32")["op"], "encode")


class Frames(unittest.TestCase):
    def setUp(self):
        self.parent_reads, child_writes = os.pipe()
        child_reads, self.parent_writes = os.pipe()
        self.stream = Stream(child_reads, child_writes)

    def frame(self, value):
        payload = self.stream.pack(value)
        return len(payload).to_bytes(8, "little") + payload

    def test_frames_arrive_whole_however_they_are_cut(self):
        sent = self.frame({"a": 1}) + self.frame({"b": b"x" * 3000})
        for part in (sent[:3], sent[3:11], sent[11:600], sent[600:]):
            os.write(self.parent_writes, part)
        os.close(self.parent_writes)
        self.assertEqual(self.stream.receive(), {"a": 1})
        self.assertEqual(self.stream.receive(), {"b": b"x" * 3000})
        self.assertIsNone(self.stream.receive())

    def test_what_is_no_frame_is_an_error(self):
        for sent in (b"\1\0\0\0\0\0\0\0", (LIMIT_BYTES + 1).to_bytes(8, "little"), b"\1\0", self.frame([1])):
            self.setUp()
            os.write(self.parent_writes, sent)
            os.close(self.parent_writes)
            with self.assertRaises(ProtocolError):
                self.stream.receive()

    def test_a_sign_of_life_is_an_empty_frame_and_comes_not_too_often(self):
        self.stream.alive()
        self.stream._alive_after = 0  # as after a while
        self.stream.alive()
        self.stream.alive()
        self.assertEqual(os.read(self.parent_reads, 100), bytes(8))

    def test_arrays_keep_type_extents_and_bytes(self):
        array = np.arange(6, dtype=np.uint16).reshape(1, 2, 3)
        kind, read, data = decode_array(encode_array(array.transpose(0, 2, 1), "bf16"))
        self.assertEqual((kind, read.shape), ("bf16", (1, 3, 2)))
        self.assertTrue((read == array.transpose(0, 2, 1)).all())
        read[:] = 0  # its own memory
        self.assertNotEqual(read.tobytes(), data)
        kind, viewed, data = view_array(encode_array(array, "bf16"))
        self.assertEqual((kind, viewed.tolist(), viewed.tobytes()), ("bf16", array.tolist(), data))
        with self.assertRaises(ValueError):
            viewed[:] = 0

    def test_many_frames_are_taken_from_one_read(self):
        sent = [{"n": n, "x": bytes(n)} for n in range(200)]
        os.write(self.parent_writes, b"".join(map(self.frame, sent)))
        os.close(self.parent_writes)
        self.assertEqual([self.stream.receive() for _ in sent], sent)
        self.assertIsNone(self.stream.receive())


class Damage(unittest.TestCase):
    def test_what_killed_processes_left_behind_goes_with_the_next(self):
        with tempfile.TemporaryDirectory() as place, unittest.mock.patch.object(tempfile, "tempdir", place):
            place = pathlib.Path(place)
            # Killed before it had its lock, while it removed itself, and while it held states.
            for name, files in (("a", []), ("b", ["s0/x"]), ("c", ["lock", "s0/x"])):
                folder = place / (damage.PREFIX + name)
                folder.mkdir()
                for file in files:
                    (folder / file).parent.mkdir(exist_ok=True)
                    (folder / file).write_text("")
            first = damage.Folder(".x")
            pathlib.Path(first.path("s0")).write_text("")
            self.assertEqual(len(list(place.iterdir())), 1)
            self.assertTrue(next(place.iterdir()).name.startswith(f"{damage.PREFIX}{os.getpid()}-"))
            second = damage.Folder(".x")
            second.path("s0")
            self.assertEqual(len(list(place.iterdir())), 2, "the first one is in use")
            first.remove()
            second.remove()
            self.assertEqual(list(place.iterdir()), [])

    def test_damage_is_one_fault(self):
        data = bytes(range(10))
        self.assertEqual(damage.damaged(data, "truncate", 0), data[:-1])
        flipped = damage.damaged(data, "flip", 13)
        self.assertEqual([i for i in range(10) if flipped[i] != data[i]], [3])
        self.assertEqual(bin(flipped[3] ^ data[3]).count("1"), 1)
        self.assertNotEqual(damage.damaged(data, "foreign", 0), data)
        with self.assertRaises(Exception):
            damage.damaged(data, "version", 0)


if __name__ == "__main__":
    unittest.main()
