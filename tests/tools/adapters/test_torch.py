"""The adapters of PyTorch and transformers in their environments: what they greet with, one cache of each class, attention
of each path. Skipped without the environment: test_torch.py torch_sdpa | transformers. Whether answers are right is
kvcheck's to say.
"""
import os
import pathlib
import sys
import unittest

import numpy as np

from driver import SETUP, Child, append, from_wire, refuses, shown_tokens, to_wire

ADAPTERS = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters"
SKIPPED = 77
sys.path.insert(0, str(ADAPTERS))

from check_findings import environment


class Started(unittest.TestCase):
    """One process for all tests of a class."""
    NAME, OPTIONS = "", ()

    @classmethod
    def setUpClass(cls):
        cls.child = Child([str(ADAPTERS / cls.NAME / "run"), *cls.OPTIONS], limit_s=600)
        cls.greeting = cls.child.hello()

    @classmethod
    def tearDownClass(cls):
        cls.child.__exit__()

    def attention(self, text, **arrays):
        return self.child.ask(do="case", case=f"attention {text} data=file", fields={}, plan="", profile="",
                              inputs={name: to_wire(array) for name, array in arrays.items()})


def operands(queries=2, keys=3, kv_heads=1):
    """Equal scores, so that a query is the mean of what it sees; V is the number of the key."""
    v = np.broadcast_to(np.arange(keys, dtype=np.float32)[:, None], (1, kv_heads, keys, 8))
    return {"q": np.zeros((1, 2, queries, 8), np.float32), "k": np.zeros((1, kv_heads, keys, 8), np.float32),
            "v": np.ascontiguousarray(v)}


def case(mask, queries=2, keys=3, kv_heads=1, more=""):
    return f"hq=2 hkv={kv_heads} l={queries} t={keys} d=8 q=f32 k=f32 v=f32 out=f32 mask={mask}{more}"


MEANS = {"none": [1, 1], "causal_top_left": [0, 0.5], "causal_bottom_right": [0.5, 1], "window:1": [1.5, 2],
         "causal_bottom_right+window:1": [1, 2], "left_pad:2": [2, 2]}


class Sdpa(Started):
    NAME, PLAN = "torch_sdpa", "base=torch_cpu_flash_f32"

    def test_greets_with_its_version_and_states_what_it_has(self):
        self.assertRegex(self.greeting["version"], r"^2\.15\.0")
        self.assertEqual({space["kind"] for space in self.greeting["spaces"]}, {"attention"})

    def test_every_mask_shows_the_keys_that_it_says(self):
        for mask, means in MEANS.items():
            answer = self.attention(case(mask), **operands())
            self.assertEqual(answer["plan"], self.PLAN)
            self.assertTrue(np.allclose(from_wire(answer["outputs"]["out"])[0, 1, :, 0], means), mask)


class SdpaMath(Sdpa):
    OPTIONS, PLAN = ("--backend", "math", "--gqa", "expand", "--causal", "bias"), "base=torch_cpu_math"

    def test_the_log_sum_exp_is_not_there(self):
        self.assertIn("unsupported", self.attention(case("none", more=" lse=natural"), **operands()))


class SdpaFlash(Sdpa):
    OPTIONS = ("--backend", "flash")

    def test_the_log_sum_exp_of_equal_scores_is_the_log_of_their_number(self):
        outputs = self.attention(case("none", more=" lse=natural"), **operands())["outputs"]
        self.assertTrue(np.allclose(from_wire(outputs["lse"]), np.log(3)))


