"""Prefix adapters of the package: the conversation, what is declined for an author, the example and its broken rules.

    test_prefix.py KVCHECK
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
ADAPTERS = ROOT / "tools/adapters"
os.environ["PYTHONPATH"] = str(ADAPTERS / "kvcheck_adapter")
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
KVCHECK = pathlib.Path(sys.argv.pop(1)).resolve()

from driver import Child, from_wire, to_wire

SETUP = {"block_tokens": 2, "capacity_tokens": 8, "max_entries": 0, "layers": 2, "kv_heads": 1, "k_dim": 4, "v_dim": 4,
         "x": "f32", "k": "f32", "v": "f32", "quantize_from": 0, "window": 0}
NOBODY = {"model": None, "salt": None, "adapter": None, "version": 0, "image": None}


def rows(tokens, value):
    """K or V (2 layers, 1 head, tokens, 4 channels), the channels of one row alike."""
    made = np.empty((2, 1, tokens, 4), np.float32)
    made[:] = (value + np.arange(tokens))[None, None, :, None]
    return to_wire(made)


def fuzz(file, *options, cases, out):
    command = f"{sys.executable} -m kvcheck_adapter {file} {' '.join(options)}"
    return subprocess.run([str(KVCHECK), "fuzz", "--kind", "prefix", "--impl", command, "--cases", str(cases), "--limit", "10m",
                           "--shrink-time", "2s", "--out", str(out)], capture_output=True, text=True, timeout=900)


class Conversation(unittest.TestCase):
    """Through the example, which has blocks of two tokens here."""

    def setUp(self):
        self.child = Child([sys.executable, "-m", "kvcheck_adapter", str(ADAPTERS / "numpy_prefix/adapter.py")])
        self.greeting = self.child.hello()
        self.started = self.start()

    def tearDown(self):
        self.child.__exit__()

    def start(self, **changed):
        return self.child.ask(do="start", kind="prefix", setup={**SETUP, **changed}, folder=None, again=False, seed=1)

    def open(self, request, tokens, all=True, **who):
        return self.child.ask(do="open", request=request, tokens=tokens, who={**NOBODY, **who}, all=all)

    def stored(self, tokens, value, **who):
        hit = self.open(0, tokens, **who)["hit"]
        left = len(tokens) - hit
        written = self.child.ask(do="write", request=0, tokens=tokens[hit:], k=rows(left, value), v=rows(left, -value))
        self.assertEqual(written, {})
        self.assertEqual(self.child.ask(do="close", request=0, keep=True), {})

    def test_it_says_what_it_is(self):
        self.assertEqual(self.greeting["kinds"], ["prefix"])
        self.assertEqual(self.greeting["prefix_profile"], "persists=close evict=lru")
        self.assertEqual(self.started, {"block_tokens": 2, "capacity_tokens": 8, "holds_requests": True})

    def test_a_hit_shows_the_rows_that_were_written(self):
        self.stored([1, 2, 3], 7.0)
        answer = self.open(1, [1, 2, 9])
        self.assertEqual((answer["hit"], answer["tier"]), (2, "memory"))
        self.assertEqual(from_wire(answer["k"])[1, 0, :, 3].tolist(), [7, 8])
        self.assertEqual(from_wire(answer["v"])[0, 0, :, 0].tolist(), [-7, -6])
        self.assertEqual(self.open(2, [1, 2], all=False)["hit"], 0)
        self.assertEqual(self.open(3, [1, 2], salt="a")["hit"], 0)

    def test_what_the_space_lacks_is_unsupported(self):
        self.assertIn("no entries", self.start(max_entries=2)["unsupported"])
        self.assertIn("no quantizes", self.start(k="q8_0", v="q8_0")["unsupported"])
        self.assertIn("no windows", self.start(window=2)["unsupported"])

    def test_what_it_relies_on_is_refused_before_it(self):
        self.open(0, [1, 2])
        wrong = self.child.ask(do="write", request=0, tokens=[1, 2], k=rows(2, 1.0), v=rows(1, 1.0))
        self.assertIn("another shape", wrong["refused"])
        self.assertIn("has 0 tokens", self.child.ask(do="trim_to", request=0, tokens=1)["refused"])
        self.assertEqual(self.child.ask(do="read", request=0)["k"][1], [2, 1, 0, 4])

    def test_a_write_without_room_says_so(self):
        self.open(0, [1] * 8)
        self.assertEqual(self.child.ask(do="write", request=0, tokens=[1] * 8, k=rows(8, 1.0), v=rows(8, 1.0)), {})
        self.open(1, [2])
        self.assertEqual(self.child.ask(do="write", request=1, tokens=[2], k=rows(1, 1.0), v=rows(1, 1.0)), {"full": True})

    def test_a_request_that_is_not_open_and_one_that_is_unknown_fail(self):
        self.assertIn("request 5 is not open", self.child.ask(do="read", request=5)["failed"])
        self.assertIn("no request of this protocol", self.child.ask(do="merge")["failed"])

    def test_what_is_saved_is_loaded(self):
        self.stored([1, 2], 3.0)
        self.assertEqual(self.child.ask(do="save", key="s0"), {})
        self.assertEqual(self.child.ask(do="clear"), {})
        self.assertEqual(self.open(1, [1, 2])["hit"], 0)
        self.assertEqual(self.child.ask(do="load", key="s0"), {})
        self.assertEqual(self.open(2, [1, 2])["hit"], 2)
        self.assertIn("nothing is saved", self.child.ask(do="load", key="s1")["refused"])


class Fields(unittest.TestCase):
    ADAPTER = """
