"""What the package does with states and results of an adapter: what is retained without a probe, results that are read
again, lists of rows, numbers of rows."""
import pathlib
import sys
import unittest

import numpy as np

import driver

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[2] / "tools/adapters/kvcheck_adapter"
sys.path.insert(0, str(PACKAGE))

from kvcheck_adapter.session import Indices


def child(*options):
    return driver.Child([sys.executable, "-m", "kvcheck_adapter", str(HERE / "telling_adapter.py"), *options],
                        cwd=str(PACKAGE))


def begun(process, rows=2, v="f32"):
    process.hello()
    process.ask(do="start", setup=driver.SETUP, seed=1)
    process.ask(do="new", out=0, layout="linear", k="f32", v=v, rows=rows, padding=[])
    return driver.append(process, 0, [[1, 2, 3]] * rows, observe=[0])


class Retained(unittest.TestCase):
    def state(self, *options, v="f32"):
        with child(*options) as process:
            begun(process, v=v)
            return process.ask(do="trim", cache=0, count=1, observe=[0])["states"][0]

    def test_the_method_is_asked_and_nothing_is_appended(self):
        state = self.state()
        self.assertEqual(driver.shown_tokens(state), [[1, 2], [1, 2]])
        self.assertEqual(driver.from_wire(state["retained"]).shape, (2, 2))
        self.assertNotIn("probed", state)

    def test_without_it_a_column_is_appended_to_a_copy_and_the_state_says_so(self):
        state = self.state("--silent")
        self.assertEqual(driver.shown_tokens(state), [[1, 2], [1, 2]])
        self.assertTrue(state["probed"])

    def test_no_column_is_appended_where_it_would_change_how_earlier_tokens_are_stored(self):
        for v in ("affine:4:g32:r1:f32", "channel:8:g4:r4:f32"):
            self.assertNotIn("retained", self.state("--silent", v=v), v)
            self.assertIn("retained", self.state(v=v), v)

    def test_the_method_is_asked_of_a_prepared_prefill_and_a_probe_is_not_appended_to_it(self):
        for options, tells in (((), True), (("--silent",), False)):
            with child(*options) as process:
                begun(process)
                state = process.ask(do="prepare", cache=0, lengths=[1, 2], columns=2, observe=[0])["states"][0]
                self.assertEqual("retained" in state, tells)
                self.assertEqual(state["queries"], 0)
                if tells:
                    self.assertEqual(driver.shown_tokens(state), [[1, 2, 3], [1, 2, 3]])


class Results(unittest.TestCase):
    def test_a_view_of_live_memory_is_told_where_it_changes(self):
        for options, changes in (((), False), (("--views",), True)):
            with child(*options) as process:
                begun(process)
                self.assertNotIn("results_changed", process.ask(do="trim", cache=0, count=2))
                answer = driver.append(process, 0, [[7], [7]])
                # The next results are of the next append: what stands is what was returned before it.
                self.assertEqual(answer.get("results_changed", False), changes)


class Rows(unittest.TestCase):
    def test_an_empty_list_indexes_nothing(self):
        self.assertEqual(np.array(Indices([])).dtype, np.int64)
        self.assertEqual(np.asarray(Indices([2, 0])).tolist(), [2, 0])
        self.assertEqual(np.arange(3)[np.array(Indices([]))].tolist(), [])
        with child() as process:
            begun(process)
            answer = process.ask(do="filter", cache=0, rows=[], observe=[0])
            self.assertEqual(answer["states"][0]["rows"], 0)
            self.assertNotIn("refused", answer)

    def test_another_number_of_rows_is_told_as_it_is(self):
        with child("--stays") as process:
            begun(process, rows=1)
            state = process.ask(do="filter", cache=0, rows=[], observe=[0])["states"][0]
            self.assertEqual(state, {"rows": 1, "queries": 0})


if __name__ == "__main__":
    unittest.main()
