#!/usr/bin/env python3
"""Checks that what the pages and comments name is there: files, folders, headings, sections and tests.

usage: check_links.py ROOT

In every *.md below ROOT, apart from folders that hold nothing of the project's own:
  [text](target#heading)     the file, and the heading as a page shows it
  PAGE.md, section N.N       a heading that begins with N.N
  `path/file.h`, `file.h`    a path from ROOT or from the page's folder; a bare name anywhere below ROOT. A program that is
                             built counts as named by the CMakeLists.txt of its folder. In pages about other libraries
                             (FOREIGN) bare names are those libraries' files
  `Suite.Sentence`           a test
  `Name`, `a_name`           a word of a source, or the name of a file
  --option                   in code: one that a source of the project has, or one of OTHER_OPTIONS
  kvcheck N.N.N              the version of CMakeLists.txt; also in comments of sources
In comments of sources: paths that begin with a room, and names of headers, sources (of C++ alone) and pages, with or without
a part of their path. NAME, FILE, *, {a,b} and the like are patterns: one fitting file is enough.
"""

import bisect
import fnmatch
import itertools
import os
import pathlib
import re
import sys

SKIPPED = {"build", "venv", "node_modules", "__pycache__", "fuzz-failures"}
EXTENSIONS = "md|h|cc|inc|py|sh|cmake|cases|csv|txt|h5|safetensors|json|png|in"
SOURCES = (".h", ".cc", ".inc", ".py", ".sh", ".cmake", ".txt")
# Pages that quote sources of other libraries.
FOREIGN = ("FINDINGS.md", "EDGES.md", "plans_of_*.md", "caches_of_*.md", "catalogue.md", "formats.md", "turboquant.md", "ci.md", "audits.md",
           "CHANGELOG.md")
