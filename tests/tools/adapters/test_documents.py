"""The tutorial shows the file that is run, the index names every adapter, and folders are what kvcheck expects."""
import os
import pathlib
import re
import unittest

ADAPTERS = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters"


def folders():
    return sorted(path.parent for path in ADAPTERS.glob("*/adapter.py"))


class Documents(unittest.TestCase):
    def test_the_tutorial_quotes_its_adapter(self):
        (quoted,) = re.findall(r"^```python\n(.*?)^```$", (ADAPTERS / "tutorial.md").read_text(), flags=re.M | re.S)
        self.assertEqual(quoted, (ADAPTERS / "tutorial/adapter.py").read_text())

    def test_the_tutorial_is_as_short_as_it_says(self):
        lines = (ADAPTERS / "tutorial/adapter.py").read_text().splitlines()
        self.assertLessEqual(sum(1 for line in lines if line.strip()), 40)

    def test_the_index_names_every_adapter(self):
        index = (ADAPTERS / "README.md").read_text()
        self.assertGreaterEqual(len(folders()), 3)
        for folder in folders():
            self.assertIn(f"| `{folder.name}/` |", index)

    def test_every_folder_can_be_started_and_says_what_it_needs(self):
        for folder in folders():
            self.assertTrue(os.access(folder / "run", os.X_OK), folder)
            self.assertTrue((folder / "requirements.txt").is_file(), folder)
            for file in folder.glob("requirements*.txt"):
                for line in file.read_text().split():
                    self.assertRegex(line, r"^[\w\[\]-]+==\d[\w.]*$", file)


if __name__ == "__main__":
    unittest.main()
