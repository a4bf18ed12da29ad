"""The adapter of mlx-lm in its environment: what it greets with, one cache of each class, attention and codecs. Skipped
without the environment. Whether the answers are right is kvcheck's to say.
"""
import os
import pathlib
import subprocess
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools/adapters"))

from check_findings import environment
from driver import SETUP, Child, append, from_wire, refuses, shown_tokens, to_wire

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters/mlx_lm"
SKIPPED = 77


class MlxLm(unittest.TestCase):
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        cls.child = Child([str(FOLDER / "run"), *cls.OPTIONS], limit_s=600)
        cls.greeting = cls.child.hello()

    @classmethod
    def tearDownClass(cls):
        cls.child.__exit__()

    def setUp(self):
        self.start()

    def start(self, **changes):
        self.assertEqual(self.child.ask(do="start", setup={**SETUP, **changes}, seed=1), {})

    def new(self, out=0, layout="linear", rows=1, padding=(), form="f32", **more):
        answer = self.child.ask(do="new", out=out, layout=layout, k=form, v=form, rows=rows, padding=list(padding), **more)
        self.assertNotIn("refused", answer)
        return answer

    def test_greets_with_versions_and_spaces(self):
        self.assertTrue(self.greeting["name"].startswith("mlx-lm"))
        self.assertRegex(self.greeting["version"], r"^0\.32\.2 \(mlx 0\.32\.4\)")
        self.assertEqual({space["kind"] for space in self.greeting["spaces"]}, {"cache", "attention", "codec"})

    def test_each_class_of_cache_shows_what_its_queries_see(self):
        for layout, rows, padding, seen in (
                ("linear", 1, [], [[1, 2, 3, 4, 5, 6]]), ("linear:w=2", 1, [], [[5, 6]]),
                ("linear", 2, [1, 0], [[2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]]), ("ring:w=3", 1, [], [[4, 5, 6]]),
                ("ring:w=3", 2, [], [[4, 5, 6]] * 2), ("ring:w=4:keep=1", 1, [], [[1, 4, 5, 6]]),
                ("chunk:c=4", 1, [], [[5, 6]])):
            self.start()
            self.new(layout=layout, rows=rows, padding=padding)
            row = [[-1 if token <= skipped else token for token in range(1, 7)] for skipped in (padding or [0] * rows)]
            append(self.child, 0, [tokens[:3] for tokens in row])
            for column in (3, 4, 5):
                answer = append(self.child, 0, [tokens[column:column + 1] for tokens in row], observe=[0])
            self.assertEqual(shown_tokens(answer["states"][0]), seen, layout)
            answer = self.child.ask(do="copy", cache=0, out=1, observe=[1])
            self.assertIn("retained", answer["states"][0], layout)

    def test_states_that_are_asked_for_together_are_those_asked_for_one_by_one(self):
        self.new(out=0)
        append(self.child, 0, [[1, 2, 3]])
        self.child.ask(do="copy", cache=0, out=1)
        self.new(out=2, rows=2, padding=[1, 0])
        append(self.child, 2, [[-1, 5], [4, 5]])
        self.child.ask(do="trim", cache=1, count=1)
        self.new(out=3)
        together = self.child.ask(do="observe", observe=[0, 1, 2, 3, 7, 0])["states"]
        append(self.child, 0, [[9]])  # all are computed anew
        self.child.ask(do="trim", cache=0, count=1)
        one_by_one = [self.child.ask(do="observe", observe=[n])["states"][0] for n in (1, 2, 3, 7)]
        self.assertEqual(together[1:5], one_by_one)
        self.assertEqual(together[5], together[0])
        self.assertEqual(shown_tokens(together[0]), [[1, 2, 3]])
        self.assertIsNone(together[4])

    def test_the_thread_that_evaluates_stands_behind_the_one_that_waits(self):
        threads = pathlib.Path(f"/proc/{self.child.process.pid}/task").iterdir()
        behind = [int(t.name) for t in threads if os.sched_getscheduler(int(t.name)) == os.SCHED_BATCH]
        self.assertEqual(len(behind), 1)
        self.assertEqual(len(os.sched_getaffinity(behind[0])), 1)

    def test_a_batch_is_made_filtered_extended_and_taken_apart(self):
        self.new(0)
        self.new(1)
        append(self.child, 0, [[1, 2, 3]])
        append(self.child, 1, [[4]])
        state = self.child.ask(do="merge", caches=[0, 1], out=2, observe=[2])["states"][0]
        self.assertEqual(shown_tokens(state), [[1, 2, 3], [4]])
        self.assertEqual(state["offsets"], [3, 1])
        self.child.ask(do="extend", cache=2, other=0)
        state = self.child.ask(do="filter", cache=2, rows=[2, 1], observe=[2])["states"][0]
        self.assertEqual(shown_tokens(state), [[1, 2, 3], [4]])
        state = self.child.ask(do="extract", cache=2, row=1, out=3, observe=[3])["states"][0]
        self.assertEqual(shown_tokens(state), [[4]])

    def test_a_batch_without_rows_is_one_of_the_classes_of_batches(self):
        self.assertEqual(self.new(layout="linear", rows=0), {})
        self.assertEqual(self.new(layout="ring:w=3", rows=0), {})
        self.assertIn("without rows", self.new(layout="chunk:c=4", rows=0)["unsupported"])
        self.assertEqual(self.new(layout="chunk:c=4", rows=2), {})
        self.start(k_dim=32, v_dim=32)
        self.assertIn("without rows", self.new(form="affine:4:g32:f32", rows=0)["unsupported"])

    def test_a_cache_that_the_library_cannot_quantize_is_declined(self):
        for layout, rows in (("linear", 2), ("ring:w=3", 1), ("ring:w=3", 2), ("chunk:c=4", 1)):
            self.start(k_dim=32, v_dim=32)
            self.new(layout=layout, rows=rows)
            answer = self.child.ask(do="to_quantized", cache=0, k="affine:4:g32:f32", v="affine:4:g32:f32")
            self.assertIn("unsupported", answer, layout)

    def test_a_prefill_padded_on_the_right_is_pending_until_it_is_finalized(self):
        self.new(rows=2)
        self.child.ask(do="prepare", cache=0, lengths=[1, 3], columns=3)
        self.assertIn("refused", self.child.ask(do="copy", cache=0, out=1))
        append(self.child, 0, [[1, -1, -1], [2, 3, 4]])
        state = self.child.ask(do="finalize", cache=0, observe=[0])["states"][0]
        self.assertEqual(shown_tokens(state), [[1], [2, 3, 4]])

    def test_illegal_calls_that_no_document_forbids_reach_the_library(self):
        for prepare, call in ((None, {"do": "filter", "rows": [2]}), (None, {"do": "extract", "row": -1, "out": 1}),
                              ({"lengths": [1, 3], "columns": 3}, {"do": "filter", "rows": [0]}),
                              ({"lengths": [1, 3], "columns": 3}, {"do": "extract", "row": 0, "out": 1})):
            self.start()
            self.new(rows=2)
            if prepare:
                self.child.ask(do="prepare", cache=0, **prepare)
            append(self.child, 0, [[1, 2, 3], [4, 5, 6]])
            answer = self.child.ask(**{"cache": 0, **call})
            self.assertEqual("refused" in answer, bool(self.OPTIONS), (prepare, call, answer))

    def test_rings_that_write_to_their_callers_arrays_are_told(self):
        self.new(layout="ring:w=2")
        append(self.child, 0, [[1, 2]])
        answer = append(self.child, 0, [[3]], observe=[0])
        self.assertEqual(answer.get("inputs_changed", False), not self.OPTIONS)

    def test_vectors_of_16_bits_come_back_bit_for_bit(self):
        for kind in ("f16", "bf16"):
            self.start(x=kind)
            self.new(form=kind)
            answer = append(self.child, 0, [[1, 2]], kind=kind, observe=[0])
            name, extents, data = answer["states"][0]["k"][0]
            self.assertEqual((name, extents), (kind, [1, 2, 2, 8]))
            self.assertEqual(np.frombuffer(data, np.uint16)[8] & 0x7FFF, {"f16": 0x1800, "bf16": 0x3B00}[kind])

    def test_quantized_caches_show_codes_scales_and_biases(self):
        self.start(k_dim=32, v_dim=32)
        self.new(form="affine:4:g32:f32")
        state = append(self.child, 0, [[1, 2]], dim=32, observe=[0])["states"][0]
        self.assertEqual([part[:2] for part in state["k"]],
                         [["u32", [1, 2, 2, 4]], ["f32", [1, 2, 2, 1]], ["f32", [1, 2, 2, 1]]])
        state = self.child.ask(do="trim", cache=0, count=1, observe=[0])["states"][0]
        self.assertEqual(from_wire(state["retained"]).sum(), 1)

    def test_files_come_back_and_other_files_are_refused(self):
        self.new()
        append(self.child, 0, [[1, 2, 3]])
        self.child.ask(do="save", cache=0, key="s1")
        state = self.child.ask(do="load", key="s1", out=1, observe=[1])["states"][0]
        self.assertEqual(shown_tokens(state), [[1, 2, 3]])
        self.child.ask(do="damage", key="s1", how="truncate", at=0)
        self.assertIn("refused", self.child.ask(do="load", key="s1", out=1))
        self.assertIn("refused", self.child.ask(do="load", key="s2", out=1))

    def test_attention_of_a_cache_and_of_a_case(self):
        self.new()
        append(self.child, 0, [[1, 2]])
        q = to_wire(np.zeros((1, 4, 2, 8), np.float32))
        answer = self.child.ask(do="attend", cache=0, q=q, scale=0.5, window=None, sinks=None)
        out = from_wire(answer["out"])
        self.assertTrue(np.allclose(out[0, 0, :, 0], [1 / 1024, 1.5 / 1024]))
        self.assertIn("mlx_cpu_sdpa_f32", answer["plan"])
        case = "attention hq=4 hkv=2 l=1 t=3 d=8 q=f32 k=f32 v=f32 out=f32 data=file"
        v = np.arange(48, dtype=np.float32).reshape(1, 2, 3, 8)
        answer = self.child.ask(do="case", case=case, fields={}, plan="", profile="",
                                inputs={"q": to_wire(np.zeros((1, 4, 1, 8), np.float32)),
                                        "k": to_wire(np.zeros((1, 2, 3, 8), np.float32)), "v": to_wire(v)})
        self.assertTrue(np.allclose(from_wire(answer["outputs"]["out"])[0, 3, 0], v[0, 1].mean(axis=0)))

    def test_codecs_answer_with_the_tensors_of_the_format(self):
        x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
        case = "codec op={} format=affine:8:g32:f32 x=f32 rows=2 d=32 data=file"
        codes = self.child.ask(do="case", case=case.format("encode"), inputs={"x": to_wire(x)})["outputs"]
        self.assertEqual({name: wired[0] for name, wired in codes.items()},
                         {"codes": "u32", "scales": "f32", "biases": "f32"})
        y = self.child.ask(do="case", case=case.format("decode"), inputs=codes)["outputs"]["y"]
        self.assertTrue(np.allclose(from_wire(y), x, atol=2 / 255))


