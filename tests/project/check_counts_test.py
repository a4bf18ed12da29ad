#!/usr/bin/env python3
"""check_counts.py takes counts that are true, and names the ones that are not or are gone.

    check_counts_test.py
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "check_counts.py"
HOUSE = {
    "tools/coverage.md": "| x | 5 findings and 2 differences |\n| y | Each of 2 cache faults (of the 3 of [TABLE.md](x)) |\n",
    "bench/README.md": "| Power of drawn traces on 2 cache faults | 9/10 found |\n",
    "tools/adapters/README.md": "Together 5 findings: 4 wrong; beside them, in no count, 4 edges and 2 differences.\n",
    "tools/faults/TABLE.md": "| fault | kind |\n| a | cache | x |\n| b | cache | x |\n| c | cache | x |\n| d | codec | x |\n",
    "bench/results/fault_power.csv": "run,fault,found\nold,a,5/5\nnew,a,4/5\nnew,b,5/5\n",
}


class Counts(unittest.TestCase):
    def check(self, **changed):
        with tempfile.TemporaryDirectory() as name:
            for file, content in {**HOUSE, **changed.get("files", {})}.items():
                path = pathlib.Path(name) / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
            result = subprocess.run([sys.executable, "-B", str(SCRIPT), name], capture_output=True, text=True)
            self.assertEqual(result.stderr, "")
            return result.returncode, result.stdout

    def test_true_counts_are_taken(self):
        self.assertEqual(self.check(), (0, ""))

    def test_a_count_that_is_not_true_is_named_with_its_line(self):
        for file, old, new, line in (("tools/coverage.md", "5 f", "4 f", 1), ("tools/coverage.md", "2 diff", "3 diff", 1),
                                     ("tools/coverage.md", "of the 3", "of the 4", 2), ("bench/README.md", "9/10", "10/10", 1),
                                     ("tools/adapters/README.md", "5 f", "6 f", None), ("tools/faults/TABLE.md", "codec", "cache", None)):
            status, said = self.check(files={file: HOUSE[file].replace(old, new)})
            self.assertEqual(status, 1, file)
            if line:
                self.assertRegex(said, rf"^{file}:{line}: ")

    def test_a_sentence_that_is_gone_is_named(self):
        status, said = self.check(files={"bench/README.md": "nothing\n"})
        self.assertEqual(status, 1)
        self.assertIn("bench/README.md: no sentence", said)


if __name__ == "__main__":
    unittest.main()