IDENTIFIER = re.compile(r"(?:[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[a-z]\w*_\w+)(?=(?:\(\))?$)")
# Of programs that are not the project's.
# Of gdb and GoogleTest; llama-perplexity; vLLM.
OTHER_OPTIONS = {"--args", "--gtest_filter", "--chunks", "--kl-divergence", "--kv-cache-dtype"}
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
VERSION = re.compile(r'\bkvcheck(?:": "| )(\d+\.\d+\.\d+)\b')
LINK = re.compile(r"(?<!!)\[[^][]*(?:\[[^][]*\][^][]*)*\]\(([^()\s]+)\)|!\[[^][]*\]\(([^()\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
SECTION = re.compile(r"([\w./-]+\.md)\)?`?, (?:section )(\d+(?:\.\d+)*)")
TEST_NAME = re.compile(r"[A-Z][A-Za-z0-9]+\.[A-Z][A-Za-z0-9]{5,}")
TEST = re.compile(r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)\(\s*(\w+),\s*(\w+)"
                  r"|add_test\(NAME (\w+)\.(\w+)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
PLACEHOLDER = re.compile(r"\b(?:NAME|FILE|ID|IMPL|KIND|HASH|COMMAND|CMD|N|X|Y|F|ROOM|PAGE|FORMAT|LAYER|YOUR_\w+)\b|<[^>]+>|%[sd]")


class House:
    """What is there."""

    def __init__(self, root):
        self.root = root
        self.files, self.folders = set(), set()
        for path, folders, files in os.walk(root):
            folders[:] = sorted(name for name in folders if name not in SKIPPED and (not name.startswith(".") or name == ".ci"))
            here = pathlib.Path(path).relative_to(root).as_posix()
            self.folders.add(here)
            self.files |= {(f"{here}/{name}" if here != "." else name) for name in files}
        self.names = {name.rsplit("/", 1)[-1] for name in self.files}
        self.rooms = {name for name in self.folders if "/" not in name and name not in (".", ".ci")}
        self.texts = {}
        self.headings = {}
        self.tests = self.options = self.words = self.endings = None

    def text(self, name):
        if name not in self.texts:
            self.texts[name] = (self.root / name).read_text(errors="replace")
        return self.texts[name]

    def has(self, path):
        """A file, a folder, a pattern that one of them fits, or a program that its folder builds."""
        path = os.path.normpath(path.rstrip("/"))
        if path in self.files or path in self.folders:
            return True
        patterns = [PLACEHOLDER.sub("*", choice) for choice in choices(path)]
        if any("*" in pattern for pattern in patterns) or patterns != [path]:
            return all(fnmatch.filter(self.files, pattern) or fnmatch.filter(self.folders, pattern) for pattern in patterns)
        folder, _, name = path.rpartition("/")
        lists = f"{folder}/CMakeLists.txt"
        return "." not in name and lists in self.files and re.search(rf"\b{re.escape(name)}\b", self.text(lists)) is not None

    def has_ending(self, path):
        """A file whose path ends so."""
        pattern = PLACEHOLDER.sub("*", path)
        if pattern != path:
            return bool(fnmatch.filter(self.files, pattern) or fnmatch.filter(self.files, f"*/{pattern}"))
        if self.endings is None:
            self.endings = {"/".join(parts[i:]) for parts in (file.split("/") for file in self.files) for i in range(len(parts))}
        return path in self.endings

    def anchors(self, page):
        """Headings as links name them, and the numbers of sections."""
        if page not in self.headings:
            seen, numbers = {}, set()
            for title in re.findall(r"^#+ +(.*?) *#*$", FENCE.sub("", self.text(page)), flags=re.M):
                shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
                slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
                seen[slug] = seen.get(slug, -1) + 1
                if seen[slug]:
                    seen[f"{slug}-{seen[slug]}"] = 0
                number = re.match(r"(\d+(?:\.\d+)*)\.?(?= )", title)
                if number:
                    numbers.add(number[1])
            self.headings[page] = (set(seen), numbers)
        return self.headings[page]

    def has_test(self, name):
        if self.tests is None:
            texts = [self.text(file) for file in self.files if file.startswith("tests/") and file.endswith((".cc", ".h", "CMakeLists.txt"))]
            self.tests = {".".join(part for part in match if part) for text in texts for match in TEST.findall(text)}
        return name in self.tests

    def has_word(self, name):
        if self.words is None:
            self.words = {file.rsplit("/", 1)[-1].split(".")[0] for file in self.files}
            for file in self.sources():
                self.words.update(re.findall(r"\w+", self.text(file)))
        return name in self.words

    def sources(self):
        return (file for file in self.files if file.endswith(SOURCES) or "." not in file.rsplit("/", 1)[-1])

    def has_option(self, name):
        if self.options is None:
            self.options = {option for file in self.sources() for option in OPTION.findall(self.text(file))}
        return name in self.options or name in OTHER_OPTIONS


def choices(text):
    """a_{b,c} and a.{h,cc} as a shell has them."""
    match = re.search(r"\{([^{}]*,[^{}]*)\}", text)
    if not match:
        return [text]
    return list(itertools.chain.from_iterable(
        choices(text[:match.start()] + choice + text[match.end():]) for choice in match[1].split(",")))


def paths_in(code, house, folder, foreign):
    """The paths that a piece of code in a page names: (as written, where they may lie)."""
    for word in code.split():
        word = word.strip("'\",;:()[]").split("#")[0].removeprefix("./")
        word = re.sub(r"(?<=\w):\d+(?:-\d+)?$", "", word)  # file.cc:12
        if re.search(r"[<>=$|\\@]|://|\.\.\.|^-|^/|^~", word) or not word or SKIPPED & set(word.split("/")):
            continue
        first, slash, _ = word.partition("/")
        if slash and first in house.rooms:
            yield word, [word]
        elif word.startswith("../"):
            yield word, [f"{folder}/{word}"]
        elif re.fullmatch(rf"[\w*{{}},./-]*\w[\w*{{}},-]*\.(?:{EXTENSIONS}|{{[\w,]+}})", word) and not foreign:
            if slash and f"{folder}/{first}" in house.folders:
                yield word, [f"{folder}/{word}", word]
            elif not slash and re.search(r"\.(?:h|cc|inc|md|sh|cmake|cases|py|\{[\w,]+\})$", word):
                yield word, [f"{folder}/{word}", f"**/{word}"]


def is_there(house, places):
    for place in places:
        if place.startswith("**/"):
            name = place[3:]
            if all(fnmatch.filter(house.names, PLACEHOLDER.sub("*", choice)) for choice in choices(name)):
                return True
        elif house.has(place):
            return True
    return False


def check_version(house, text):
    """Of the tool, where an example shows it."""
    said = re.search(r"project\(kvcheck VERSION ([\d.]+)", house.text("CMakeLists.txt")) if "CMakeLists.txt" in house.files else None
    for match in VERSION.finditer(text):
        if said and match[1] != said[1]:
            yield match.start(), f"no version {match[1]}: it is {said[1]}"


def check_page(house, page):
    """(offset, what is wrong)."""
    text = house.text(page)
    folder = page.rpartition("/")[0]
    yield from check_version(house, text)
    foreign = any(fnmatch.fnmatch(page.rsplit("/", 1)[-1], pattern) for pattern in FOREIGN)
    without_fences = FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    without_code = CODE.sub(lambda match: " " * len(match[0]) if "](" not in match[0] else match[0], without_fences)
    for match in LINK.finditer(without_code):
        target, _, heading = (match[1] or match[2]).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = os.path.normpath(f"{folder}/{target}" if folder else target) if target else page
        if path not in house.files and path not in house.folders:
            yield match.start(), f"no '{target}'"
        elif heading and (path not in house.files or heading not in house.anchors(path)[0]):
            yield match.start(), f"no heading '#{heading}' in {path}"
    for match in SECTION.finditer(without_fences):
        name = match[1].rsplit("/", 1)[-1]
        fits = [file for file in house.files if file.endswith(match[1].lstrip("./")) and file.rsplit("/", 1)[-1] == name]
        if fits and not any(match[2] in house.anchors(file)[1] for file in fits):
            yield match.start(), f"no section {match[2]} in {match[1]}"
    for match in CODE.finditer(without_fences):
        if TEST_NAME.fullmatch(match[1]) and not foreign and not house.has_test(match[1]):
            yield match.start(), f"no test '{match[1]}'"
        name = IDENTIFIER.match(match[1])
        if name and not foreign and not house.has_word(name[0]):
            yield match.start(), f"no '{name[0]}' in any source"
        for word, places in paths_in(match[1], house, folder, foreign):
            if not is_there(house, places):
                yield match.start(), f"no '{word}'"
    if not foreign:
        for code in itertools.chain(CODE.finditer(without_fences), FENCE.finditer(text)):
            for match in OPTION.finditer(code[0]):
                if not house.has_option(match[0]):
                    yield code.start() + match.start(), f"no option '{match[0]}'"
    for fence in FENCE.finditer(text):
        for match in re.finditer(rf"(?<![\w./*-])(?:{'|'.join(sorted(house.rooms))})/[\w./{{}},*-]*\w", fence[0]):
            if not SKIPPED & set(match[0].split("/")) and not is_there(house, [match[0], f"{folder}/{match[0]}"]):
                yield fence.start() + match.start(), f"no '{match[0]}'"


def check_comments(house, file):
    """Paths from the root in comments: (offset, what is wrong)."""
    text = house.text(file)
    comment = r"//.*" if file.endswith((".h", ".cc", ".inc")) else r'^[ \t]*#(?!include).*|"""(?:.|\n)*?"""'
    rooms = "|".join(sorted(house.rooms))
    for block in re.finditer(comment, text, flags=re.M):
        yield from ((block.start() + offset, what) for offset, what in check_version(house, block[0]))
        for match in re.finditer(rf"(?<![\w./*-])(?:{rooms})/[\w./{{}},*-]*\.(?:md|h|cc|py|sh|cases)\b", block[0]):
            if not house.has(match[0]):
                yield block.start() + match.start(), f"no '{match[0]}'"
        # Sources of other libraries are named in Python, and Python's of them everywhere.
        endings = "h|cc|inc|md|cases|cmake|sh" if file.endswith((".h", ".cc", ".inc")) else "md|cases"
        for match in re.finditer(rf"(?<![\w./*<\\\"{{}},-])\w[\w-]*(?:/[\w-]+)*\.(?:{endings})\b(?!\.\w)", block[0]):
            if match[0].partition("/")[0] not in house.rooms and not house.has_ending(match[0]):
                yield block.start() + match.start(), f"no '{match[0]}'"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    house = House(pathlib.Path(sys.argv[1]))
    pages = sorted(file for file in house.files if file.endswith(".md"))
    if not pages:
        sys.exit(f"no page below {house.root}")
    status = 0
    sources = sorted(file for file in house.files if file.endswith(SOURCES))
    for check, files in ((check_page, pages), (check_comments, sources)):
        for file in files:
            found = list(check(house, file))
            starts = [match.end() for match in re.finditer("\n", house.text(file))] if found else []
            for offset, what in sorted(found):
                print(f"{file}:{1 + bisect.bisect_right(starts, offset)}: {what}")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