class Options(unittest.TestCase):
    def test_what_is_not_an_option_is_refused(self):
        for options, said in ((["--pathced"], "--pathced"), (["--operations=append,fly"], "no operation fly"),
                              (["--operations=append", "--operations=trim"], "more than once")):
            self.assertIn(said, refuses([str(FOLDER / "run"), *options]) or "", options)
        self.assertIn("invalid choice", refuses([str(FOLDER / "run"), "--cache=fastest"]) or "")
        with Child([str(FOLDER / "run"), "--operations=trim"], limit_s=600) as child:
            offered = {name for space in child.hello()["spaces"] if space["kind"] == "cache" for name in space["operations"]}
        self.assertEqual(offered, {"new", "append", "trim", "drop"})


class Concatenate(unittest.TestCase):
    def test_the_class_is_offered_alone_and_its_trim_takes_nothing(self):
        with Child([str(FOLDER / "run"), "--cache=concatenate"], limit_s=600) as child:
            spaces = [space for space in child.hello()["spaces"] if space["kind"] == "cache"]
            self.assertEqual([space["layouts"] for space in spaces], [["linear", "linear:w"]])
            child.ask(do="start", setup=SETUP, seed=1)
            for layout in ("ring:w=3", "chunk:c=4"):
                answer = child.ask(do="new", out=0, layout=layout, k="f32", v="f32", rows=1, padding=[])
                self.assertIn("ConcatenateKVCache", answer["unsupported"])
            child.ask(do="new", out=0, layout="linear", k="f32", v="f32", rows=1, padding=[])
            append(child, 0, [[1, 2, 3]])
            self.assertEqual(child.ask(do="trim", cache=0, count=2)["trimmed"], 2)
            state = append(child, 0, [[4]], observe=[0])["states"][0]
            self.assertEqual(shown_tokens(state), [[1, 2, 3, 4]])

    def test_bytes_of_empty_caches_are_asked_where_they_are_to_be(self):
        with Child([str(FOLDER / "run"), "--bytes-of-empty"], limit_s=600) as child:
            child.ask(do="start", setup={**SETUP, "k_dim": 32, "v_dim": 32}, seed=1)
            answer = child.ask(do="new", out=0, layout="linear", k="affine:4:g32:f32", v="affine:4:g32:f32", rows=1,
                               padding=[], observe=[0])
            self.assertIn("nbytes", answer["failed"])


