"""What the pages for Python show is what their code prints today.

    python test_documents.py --update      writes what it prints into the tutorial
"""
import contextlib
import io
import pathlib
import re
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).parents[3]
TUTORIAL = ROOT / "tools" / "python" / "tutorial.md"
# A block of code, and below it what it prints.
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n(?:```\n(?P<shown>.*?)```\n)?", re.S)
# A test, and the text of its failure.
FAILING = re.compile(r"<!-- a test that fails with my_kernel\.py -->\n```python\n(?P<code>.*?)```\n.*?\n```\n(?P<shown>.*?)```\n", re.S)
# The kernel of README.md: the mask admits one key too many.
KERNEL = """
import numpy as np

def attention(q, k, v):
    # In f64, rounded once: the same bits wherever it runs.
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores[..., ~np.tri(*scores.shape[-2:], SHIFT, dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights @ v / weights.sum(-1, keepdims=True)).astype(np.float32)
"""


@pytest.fixture(autouse=True)
def failures(tmp_path, monkeypatch):
    monkeypatch.setenv("KVCHECK_FAILURES", str(tmp_path / "failures"))


def agrees(shown, printed):
    """Line by line; a line of dots alone is one or more lines."""
    pattern = "".join(r"(?:[^\n]*\n)+?" if line.strip() == "..." else re.escape(line) + "\n" for line in shown.splitlines())
    return re.fullmatch(pattern, printed) is not None


def printed_by(text):
    """(block, what it prints) of every block of a page, which share their names."""
    names = {}
    for block in BLOCK.finditer(text):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(block["code"], str(TUTORIAL), "exec"), names)
        yield block, output.getvalue()


def test_the_tutorial_prints_what_it_shows():
    blocks = list(printed_by(TUTORIAL.read_text(encoding="utf-8")))
    assert len(blocks) > 8
    for block, printed in blocks:
        assert printed and agrees(block["shown"], printed), f"{block['code']}\nprints\n{printed}"


def readme_test(monkeypatch, shift):
    block = FAILING.search((ROOT / "README.md").read_text(encoding="utf-8"))
    kernel = types.ModuleType("my_kernel")
    exec(KERNEL.replace("SHIFT", str(shift)), vars(kernel))
    monkeypatch.setitem(sys.modules, "my_kernel", kernel)
    names = {}
    exec(block["code"], names)
    return names["test_attention_is_causal"], block["shown"]


def test_the_test_of_the_readme_fails_as_it_shows(monkeypatch):
    test, shown = readme_test(monkeypatch, 1)
    with pytest.raises(AssertionError) as raised:
        test()
    assert agrees(shown, str(raised.value)), raised.value


def test_the_test_of_the_readme_passes_a_right_kernel(monkeypatch):
    readme_test(monkeypatch, 0)[0]()


def test_other_output_is_noticed():
    assert agrees("a\n  ...\nd\n", "a\nb\nc\nd\n")
    assert not agrees("a\n  ...\nd\n", "a\nb\nc\ne\n") and not agrees("a\n", "a\nb\n") and not agrees("", "a\n")


def update():
    text = TUTORIAL.read_text(encoding="utf-8")
    made = ""
    end = 0
    for block, printed in printed_by(text):
        made += text[end:block.start()] + f"```python\n{block['code']}```\n```\n{printed}```\n"
        end = block.end()
    TUTORIAL.write_text(made + text[end:], encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit(__doc__)
    update()
