"""Formats: what is encoded decodes to within the format's error, and what is not is named."""
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import kvcheck
from kvcheck import _arrays, formats
from kvcheck._command import program
from kvcheck.testing import assert_close, assert_codec_close


@pytest.fixture(autouse=True)
def failures(tmp_path, monkeypatch):
    monkeypatch.setenv("KVCHECK_FAILURES", str(tmp_path / "failures"))


def rows(format):
    d = max(2 * formats.facts(format)["block"], 64)
    return np.random.default_rng(5).standard_normal((3, 2, d)).astype(np.float32)


@pytest.mark.parametrize("format", ["bf16", "f8e4m3fn", "q8_0", "affine:8:g64:f32", "mxfp8:e4m3:f32",
                                    "fp8:e4m3fn:token:f32", "int8:inline:f32", "turboquant:4:g64:f32"])
def test_a_row_is_near_what_its_codes_mean_and_another_is_not(format):
    x = rows(format)
    planes = kvcheck.encode(x, format)
    assert list(planes) and all(plane.shape[:2] == (3, 2) for plane in planes.values())
    assert assert_codec_close(planes, x, format=format).passed
    with pytest.raises(AssertionError):
        assert_codec_close(planes, x[::-1], format=format)
    y = kvcheck.decode(planes, format, dtype="f32")
    assert y.shape == x.shape and y.dtype == np.float32
    # Nearest codes of 4 bits or more keep most of the square of a row of normal numbers.
    assert np.sum((y - x) ** 2) < np.sum(x**2) / 10


FOUR_BITS = ["q4_0", "q4_1", "iq4_nl", "mxfp4:f32", "nvfp4:f32", "affine:4:g64:f32", "affine:4:g32:f16", "int4zp:token:f32"]


@pytest.mark.parametrize("format", [*FOUR_BITS, "affine:8:g64:f32", "q8_0", "turboquant:prod:4:g64:f32"])
def test_right_codes_of_the_encoder_are_right_bit_by_bit(format):
    x = rows(format)
    planes = {name: plane.copy() for name, plane in kvcheck.encode(x, format).items()}
    assert assert_codec_close(planes, x, format=format, exact=True).passed
    first = next(iter(planes.values()))
    first[1, 0, -1] ^= 1  # one code is another one, which is still near
    with pytest.raises(AssertionError, match="FAIL"):
        assert_codec_close(planes, x, format=format, exact=True)


