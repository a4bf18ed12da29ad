"""make_known.py end to end on the example whose rings lose a token: what it writes, `kvcheck gate` takes as known, and nothing else.

    test_known.py KVCHECK
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ADAPTERS = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters"
BROKEN = f"{ADAPTERS}/numpy_example/run --broken"
KVCHECK = sys.argv.pop(1)


class Known(unittest.TestCase):
    def make(self, path, *options):
        done = subprocess.run([sys.executable, ADAPTERS / "make_known.py", "numpy_example", KVCHECK, "--option=--broken", "--out", path,
                               "--expires", "2999-12-31", *options], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path.read_text()

    def test_what_is_written_is_known_and_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            path, cases = pathlib.Path(folder) / "known.txt", pathlib.Path(folder) / "x.cases"
            text = self.make(path, "--minutes", "0.05", "--seeds", "2", "--shrink-cases", "8")
            self.assertIn("# New traces by seed", text)
            self.assertIn("seed 1 ", text)
            self.assertIn("  trace cache layout=ring", text)
            self.assertNotIn("not looked into", text)
            trace = next(line.split("trace ")[1] for line in text.splitlines() if line.startswith("  trace"))
            cases.write_text(f"case one\nreason known\n{trace}\n")
            other = pathlib.Path(folder) / "other.txt"
            other.write_text("".join("  trace cache k=f32 dk=8 data=tokens:1; new A; append A 1; trim A 1\n" if line.startswith("  trace")
                                     else line for line in text.splitlines(True)))
            for known, expected, said in ((path, 0, "FAIL, as expected"), (other, 1, "this cause is not")):
                done = subprocess.run([KVCHECK, "gate", "--impl", BROKEN, "--suite", cases, "--known", known, "--fuzz-cases", "0"],
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True)
                self.assertEqual(done.returncode, expected, done.stdout + done.stderr)
                self.assertIn(said, done.stdout)
            before = text.count("  trace")
            again = self.make(path, "--add", "--seeds", "1", "--first-seed", "9", "--minutes", "0.02")
            self.assertIn("seed 9 ", again)
            self.assertGreaterEqual(again.count("  trace"), before)


if __name__ == "__main__":
    unittest.main()
