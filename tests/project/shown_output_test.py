#!/usr/bin/env python3
"""shown_output.py sees what a page shows otherwise than a tool prints: another line, another status, a block that nobody runs.

    shown_output_test.py
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "shown_output.py"
TOOL = "#!/bin/sh\nprintf 'FAIL  %s\\n  case  a\\n  where b\\n  reproduce c\\n1 case: 1 failed\\n' \"$*\"\nexit 1\n"
SHOWN = "FAIL  run x\n  case  a\n  where b\n  reproduce c\n1 case: 1 failed"


class ShownOutput(unittest.TestCase):
    def check(self, text, *options, pages=("page.md",)):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            tool = folder / "tool"
            tool.write_text(TOOL)
            tool.chmod(0o755)
            (folder / "page.md").write_text(text)
            (folder / "build").mkdir()
            (folder / "build/other.md").write_text("```console\n$ kvcheck run y\n```\n")
            result = subprocess.run([sys.executable, "-B", str(SCRIPT), str(tool), name, *(str(folder / page) for page in pages),
                                     *options], capture_output=True, text=True)
            return result.returncode, result.stderr, (folder / "page.md").read_text()

    def test_what_the_tool_prints_passes(self):
        for text in (f"<!-- verdict: run x -->\n```\n{SHOWN}\n```\n",
                     f"<!-- exits with 1 -->\n```console\n$ kvcheck run \\\n    x\n{SHOWN}\n```\n"):
            self.assertEqual(self.check(text)[:2], (0, ""))
            self.assertEqual(self.check(text, pages=())[:2], (0, ""))

    def test_lines_may_be_left_out(self):
        block = "<!-- verdict: run x -->\n```\n%s\n```\n"
        for shown in ("FAIL  run x\n  ...\n1 case: 1 failed", "FAIL  run x\n  case  a\n  ...", "  ...\n  where b\n...\n1 case: 1 failed"):
            self.assertEqual(self.check(block % shown)[0], 0, shown)
        for shown in ("FAIL  run x\n  ...\n  case  a\n  reproduce c\n1 case: 1 failed", "FAIL  run x\n  ...\n2 cases", "  ...\n  where"):
            status, said, text = self.check(block % shown, "--update")
            self.assertEqual((status, text), (1, block % shown), shown)
            self.assertIn("correct it", said)

    def test_another_line_is_seen_and_mended(self):
        wrong = f"<!-- verdict: run x -->\n```\n{SHOWN.replace('where b', 'where B')}\n```\n"
        status, said, text = self.check(wrong)
        self.assertEqual((status, text), (1, wrong))
        self.assertIn("run this script with --update", said)
        self.assertEqual(self.check(wrong, "--update")[::2], (0, wrong.replace("where B", "where b")))

    def test_another_status_is_seen(self):
        self.assertIn("the page says 0", self.check(f"<!-- exits with 0 -->\n```console\n$ kvcheck run x\n{SHOWN}\n```\n")[1])

    def test_a_block_that_nobody_runs_is_seen(self):
        for text in ("```console\n$ kvcheck run x\n```\n", f"<!-- verdict: run x -->\n\n```\n{SHOWN}\n```\n", "nothing"):
            self.assertEqual(self.check(text)[0], 1, text)


if __name__ == "__main__":
    unittest.main()
