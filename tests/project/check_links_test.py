#!/usr/bin/env python3
"""check_links.py finds each kind of name that leads nowhere, and takes what leads somewhere.

    check_links_test.py
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "check_links.py"
HOUSE = {
    "CMakeLists.txt": "project(kvcheck VERSION 1.2.3)\n",
    "README.md": "# House\n## 1. What `it` is\n### 1.2 Parts\ntext\n```\n# no heading\n```\n",
    "tools/a/README.md": "# A\n",
    "tools/a/unit.h": "// Reads tools/a/README.md.\nint UnitOfWork(int some_name);\n",
    "tools/a/CMakeLists.txt": "add_executable(program main.cc)\n",
    "tools/a/run.py": '"""Takes --limit."""\n',
    "tests/a_test.cc": "TEST(Unit, DoesWhatItSays) {}\n",
    "build/b.md": "[x](nothing.md)\n",
}


class Links(unittest.TestCase):
    def check(self, text, page="tools/a/PAGE.md"):
        with tempfile.TemporaryDirectory() as name:
            for file, content in {**HOUSE, page: text}.items():
                path = pathlib.Path(name) / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
            result = subprocess.run([sys.executable, "-B", str(SCRIPT), name], capture_output=True, text=True)
            self.assertEqual(result.stderr, "")
            return result.returncode, result.stdout

    def test_what_is_there_is_taken(self):
        for text in ("[a](../../README.md)", "[a](README.md#a)", "[a](../../README.md#1-what-it-is)", "[a](https://x.org/y.md)",
                     "[a](../a)", "`unit.h`", "`unit.{h,h}`", "`tools/a/unit.h`", "`tools/*/unit.h`", "`tools/NAME/run.py`",
                     "`tools/a/program --limit 3`", "`Unit.DoesWhatItSays`", "`UnitOfWork()`", "`some_name`", "`run.py --limit`",
                     "```\ntools/a/run.py\n```", "[README.md](../../README.md), section 1.2", "kvcheck 1.2.3", "`build/x.h`", "`tools/a/venv/bin/python`", "`a/b`", "`x=y.h`"):
            self.assertEqual(self.check(text), (0, ""), text)

    def test_what_is_not_there_is_found(self):
        for text in ("[a](gone.md)", "[a](../../README.md#2-gone)", "[a](#gone)", "![a](gone.png)", "`gone.h`", "`unit.{h,cc}`",
                     "`tools/a/gone.h`", "`tools/*/gone.h`", "`tools/NAME/gone.py`", "`tools/a/gone`", "`Unit.DoesWhatNobodySays`",
                     "`UnitOfPlay()`", "`no_name`", "`run.py --gone`", "```\ntools/gone.py\n```", "[README.md](../../README.md), section 1.3",
                     "`../gone.h`", "kvcheck 1.2.4", '`"kvcheck": "1.2.2"`'):
            status, said = self.check("first line\n" + text)
            self.assertEqual(status, 1, text)
            self.assertRegex(said, r"^tools/a/PAGE\.md:[23]: no ", text)

    def test_bare_names_of_pages_about_other_libraries_are_theirs(self):
        self.assertEqual(self.check("`cache.py` and `gone.h`", "tools/a/FINDINGS.md")[0], 0)
        self.assertEqual(self.check("`tools/a/gone.h`", "tools/a/FINDINGS.md")[0], 1)

    def test_comments_of_sources_are_read(self):
        for file, text in (("tools/a/x.cc", "int a;  // see tools/gone.md\n"), ("tools/a/x.py", "# see tools/gone.md\n"),
                           ("tools/a/x.sh", "# tools/gone.sh\n"), ("tools/a/x.py", '"""Reads\ntools/gone.md."""\n')):
            self.assertEqual(self.check(text, file)[0], 1, text)
            self.assertEqual(self.check(text.replace("tools/gone.md", "tools/a/README.md").replace("tools/gone.sh", ""), file)[0], 0)
        self.assertEqual(self.check('const char* a = "tools/gone.md";\n', "tools/a/x.cc")[0], 0)

    def test_comments_name_files_that_are_there_by_any_part_of_their_path(self):
        for file, there, gone in (("tools/b/x.cc", "unit.h", "pattern.h"), ("tools/b/x.h", "a/unit.h", "b/unit.h"),
                                  ("tools/b/x.h", "a/README.md, and -inl.h", "choose_rows.h"), ("tools/b/x.py", "README.md", "GONE_PAGE.md"),
                                  ("tools/b/x.sh", "a/README.md", "a/GONE.md")):
            mark = "#" if file.endswith((".py", ".sh")) else "//"
            self.assertEqual(self.check(f"{mark} The rule ({there}).\n", file), (0, ""), file)
            status, said = self.check(f"\n{mark} The rule ({gone}).\n", file)
            self.assertEqual((status, said), (1, f"{file}:2: no '{gone}'\n"))
        # Of other libraries.
        self.assertEqual(self.check("# its fp8.h\n", "tools/b/x.py")[0], 0)
        self.assertEqual(self.check("// their models/cache.py\n", "tools/b/x.cc")[0], 0)


if __name__ == "__main__":
    unittest.main()
