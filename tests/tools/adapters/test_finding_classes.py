"""Every finding stands under its class and says which call in use meets it, those that are claimed to give wrong answers quote a
program that generates, what is in no count stands on a page of its own, and the numbers that pages show are those of the sections."""
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
ADAPTERS = ROOT / "tools/adapters"
sys.path.insert(0, str(ADAPTERS))

import count_findings
from finding_pages import CLASSES, EDGE, GENERATES, IN_USE, names, sections


class Classes(unittest.TestCase):
    def test_every_section_stands_under_a_class_of_its_page(self):
        for name in names():
            found = sections(name)
            self.assertTrue(found, name)
            for section in found:
                self.assertIn(section.kind, CLASSES[section.page], f"{name}: {section.title}")
            for page, kinds in CLASSES.items():
                order = [kinds.index(section.kind) for section in found if section.page == page]
                self.assertEqual(order, sorted(order), f"{name}/{page}")

    def test_every_finding_says_which_call_in_use_meets_it(self):
        for name in names():
            for section in sections(name):
                said = section.text.count("\n**In use:** ") == 1
                self.assertEqual(said, section.kind in (GENERATES, IN_USE), f"{name}: {section.title}")

    def test_what_nobody_calls_or_the_library_means_is_in_no_count(self):
        for name in names():
            for section in sections(name):
                if section.page == "FINDINGS.md":
                    for word in ("A user sees:** Nothing", "Nothing in the library", "no released model", "by design"):
                        self.assertNotIn(word, section.text, f"{name}: {section.title}")

    def test_one_rule_holds_for_all_libraries(self):
        windows = {(name, section.kind) for name in names() for section in sections(name)
                   if section.title.startswith("A window of no tokens")}
        self.assertEqual(windows, {(name, CLASSES["EDGES.md"][1]) for name in ("mlx_lm", "mlx_vlm")})

    def test_wrong_answers_are_generated(self):
        shown = 0
        for name in names():
            for section in sections(name):
                if section.kind != GENERATES:
                    continue
                programs = [program for program in section.programs if program.startswith("generate_")]
                self.assertTrue(programs, f"{name}: {section.title}")
                for program in programs:
                    folder = ADAPTERS / name / "findings"
                    text = (folder / f"{program}.py").read_text() + "".join(path.read_text() for path in folder.glob("_*.py"))
                    self.assertRegex(text, r"generate_step\(|stream_generate\(|BatchGenerator\(|\.generate\(|generate_batch\(|Scheduler\(", program)
                    self.assertNotRegex(text, r"(?m)^(import|from) kvcheck", program)
                    shown += 1
        self.assertGreaterEqual(shown, 5)

    def test_every_folder_with_findings_is_in_the_index(self):
        index = (ADAPTERS / "README.md").read_text()
        for name in names():
            self.assertRegex(index, rf"\[\d+ findings?\]\({name}/FINDINGS\.md\)", name)

    def test_numbers_on_pages_are_those_of_the_sections(self):
        done = subprocess.run([sys.executable, str(ADAPTERS / "count_findings.py")], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_a_number_that_is_stale_is_found_and_mended(self):
        counted = {**count_findings.counts("mlx_lm")}
        self.assertGreater(counted[EDGE], 0)
        text = count_findings.table("mlx_lm", counted)
        counted[GENERATES] += 1
        self.assertNotEqual(text, count_findings.table("mlx_lm", counted))
        self.assertNotEqual(count_findings.claim("mlx_lm", count_findings.counts("mlx_lm")), count_findings.claim("mlx_lm", counted))


if __name__ == "__main__":
    unittest.main()