class Patched(MlxLm):
    """The repairs of the findings, through the same tests."""
    OPTIONS = ("--patched",)

    def test_the_repairs_are_in_force(self):
        self.assertIn("patched", self.greeting["name"])
        self.new()
        append(self.child, 0, [[1, 2]])
        self.assertIn("refused", self.child.ask(do="trim", cache=0, count=-1))


class OneFaultOneRepair(unittest.TestCase):
    """The library with one of its faults repaired and another one put in, under its own name, so that what is known of it
    counts."""

    def test_both_are_in_force_and_nothing_else_is(self):
        options = ["--repair", "negative_trim", "--fault", "trim_says_what_was_asked"]
        with Child([str(FOLDER / "run"), *options], limit_s=600) as child:
            self.assertEqual(child.hello()["name"], "mlx-lm")
            child.ask(do="start", setup=SETUP, seed=1)
            child.ask(do="new", out=0, layout="linear", k="f32", v="f32", rows=1, padding=[])
            append(child, 0, [[1, 2, 3]])
            self.assertIn("refused", child.ask(do="trim", cache=0, count=-1))
            answer = child.ask(do="trim", cache=0, count=5, observe=[0])
            self.assertEqual((answer["trimmed"], answer["states"][0]["offsets"]), (5, [0]))

    def test_every_fault_has_its_place_in_the_library(self):
        done = subprocess.run([str(FOLDER / "venv/bin/python"), "-c",
                               "import faults\nfor name in faults.FAULTS: faults.apply([name])\nprint(len(faults.FAULTS))"],
                              cwd=FOLDER, capture_output=True, text=True, check=True)
        self.assertGreaterEqual(int(done.stdout), 30)


if __name__ == "__main__":
    if environment(FOLDER) is None:
        print("skipped: no tools/adapters/mlx_lm/venv (tools/adapters/make_venv.sh mlx_lm)")
        sys.exit(SKIPPED)
    unittest.main()