class Dynamic(Started):
    NAME = "transformers"
    LAYOUTS = (("linear", [], [[1, 2, 3, 4, 5, 6]]), ("linear:w=2", [], [[5, 6]]), ("ring:w=3", [], [[4, 5, 6]]),
               ("linear", [1, 0], [[2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]]), ("ring:w=3", [1, 0], [[4, 5, 6]] * 2),
               ("chunk:c=4", [], [[5, 6]]), ("chunk:c=4", [2, 0], [[3, 4, 5, 6], [5, 6]]))

    def setUp(self):
        self.assertEqual(self.child.ask(do="start", setup=SETUP, seed=1), {})

    def new(self, layout="linear", padding=(0,)):
        answer = self.child.ask(do="new", out=0, layout=layout, k="f32", v="f32", rows=len(padding), padding=list(padding))
        self.assertEqual(answer, {})

    def fed(self, padding=(0,)):
        """Six columns: three, then one by one. The state after the last."""
        return self.fed_rows([[-1 if token <= skipped else token for token in range(1, 7)] for skipped in padding])

    def fed_rows(self, rows):
        append(self.child, 0, [row[:3] for row in rows])
        for column in (3, 4, 5):
            answer = append(self.child, 0, [row[column:column + 1] for row in rows], observe=[0])
        self.assertNotIn("refused", answer)
        return answer["states"][0]

    def test_each_layer_shows_what_its_queries_see(self):
        for layout, padding, seen in self.LAYOUTS:
            self.setUp()
            self.new(layout, padding or [0])
            state = self.fed(padding or [0])
            self.assertEqual(shown_tokens(state), seen, (layout, padding))
            self.assertEqual(state["offsets"], [6 - skipped for skipped in padding or [0]])

    def test_rows_are_permuted(self):
        self.new(padding=[1, 0])
        self.fed([1, 0])
        state = self.child.ask(do="filter", cache=0, rows=[1, 0], observe=[0])["states"][0]
        self.assertEqual(shown_tokens(state), [[1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6]])

    def test_attention_of_a_cache_is_that_of_the_tokens_seen(self):
        self.new()
        append(self.child, 0, [[1, 2]])
        answer = self.child.ask(do="attend", cache=0, q=to_wire(np.zeros((1, 4, 2, 8), np.float32)), scale=0.5,
                                window=None, sinks=None)
        self.assertTrue(np.allclose(from_wire(answer["out"])[0, 0, :, 0], [1 / 1024, 1.5 / 1024]))

    def test_every_mask_of_a_case_shows_the_keys_that_it_says(self):
        for mask, means in MEANS.items():
            answer = self.attention(case(mask), **operands())
            self.assertTrue(np.allclose(from_wire(answer["outputs"]["out"])[0, 1, :, 0], means), mask)


class DynamicWithFilesAndCrops(Dynamic):
    OPTIONS = ("--record-past", "--attention", "eager")

    def test_the_newest_tokens_go_and_others_come(self):
        for layout, seen in (("linear", [[1, 2, 3, 4, 5, 9]]), ("ring:w=3", [[4, 5, 9]])):
            self.setUp()
            self.new(layout)
            self.fed()
            self.assertEqual(self.child.ask(do="trim", cache=0, count=1)["trimmed"], 1)
            self.assertEqual(shown_tokens(append(self.child, 0, [[9]], observe=[0])["states"][0]), seen, layout)

    def test_crop_is_given_the_number_that_was_asked_for(self):
        self.new(padding=[1, 0])
        self.fed([1, 0])
        answer = self.child.ask(do="trim", cache=0, count=6, observe=[0])
        self.assertIn("padding", answer["unsupported"])  # row 0 has five tokens
        self.assertEqual(shown_tokens(answer["states"][0]), [[2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]])
        self.assertEqual(self.child.ask(do="trim", cache=0, count=5)["trimmed"], 5)
        self.setUp()
        self.new()
        self.fed()
        answer = self.child.ask(do="trim", cache=0, count=7, observe=[0])
        self.assertEqual((answer["trimmed"], shown_tokens(answer["states"][0])), (6, [[]]))
        self.setUp()
        self.new("ring:w=3")
        self.fed()
        self.child.ask(do="trim", cache=0, count=9)  # the library's length is -3 now
        self.assertIn("refused", append(self.child, 0, [[9]]))

    def test_files_come_back_and_others_are_refused(self):
        self.new("ring:w=3")
        self.fed()
        self.child.ask(do="save", cache=0, key="s1")
        state = self.child.ask(do="load", key="s1", out=1, observe=[1])["states"][0]
        self.assertEqual(shown_tokens(state), [[4, 5, 6]])  # what the last append recorded is still there
        self.child.ask(do="damage", key="s1", how="foreign", at=0)
        self.assertIn("refused", self.child.ask(do="load", key="s1", out=1))


