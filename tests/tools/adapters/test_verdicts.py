"""What kvcheck says of adapters that are wrong in one way: the operation is judged before its state, a probe is named, a
view of live memory fails, and one head for two is no call that is taken. Argument: the path of kvcheck."""
import json
import pathlib
import shlex
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[2] / "tools/adapters/kvcheck_adapter"
SETUP = "cache layout=linear k=f32 hkv=2 hq=2 dk=8 data=tokens:1; "


def run(ops, *options):
    command = ["env", f"PYTHONPATH={PACKAGE}", sys.executable, "-m", "kvcheck_adapter", str(HERE / "telling_adapter.py"),
               *options]
    done = subprocess.run([KVCHECK, "run", SETUP + ops, "--impl", shlex.join(command)], capture_output=True, text=True,
                          timeout=300)
    return done.returncode, done.stdout + done.stderr


class Verdicts(unittest.TestCase):
    def fails(self, signature, ops, *options):
        code, text = run(ops, *options)
        self.assertEqual(code, 1, text)
        self.assertIn(f'signature "{signature}"', text)
        return text

    def test_what_is_right_passes(self):
        for options in ((), ("--silent",)):
            code, text = run("new A rows=2; append A 3; trim A 1; append A 2; filter A 1; filter A; trim A 1", *options)
            self.assertEqual(code, 0, text)

    def test_a_wrong_acceptance_is_judged_before_the_state_that_breaks_the_protocol(self):
        self.fails("filter accepted", "new A rows=2; append A 3; filter A 9", "--accepts")

    def test_another_number_of_rows_is_no_broken_protocol(self):
        self.fails("filter rows", "new A; append A 3; filter A", "--stays")

    def test_a_view_of_live_memory_fails(self):
        text = self.fails("append result_changed", "new A; append A 3; trim A 2; append A 1", "--views")
        self.assertIn("views of live memory", text)

    def test_what_a_call_returns_that_does_not_fit_together_is_no_refusal(self):
        trace = "new A; append A 3"
        self.assertIn("the call returned a mask that does not fit the K and V that it returned: the mask covers 4 columns, K and V "
                      "have 3", self.fails("append refused", trace, "--wide-mask"))
        self.assertIn("the call returned K and V that do not fit each other: K and V have 2 and 3 columns",
                      self.fails("append refused", trace, "--short-values"))
        # What it is follows from no words.
        self.assertIn("a legal call was refused: ValueError: the mask covers 4 columns",
                      self.fails("append refused", trace, "--refuses"))

    def test_a_report_names_the_probe_that_found_it(self):
        found = "new A; append A 3; trim A 1"
        self.assertIn("found by a probe", self.fails("trim retained_missing", found, "--loses", "--silent"))
        self.assertNotIn("probe", self.fails("trim retained_missing", found, "--loses"))

    def test_a_gate_asks_nothing_outside_of_the_spaces(self):
        root = HERE.parents[2]
        command = ["env", f"PYTHONPATH={PACKAGE}", sys.executable, "-m", "kvcheck_adapter",
                   str(root / "tools/adapters/numpy_example/adapter.py")]
        done = subprocess.run([KVCHECK, "gate", "--impl", shlex.join(command), "--suite", root / "tools/suites/attention.cases",
                               "--fuzz-cases", "0", "--json", "-"], capture_output=True, text=True, timeout=300)
        cases = {case["name"]: case for case in json.loads(done.stdout)["cases"]}
        outside = cases["attention/softcap_and_alibi"]
        self.assertEqual(outside["outcome"], "UNSUPPORTED")
        self.assertIn("none of the spaces", outside["reasons"][0])
        outcomes = [case["outcome"] for case in cases.values()]
        self.assertEqual(outcomes.count("FAIL"), 0, done.stdout)
        self.assertGreater(outcomes.count("PASS"), 5)

    def test_columns_that_would_broadcast_are_to_be_refused(self):
        for wrong in ("fewer_rows", "fewer_heads", "fewer_v"):
            code, text = run(f"new A rows=2; append A 3; append A 2 wrong={wrong}; append A 1")
            self.assertEqual(code, 0, text)


if __name__ == "__main__":
    KVCHECK = sys.argv.pop(1)
    unittest.main()