from kvcheck_adapter import PrefixAdapter, Started
class Small(PrefixAdapter):
    name = "small"
    spaces = [{"kind": "prefix", "identity": ["salt"]}]
    def start(self, setup, folder, again): return Started(1, 8)
    def open(self, tokens, who, all):
        if who.salt == "raise": raise KeyError("gone")
        return misspelt if who.salt == "misspell" else (object(), 0)
    def read(self, request): return SETUP.no_rows()
"""

    def test_fields_that_an_author_does_not_name_never_reach_him(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "small.py")
            file.write_text(self.ADAPTER)
            with Child([sys.executable, "-m", "kvcheck_adapter", str(file)]) as child:
                child.hello()
                child.ask(do="start", kind="prefix", setup=SETUP, folder=None, again=False, seed=1)

                def answer(**who):
                    return child.ask(do="open", request=0, tokens=[1], who={**NOBODY, **who}, all=True)
                self.assertEqual(answer(image=""), {"unsupported": "identities have no image here"})
                self.assertEqual(answer(salt="raise"), {"refused": "KeyError: 'gone'"})
                self.assertIn("misspelt", answer(salt="misspell")["failed"])
                self.assertEqual(child.ask(do="clear"), {"unsupported": "no clear"})

    COLLECTING = """
from kvcheck_adapter import CollectedPrompt, PrefixAdapter, Started
class Collecting(PrefixAdapter):
    name = "collecting"
    def start(self, setup, folder, again):
        self.setup = setup
        return Started(1, 8)
    def open(self, tokens, who, all):
        if who.salt: return None, 0  # a request that can do nothing
        return CollectedPrompt(who, [], *self.setup.no_rows()), 0