class Static(Dynamic):
    OPTIONS = ("--cache", "static", "--length", "12")

    def test_more_than_its_length_is_not_there(self):
        self.new()
        self.assertIn("unsupported", append(self.child, 0, [list(range(1, 14))]))


APART = 160  # numbers of tokens that four bits tell apart: a step over a vector of these tests is 128 of them at most


class Quanto(Dynamic):
    OPTIONS = ("--cache", "quanto", "--bits", "4", "--residual", "4")
    LAYOUTS = Dynamic.LAYOUTS[:2]

    ROWS = [[APART * n for n in row] for row in (range(1, 7), range(7, 13))]

    def test_each_layer_shows_what_its_queries_see(self):
        for layout, _, seen in self.LAYOUTS:
            self.setUp()
            self.new(layout)
            self.assertEqual(shown_tokens(self.fed_rows(self.ROWS[:1])), [[APART * n for n in seen[0]]], layout)

    def test_rows_are_permuted(self):
        self.new(padding=[0, 0])
        self.assertEqual(shown_tokens(self.fed_rows(self.ROWS)), self.ROWS)
        state = self.child.ask(do="filter", cache=0, rows=[1, 0], observe=[0])["states"][0]
        self.assertEqual(shown_tokens(state), self.ROWS[::-1])


class Options(unittest.TestCase):
    NAME = "transformers"

    def test_options_of_another_cache_and_numbers_below_the_least_are_refused(self):
        for options, said in (("--length 9", "--length belongs to --cache static"),
                              ("--cache static --bits 4", "--bits belongs to --cache quanto or hqq"),
                              ("--cache fp8 --residual 4", "--residual belongs to --cache quanto or hqq"),
                              ("--cache static --record-past", "--record-past belongs to --cache dynamic"),
                              ("--cache static --length 0", "--length is at least 1")):
            self.assertIn(said, refuses([str(ADAPTERS / self.NAME / "run"), *options.split()]) or "", options)


class LengthRaises(unittest.TestCase):
    NAME = "transformers"

    def test_a_length_that_raises_is_told_unless_the_file_was_damaged(self):
        file = pathlib.Path(__file__).with_name("length_raises.py")
        with Child([environment(ADAPTERS / self.NAME), "-m", "kvcheck_adapter", str(file)], limit_s=600,
                   env={**os.environ, "PYTHONPATH": str(ADAPTERS / "kvcheck_adapter")}) as child:
            child.hello()
            child.ask(do="start", setup=SETUP, seed=1)
            child.ask(do="new", out=0, layout="linear", k="f32", v="f32", rows=1, padding=[0])
            append(child, 0, [[1, 2]])
            self.assertIn("ValueError: no length", child.ask(do="observe", observe=[0])["failed"])
            child.ask(do="save", cache=0, key="s1")
            self.assertIn("no length", child.ask(do="load", key="s1", out=1, observe=[1])["failed"])
            child.ask(do="damage", key="s1", how="flip", at=1400)  # of the numbers: still loaded
            self.assertEqual(len(child.ask(do="load", key="s1", out=1, observe=[1])["states"]), 1)


def main(name):
    if environment(ADAPTERS / name) is None:
        print(f"skipped: no tools/adapters/{name}/venv (tools/adapters/make_venv.sh {name})")
        return SKIPPED
    chosen = [item for item in globals().values()
              if isinstance(item, type) and issubclass(item, unittest.TestCase) and getattr(item, "NAME", "") == name]
    loader = unittest.TestLoader()
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(item) for item in chosen)
    return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
