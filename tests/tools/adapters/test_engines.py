"""The trained model in another engine says what the reference says, through every cache; and where the engine's window is
half as long, that is found. Skipped without the engine's environment: test_engines.py KVCHECK ENGINE.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ADAPTERS = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters"
SKIPPED = 77
sys.path.insert(0, str(ADAPTERS))

import agree_engines


class Engine(unittest.TestCase):
    KVCHECK, NAME = "", ""

    def table(self, *arguments):
        """(exit code, {(run, beside): cells}) of agree_engines.py, over rows of 300 tokens and less: beyond the window."""
        done = subprocess.run([sys.executable, ADAPTERS / "agree_engines.py", self.KVCHECK, *arguments, "--positions", "540",
                               "--batch", "2"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line.startswith("| ")]
        self.assertGreater(len(cells), 1, done.stdout + done.stderr)
        return done.returncode, {(row[1], row[2]): row for row in cells[1:]}, done.stdout

    def test_every_row_says_what_is_expected(self):
        code, rows, text = self.table(self.NAME)
        self.assertEqual(code, 0, text)
        self.assertEqual(set(rows), {(row.run, row.gold) for row in agree_engines.ROWS[self.NAME]})

    def test_a_window_that_is_half_as_long_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "model.safetensors").symlink_to(agree_engines.MODEL / "model.safetensors")
            config = json.loads((agree_engines.MODEL / "config.json").read_text())
            config["sliding_window"] //= 2
            (folder / "config.json").write_text(json.dumps(config))
            code, rows, text = self.table(f"{self.NAME}:sliding", "--model", str(folder))
        self.assertEqual(code, 1, text)
        self.assertIn("FAIL", rows["sliding", "reference"][-1])


if __name__ == "__main__":
    Engine.KVCHECK, Engine.NAME = sys.argv[1:3]
    if not agree_engines.python_of(Engine.NAME):
        print(f"skipped: no environment of {Engine.NAME}: tools/adapters/make_venv.sh {Engine.NAME}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
