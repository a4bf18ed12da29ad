"""Every finding stands under its class, those that are claimed to give wrong answers quote a program that generates, and
the numbers of the tables, of the index and of README.md are those of the sections."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
ADAPTERS = ROOT / "tools/adapters"
CLASSES = ("Wrong answers, end to end", "Raises or loses data in use", "Edge of the interface",
           "Differences that are not claimed as faults")
NAMES = ("llama_cpp", "lmcache", "mlx_lm", "mlx_prefix", "mlx_vlm", "sglang", "torch_sdpa", "transformers", "vllm", "vllm_mlx")


def by_class(name):
    """{class: [section]}, in the order of the file; sections before any class under ""."""
    found = {}
    for part in re.split(r"^## ", (ADAPTERS / name / "FINDINGS.md").read_text(), flags=re.M):
        title = part.splitlines()[0] if found else ""
        found[title] = re.split(r"^### ", part, flags=re.M)[1:]
    return found


class Classes(unittest.TestCase):
    def test_every_section_stands_under_a_class(self):
        for name in NAMES:
            found = by_class(name)
            self.assertEqual(found.pop(""), [], name)
            self.assertEqual(list(found), [title for title in CLASSES if title in found], name)
            self.assertTrue(all(found.values()), name)

    def test_tables_count_what_follows(self):
        for name in NAMES:
            table = (ADAPTERS / name / "FINDINGS.md").read_text().split("\n## ")[0]
            counted = dict(re.findall(r"^\| (\w.+) \| (\d+) \|$", table, flags=re.M))
            self.assertEqual(counted, {title[0].lower() + title[1:]: str(len(by_class(name).get(title, ())))
                                       for title in CLASSES}, name)

    def test_wrong_answers_are_generated(self):
        shown = 0
        for name in NAMES:
            for section in by_class(name).get(CLASSES[0], ()):
                programs = re.findall(r"^`findings/(generate_\w+\.py)` prints$", section, flags=re.M)
                self.assertTrue(programs, section.splitlines()[0])
                for program in programs:
                    text = (ADAPTERS / name / "findings" / program).read_text()
                    self.assertRegex(text, r"generate_step\(|BatchGenerator\(|\.generate\(|Scheduler\(", program)
                    self.assertNotRegex(text, r"^(import|from) kvcheck", program)
                    shown += 1
        self.assertGreaterEqual(shown, 5)

    def test_the_index_counts_by_class_and_the_readme_all(self):
        readme, index = (ROOT / "README.md").read_text(), (ADAPTERS / "README.md").read_text()
        said = re.findall(r"\[(\d+) findings\]\((\w+)/FINDINGS\.md\): (\d+) wrong answers? end to end, "
                          r"(\d+) raises? or loss(?:es)? in use, (\d+) at the edge", index)
        self.assertEqual({name for _, name, *_ in said}, set(NAMES))
        for total, name, *counts in said:
            found = by_class(name)
            self.assertEqual(counts, [str(len(found.get(title, ()))) for title in CLASSES[:3]], name)
            self.assertEqual(int(total), sum(map(int, counts)), name)
        differences = sum(len(by_class(name).get(CLASSES[3], ())) for name in NAMES)
        self.assertIn(f"{sum(int(total) for total, *_ in said)} findings and {differences} differences", readme)
        self.assertIn(f"; {differences} more differences are listed apart", index)


if __name__ == "__main__":
    unittest.main()
