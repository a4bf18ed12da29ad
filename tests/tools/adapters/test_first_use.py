"""From nothing to a judged cache: new-adapter, --impl FILE.py, and what is said where an adapter is wrong. Argument: the
path of kvcheck. The Python that runs this has numpy and msgpack, and is the one that KVCHECK_PYTHON names."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

# What an adapter of one plain cache begins with; methods that are wrong in one way follow.
HEAD = """
import numpy as np
from kvcheck_adapter import Adapter
class Cache:
    def __init__(self, rows): self.k = self.v = None; self.rows = rows
    def update(self, k, v):
        self.k, self.v = (k, v) if self.k is None else (np.concatenate([a, b], 2) for a, b in ((self.k, k), (self.v, v)))
        return self.k, self.v
class Own(Adapter):
    name, version = "own", "1"
    def new(self, layout, k, v, rows, padding): return Cache(rows)
    def append(self, cache, k, v): return *cache.update(k, v), "causal"
    def trim(self, cache, count): return 0
"""


class FirstUse(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def kvcheck(self, *words, **environment):
        done = subprocess.run([KVCHECK, *words], cwd=self.path, capture_output=True, text=True, timeout=600,
                              env={**os.environ, "KVCHECK_PYTHON": sys.executable, **environment})
        return done.returncode, done.stdout + done.stderr

    def adapter(self, text, name="own.py"):
        (self.path / name).write_text(HEAD + text)
        return name

    def test_what_new_adapter_writes_passes_as_it_stands(self):
        code, text = self.kvcheck("new-adapter", "my_cache")
        self.assertEqual(code, 0, text)
        self.assertIn("kvcheck fuzz --impl my_cache.py", text)
        self.assertIn("class MyCache(Adapter):", (self.path / "my_cache.py").read_text())
        for name in ("my_cache.py", f"{self.path}/my_cache.py", "./my_cache.py"):
            code, text = self.kvcheck("fuzz", "--impl", name, "--cases", "150", "--json", "f.json", "-j", "2")
            self.assertEqual(code, 0, text)
            (campaign,) = json.loads((self.path / "f.json").read_text())["summary"]["campaigns"]
            self.assertEqual((campaign["passed"], campaign["declined"]), (150, {}))
            self.assertEqual(campaign["implementation"], name)
        for pattern in ("affine:4*", "bf16"):
            code, text = self.kvcheck("fuzz", "--impl", name, "--cases", "40", "--format", pattern, "-j", "2")
            self.assertEqual(code, 0, text)

    def test_new_adapter_overwrites_nothing(self):
        (self.path / "my_adapter.py").write_text("mine")
        code, text = self.kvcheck("new-adapter")
        self.assertEqual(code, 2, text)
        self.assertIn("the file is there already", text)
        self.assertEqual((self.path / "my_adapter.py").read_text(), "mine")

    def test_options_follow_the_file(self):
        name = self.adapter("    relies_on = {'columns', 'counts'}\n    def __init__(self, word): self.version = word\n"
                            "    spaces = [{'kind': 'cache', 'layouts': ['linear'], 'formats': ['f32'], 'x': ['f32'],\n"
                            "               'rows': 'single', 'padding': False, 'operations': ['new', 'append']}]\n")
        code, text = self.kvcheck("fuzz", "--impl", f"{name} 'of mine'", "--cases", "20")
        self.assertEqual(code, 0, text)
        self.assertIn("own of mine", text)

    def test_a_file_that_may_be_run_speaks_for_itself(self):
        name = self.adapter("import sys; print('it was run', file=sys.stderr); sys.exit(3)\n")
        text = (self.path / name).read_text()
        (self.path / name).write_text(f"#!{sys.executable}\nimport sys; sys.exit('it was run')\n" + text)
        (self.path / name).chmod(0o755)
        code, text = self.kvcheck("fuzz", "--impl", name, "--cases", "5")
        self.assertEqual(code, 2, text)
        self.assertIn("it was run", text)

    def test_what_is_missing_is_named(self):
        for words, sentence in (
                (("--impl", "none.py"), "there is no file none.py; kvcheck new-adapter NAME writes one"),
                (("--impl", "no_such_library"), "a Python file with an adapter (kvcheck new-adapter writes one)")):
            code, text = self.kvcheck("fuzz", "--cases", "5", *words)
            self.assertEqual(code, 2, text)
            self.assertIn(sentence, text)
        bare = self.path / "python"  # without the packages of this one
        bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
        bare.chmod(0o755)
        code, text = self.kvcheck("fuzz", "--impl", self.adapter(""), "--cases", "5", KVCHECK_PYTHON=str(bare))
        self.assertEqual(code, 2, text)
        self.assertRegex(text, r"has no (msgpack|numpy), which an adapter needs: .* -m pip install numpy msgpack")

    def test_the_wheel_has_all_of_it(self):
        """In the places that the rules of the package name: its packages, the command, and share/ beside it."""
        root = pathlib.Path(__file__).resolve().parents[3]
        packages = re.search(r"wheel.packages = (\[.*\])", (root / "pyproject.toml").read_text())[1]
        for package in json.loads(packages):
            shutil.copytree(root / package, self.path / "site" / pathlib.Path(package).name)
        inside = self.path / "site/kvcheck"
        (inside / "bin").mkdir()
        shutil.copy(KVCHECK, inside / "bin/kvcheck")
        rules = (root / "tools/python/CMakeLists.txt").read_text()
        for kind, text in re.findall(r"install\((DIRECTORY|FILES) (.*?COMPONENT python.*?)\)", rules, flags=re.S):
            target = inside / re.search(r"DESTINATION (\S+)", text)[1]
            for source in re.findall(r'"\$\{CMAKE_SOURCE_DIR\}/([^"]+)"', text):
                if kind == "FILES":
                    shutil.copy(root / source, target)
                else:
                    to = target if source.endswith("/") else target / pathlib.Path(source).name
                    shutil.copytree(root / source, to, dirs_exist_ok=True)
        environment = {"PYTHONPATH": str(self.path / "site"), "PATH": os.environ["PATH"]}
        command = [sys.executable, "-c", "from kvcheck._command import main; main()"]
        for words, code, sentence in ((["new-adapter"], 0, "my_adapter.py is written"),
                                      (["fuzz", "--impl", "my_adapter.py", "--cases", "60"], 0, "60 passed"),
                                      (["gate", "--impl", "my_adapter.py", "--fuzz-cases", "20"], 0, "20 drawn): "),
                                      (["fuzz", "--impl", "mlx_lm"], 2, "those of libraries are in the sources: KVCHECK_ADAPTERS")):
            done = subprocess.run([*command, *words], cwd=self.path, env=environment, capture_output=True, text=True,
                                  timeout=600)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertIn(sentence, done.stdout + done.stderr)
        done = subprocess.run([sys.executable, "-c", "import kvcheck_adapter; print(kvcheck_adapter.__file__)"],
                              env=environment, capture_output=True, text=True)
        self.assertEqual(done.stdout.strip(), str(self.path / "site/kvcheck_adapter/__init__.py"))

    def run_case(self, name, case):
        return self.kvcheck("run", f"cache layout=linear hkv=1 hq=1 dk=32 data=tokens:1 {case}", "--impl", f"./{name}")

    def test_bare_arrays_of_a_coded_format_are_refused_by_name(self):
        name = self.adapter("    def append(self, cache, k, v):\n"
                            "        words = np.zeros((*k.shape[:3], 4), np.uint32)\n        return words, words, 'causal'\n")
        code, text = self.run_case(name, "k=affine:4:g32:f32; new A; append A 2")
        self.assertEqual(code, 1, text)
        self.assertIn("append returned 1 array for K; affine:4:g32:f32 has (codes, scales, biases): return a tuple", text)
        name = self.adapter("    def append(self, cache, k, v): return cache.update(k, v)\n", "two.py")
        code, text = self.run_case(name, "k=f32; new A; append A 2")
        self.assertEqual(code, 1, text)
        self.assertIn("append returned 2 values in place of three: (keys, values, mask)", text)

    def test_patterns_that_no_format_has_are_refused(self):
        for key, pattern, sentence in (("formats", "q4", "no format has this pattern"),
                                       ("formats", "affine:4:64", "no format has this pattern"),
                                       ("formats", "afine:*", "no format has this pattern"),
                                       ("layouts", "rings", "no layout has this pattern; there are linear, linear:w, ring")):
            name = self.adapter(f"    spaces = [{{'kind': 'cache', '{key}': ['{pattern}']}}]\n")
            code, text = self.kvcheck("fuzz", "--impl", name, "--cases", "5")
            self.assertEqual(code, 2, text)
            self.assertIn(f"has the pattern '{pattern}', and {sentence}", text)
        for pattern in ("q4_0", "affine:4:*", "affine:*:g128:f16", "*:r*", "*", "q*", "f16"):
            name = self.adapter(f"    spaces = [{{'kind': 'cache', 'formats': ['{pattern}']}}]\n")
            code, text = self.run_case(name, "k=f32; new A")
            self.assertNotEqual(code, 2, text)

    def test_an_accepted_call_names_the_word_that_takes_it_out(self):
        """Every word of relies_on that is about a call, by a cache that takes everything."""
        every = ("    def prepare(self, cache, lengths, columns): pass\n    def finalize(self, cache): pass\n"
                 "    def filter(self, cache, rows): cache.rows = len(rows)\n    def extend(self, cache, other): pass\n"
                 "    def merge(self, caches): return Cache(len(caches))\n    def extract(self, cache, row): return Cache(1)\n"
                 "    def attend(self, cache, step, q, scale, window, sinks): return q * 0\n")
        name = self.adapter(every)
        for word, case in (("counts", "k=f32; new A; append A 2; trim A -1"),
                           ("rows", "k=f32; new A rows=2; append A 2; filter A 7"),
                           ("padding", "k=f32; new A rows=2 pad=1"),
                           ("columns", "k=f32; new A; append A 2 wrong=heads"),
                           ("lengths", "k=f32; new A rows=2; prepare A 1"),
                           ("pending", "k=f32; new A; prepare A 2; trim A 1"),
                           ("kinds", "k=f32; new A; new B layout=ring:w=4; extend A B"),
                           ("single", "k=f32; new A rows=2; new B; merge A,B -> C"),
                           ("windows", "k=f32; new A; append A 2; attend A window=0")):
            with self.subTest(word=word):
                code, text = self.run_case(name, case)
                self.assertEqual(code, 1, text)
                self.assertIn("an illegal call was carried out", text)
                self.assertIn(f'by the word "{word}" in relies_on', text)
                # The word does what is said of it.
                told = self.adapter(every + f"    relies_on = {{'{word}'}}\n", "told.py")
                code, text = self.run_case(told, case)
                self.assertNotIn("an illegal call was carried out", text)

    def test_an_accepted_call_of_a_prefix_cache_names_its_word_too(self):
        tutorial = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters/prefix_tutorial/adapter.py"
        text = re.sub("    relies_on = .*", "    relies_on = set()\n    def trim_to(self, request, tokens): pass", tutorial.read_text())
        (self.path / "prompts.py").write_text(text)
        case = "prefix block=1 tokens=8 data=tokens:1; open A 0,1,2; write A; trim_to A 9"
        code, text = self.kvcheck("run", case, "--impl", "prompts.py")
        self.assertEqual(code, 1, text)
        self.assertIn("the call is illegal, and was carried out", text)
        self.assertIn('by the word "counts" in relies_on', text)

    def test_a_full_disk_proves_nothing_about_the_cache(self):
        name = self.adapter("    def save(self, cache, path):\n"
                            "        import errno\n        raise OSError(errno.ENOSPC, 'No space left on device')\n")
        code, text = self.run_case(name, "k=f32; new A; append A 2; save A s0")
        self.assertEqual(code, 3, text)
        self.assertTrue(text.startswith("MISTRUSTED"), text)
        self.assertIn("no room on the disk in 'save', says the adapter: OSError: [Errno 28] No space left", text)


if __name__ == "__main__":
    KVCHECK = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