@pytest.mark.parametrize("format", FOUR_BITS)
def test_right_codes_of_four_bits_pass_and_wrong_ones_fail(format):
    x = rows(format)
    planes = {name: plane.copy() for name, plane in kvcheck.encode(x, format).items()}
    assert assert_codec_close(planes, x, format=format).passed
    with pytest.raises(AssertionError, match="FAIL"):
        assert_codec_close(planes, x[::-1], format=format)
    y = kvcheck.decode(planes, format)
    assert assert_codec_close(y, x, format=format).passed
    with pytest.raises(AssertionError, match="FAIL"):
        assert_codec_close(np.roll(y, 1, axis=-1), x, format=format)
    # Every code of one row is another one.
    codes = planes[next(iter(planes))]
    raw = codes.view("u1")[2, 1]
    raw[-8:] ^= 0x33
    with pytest.raises(AssertionError, match="FAIL  codec  y") as raised:
        assert_codec_close(planes, x, format=format)
    command, = re.findall(r"reproduce +kvcheck (compare .*)", str(raised.value))
    done = subprocess.run([str(program()), *shlex.split(command)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr


def test_behind_a_rotation_the_values_prove_nothing_and_the_bits_do():
    x = rows("hadamard:64:q8_0")
    planes = kvcheck.encode(x, "hadamard:64:q8_0")
    with pytest.raises(AssertionError, match="MISTRUSTED(?s:.*)exact=True compares the codes bit by bit"):
        assert_codec_close(planes, x, format="hadamard:64:q8_0")
    assert assert_codec_close(planes, x, format="hadamard:64:q8_0", exact=True).passed


def test_decoded_values_are_judged_too():
    x = rows("q8_0")
    y = kvcheck.decode(kvcheck.encode(x, "q8_0"), "q8_0")
    assert assert_codec_close(y, x, format="q8_0").passed
    with pytest.raises(AssertionError):
        assert_codec_close(np.roll(y, 1, axis=-1), x, format="q8_0")


@pytest.mark.parametrize("format", ["affine:8:g64:f16", "q8_0", "bf16"])
def test_decoded_values_have_the_type_that_is_asked_for(format):
    x = rows(format)
    planes = kvcheck.encode(x, format)
    own = kvcheck.decode(planes, format)
    for dtype, kind in (("f64", "f8"), ("float32", "f4"), (np.float16, "f2")):
        y = kvcheck.decode(planes, format, dtype=dtype)
        assert y.dtype == kind and np.array_equal(y, own.astype(kind))


def test_decoded_values_of_the_formats_type_are_no_planes():
    x = rows("affine:8:g64:f16")
    y = kvcheck.decode(kvcheck.encode(x, "affine:8:g64:f16"), "affine:8:g64:f16")
    assert y.dtype == np.float16 and x.dtype == np.float32
    assert assert_codec_close(y, x, format="affine:8:g64:f16").passed
    with pytest.raises(AssertionError, match="FAIL"):
        assert_codec_close(np.roll(y, 1, axis=-1), x, format="affine:8:g64:f16")
    with pytest.raises(AssertionError, match="has type float32, float16 expected"):
        assert_codec_close(y.astype("f4"), x, format="affine:8:g64:f16")


@pytest.mark.parametrize("exact", [False, True])
def test_planes_of_other_rows_and_names_are_named(exact):
    x = rows("affine:8:g64:f16")
    planes = kvcheck.encode(x, "affine:8:g64:f16")
    keywords = {"format": "affine:8:g64:f16", "exact": exact}
    for name in planes:
        short = {**planes, name: planes[name][:2]}
        with pytest.raises(AssertionError, match=f"plane '{name}' of shape .* has 4 rows, where x has 6"):
            assert_codec_close(short, x, **keywords)
    with pytest.raises(kvcheck.Error, match="no 'zeros'"):
        assert_codec_close({**planes, "zeros": planes["biases"]}, x, **keywords)
    with pytest.raises(kvcheck.Error, match="no 'zeros'"):
        kvcheck.decode({**planes, "zeros": planes["biases"]}, "affine:8:g64:f16")
    with pytest.raises(kvcheck.Error, match="plane 'codes': rows have at least one axis"):
        kvcheck.decode({**planes, "codes": np.uint32(3)}, "affine:8:g64:f16")


def test_an_output_that_a_case_has_not_is_named():
    case = kvcheck.cases.attention(hq=4, hkv=2, l=5, t=9, d=16)
    out = case.answer()["out"]
    with pytest.raises(kvcheck.Error, match="has the outputs out, and no 'lse'"):
        case.judge(out, lse=np.zeros((1, 4, 5), "f4"))


def test_every_format_that_is_listed_is_one():
    assert len(formats.names()) > 100
    for format in formats.names():
        assert formats.facts(format)["planes"]
    with pytest.raises(kvcheck.Error):
        formats.facts("affine:9")


def test_assert_close_takes_rules_and_torchs_keywords():
    want = np.float32([1, 2, 3, 4])
    got = np.nextafter(want, np.float32(9))
    assert assert_close(got, want, rule="ulp:1").passed
    assert assert_close(got, want, atol=1e-6, rtol=0).passed
    for keywords in ({}, {"rule": "exact"}, {"atol": 1e-9, "rtol": 0}):
        with pytest.raises(AssertionError, match="elements fail|FAIL"):
            assert_close(got, want, **keywords)
    with pytest.raises(AssertionError, match="MISTRUSTED"):
        assert_close(got, want, atol=1.5)
    with pytest.raises(AssertionError, match="type"):
        assert_close(want.astype("f8"), want)
    assert assert_close(want.astype("f8"), want, check_dtype=False).passed
    with pytest.raises(TypeError):
        assert_close(got, want, tolerance=1)
    for keywords in ({"rule": "abs:10", "atol": 1e-5}, {"rule": "exact", "rtol": 0}, {"atol": np.ones(2)}):
        with pytest.raises(kvcheck.Error, match="rule and rtol|atol=array"):
            assert_close(got, want, **keywords)


def test_values_of_two_types_are_compared_without_ml_dtypes(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    codes = np.uint16([0x3f80, 0xc000, 0x7f80])
    assert np.array_equal(_arrays.widened(codes, "bfloat16"), [1, -2, np.inf])
    with pytest.raises(kvcheck.Error, match="ml_dtypes"):
        _arrays.widened(np.uint8([1]), "float8_e4m3fn")
    of = _arrays.of
    monkeypatch.setattr(_arrays, "of", lambda x, name: (x, "bfloat16") if x.dtype == np.uint16 else of(x, name))
    assert assert_close(codes[:2], np.float32([1, -2]), check_dtype=False).passed
    with pytest.raises(AssertionError):
        assert_close(codes[:2], np.float32([1, 2]), check_dtype=False)


def test_two_arrays_that_differ_are_compared_again_from_their_files():
    with pytest.raises(AssertionError) as raised:
        assert_close(np.float32([1, 2, 4]), np.float32([1, 2, 3]), rule="ulp:2")
    command, = re.findall(r"reproduce +kvcheck (compare .*)", str(raised.value))
    done = subprocess.run([str(program()), *shlex.split(command)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "got 4" in done.stdout


def test_cases_are_the_same_bits_and_faults_of_kvcheck_fail():
    words = {"hq": 4, "hkv": 2, "l": 5, "t": 33, "d": 16, "dtype": "bf16", "regime": "outlier", "seed": 3}
    case, again = (kvcheck.cases.attention(**words) for _ in range(2))
    assert np.array_equal(np.asarray(case.k).view("u2"), np.asarray(again.k).view("u2"))
    out = case.answer("simulated:base=flash_attention_2")["out"]
    assert case.judge(out, plan="flash_attention_2").passed
    wrong = case.answer("fault:last_key_dropped")["out"]
    assert case.judge(wrong, plan="flash_attention_2").outcome == "FAIL"
    assert set(kvcheck.cases.regimes()) == {"attention", "rows"}