"""

    def test_requests_write_and_show_rows_themselves_where_the_adapter_does_not(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "collecting.py")
            file.write_text(self.COLLECTING)
            with Child([sys.executable, "-m", "kvcheck_adapter", str(file)]) as child:
                child.hello()
                child.ask(do="start", kind="prefix", setup=SETUP, folder=None, again=False, seed=1)
                child.ask(do="open", request=0, tokens=[1, 2, 3], who=NOBODY, all=True)
                for tokens, value in (([1, 2], 5.0), ([3], 9.0)):
                    count = len(tokens)
                    self.assertEqual(child.ask(do="write", request=0, tokens=tokens, k=rows(count, value), v=rows(count, -value)), {})
                shown = child.ask(do="read", request=0)
                self.assertEqual(from_wire(shown["k"])[1, 0, :, 0].tolist(), [5, 6, 9])
                self.assertEqual(from_wire(shown["v"])[0, 0, :, 3].tolist(), [-5, -4, -9])
                self.assertEqual(child.ask(do="open", request=1, tokens=[1], who={**NOBODY, "salt": "a"}, all=True),
                                 {"unsupported": "rows cannot be shown"})


class Drawn(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def test_the_example_is_clean(self):
        done = fuzz(ADAPTERS / "numpy_prefix/adapter.py", cases=60, out=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_each_broken_rule_is_caught(self):
        for rule, signature in (("salt", "open other_tenant"), ("chain", r"open other_(position|prefix)"),
                                ("pin", r"\w+ \w+ held"), ("copy", "write written_later held"), ("epoch", "open older_epoch"),
                                ("table", "write stale"), ("chunk", "open other_position")):
            done = fuzz(ADAPTERS / "numpy_prefix/adapter.py", "--broken", rule, cases=3000, out=self.folder)
            self.assertEqual(done.returncode, 1, f"{rule}\n{done.stdout}")
            self.assertRegex(done.stdout, f'signature "{signature}', rule)

    def test_what_a_request_counts_again_while_it_waits_is_missing_later(self):
        history = ("prefix block=1 tokens=2 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; "
                   "open A 0x3; write A; write A 1; close A keep; open A 0x3")
        for options, status in (("", 0), (" --broken counted", 1)):
            command = f"{sys.executable} -m kvcheck_adapter {ADAPTERS / 'numpy_prefix/adapter.py'}{options}"
            done = subprocess.run([str(KVCHECK), "run", history, "--impl", command], capture_output=True, text=True)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertEqual("open hit_missing" in done.stdout, bool(status), done.stdout)


class Page(unittest.TestCase):
    """prefix_tutorial.md: what it shows is what is run, and ends as it says."""
    PAGE = (ADAPTERS / "prefix_tutorial.md").read_text()
    FILE = ADAPTERS / "prefix_tutorial/adapter.py"

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def test_it_quotes_its_adapter_of_40_lines(self):
        (quoted,) = re.findall(r"^```python\n(.*?)^```$", self.PAGE, flags=re.M | re.S)
        self.assertEqual(quoted, self.FILE.read_text())
        self.assertLessEqual(sum(1 for line in quoted.splitlines() if line.strip()), 40)

    def commands(self):
        return re.findall(r"^\$ (kvcheck .*)$", self.PAGE, flags=re.M)

    def run_command(self, line):
        line = line.replace("kvcheck ", f"{KVCHECK} ", 1).replace("'python ", f"'{sys.executable} ")
        options = f" --limit 10m --out {self.folder}/found" if " fuzz " in line else ""
        return subprocess.run(["sh", "-c", line + options], capture_output=True, text=True, timeout=600, cwd=self.folder,
                              env={**os.environ, "KVCHECK_ADAPTERS": str(ADAPTERS),
                                   "KVCHECK_PYTHON": sys.executable})

    def test_its_commands_end_as_it_says(self):
        (said,) = re.findall(r"\(`(self\.kept\[who\.model, tuple\(tokens\)\])`\)", self.PAGE)
        text = self.FILE.read_text()
        broken = re.sub(r"self\.kept\[who, ", "self.kept[who.model, ", text.replace("(who, tuple", "(who.model, tuple"))
        self.assertIn(said, broken)
        pathlib.Path(self.folder, "broken.py").write_text(broken)
        commands = self.commands()
        self.assertEqual(len(commands), 3)
        for line in commands:
            done = self.run_command(line)
            self.assertEqual(done.returncode, 1 if "broken" in line else 0, done.stdout + done.stderr)
            if "broken" in line:
                self.assertIn("other_tenant", done.stdout)
        self.assertIn("2 opens, 1 hits of 3 tokens", done.stdout)


if __name__ == "__main__":
    unittest.main()
