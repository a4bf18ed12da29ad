#!/usr/bin/env python3
"""HTML reports of kvcheck in a headless Chromium: what they look like, whether anything in them fails, and axe-core's findings.

    tools/adapters/make_venv.sh tests/tools/report/browser/
    tests/tools/report/browser/venv/bin/python tests/tools/report/browser/check_reports.py KVCHECK [SCREENSHOTS]

Every page is opened light and dark, wide (1280 pixels) and narrow (400 and 360). It is an error when the console says one, when
anything but the file is asked for, when axe-core finds something serious, when the page is wider than the window, when
the filter or the copy button does not do what it says, or when the keyboard does not reach what can be clicked.
CHROMIUM names the browser (default: chromium on the path). Exit codes: 0 nothing found, 1 findings, 77 no browser.
"""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).parents[4]
# (name, arguments of kvcheck): a failure with maps, terms and a command; files; drawn cases; faults; two files.
REPORTS = [
    ("failure", ["run", "--data", "golden/data/mlx_lm_faults.h5#window_off_by_one.prefill/mlx_lm.0.24.0"]),
    ("golden", ["golden", "verify", "golden/data/mlx_lm_faults.h5"]),
    ("gate", ["gate", "--fuzz-cases", "200"]),
    ("compare", ["compare", "golden/dumps/by_hand.safetensors", "--plan", "base=plain_f32", "--case",
                 "attention b=2 hq=4 hkv=2 l=9 t=9 d=32 q=bf16 k=bf16 v=bf16 out=bf16 mask=causal_top_left data=file"]),
]
SERIOUS = ("serious", "critical")


def made(kvcheck, folder):
    """(name, file) of every report."""
    for name, arguments in REPORTS:
        path = folder / f"{name}.html"
        done = subprocess.run([kvcheck, *arguments, "--html", str(path)], cwd=ROOT, capture_output=True, text=True,
                              check=False)
        if not path.is_file():
            sys.exit(f"kvcheck {' '.join(arguments)} wrote no report, status {done.returncode}: {done.stderr}")
        yield name, path


# Assertions for the audit of the pytest plugin.
SUITE = """
import numpy as np
import pytest
from kvcheck.testing import assert_attention_close

@pytest.mark.parametrize("atol", [1e-9, 1e-3, 10.0], ids=["tight", "<b>usual</b>", "loose"])
def test_close(atol):
    x = np.random.default_rng(1).standard_normal((2, 4, 8, 16), np.float32)
    np.testing.assert_allclose(x, x, atol=atol)

def test_kernel():
    x = np.ones((1, 1, 4, 16), np.float32)
    assert_attention_close(x * 2, x, x, x, plan="plain_f32")
"""


def audited(folder):
    """(name, file) of the report of a run of pytest, where the package for Python is installed."""
    python = ROOT / "tools" / "python" / "venv" / "bin" / "python"
    if not python.is_file():
        print("audit: no tools/python/venv (tools/python/install.sh)")
        return
    path = folder / "audit.html"
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    done = subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--kvcheck-audit", "--kvcheck-audit-limit=1000",
                           f"--kvcheck-report={path}", "test_suite.py"], cwd=folder, capture_output=True, text=True,
                          check=False, env={**os.environ, "KVCHECK_FAILURES": str(folder / "failures")})
    if not path.is_file():
        sys.exit(f"pytest wrote no report, status {done.returncode}: {done.stdout}{done.stderr}")
    yield "audit", path


def findings_of(page, axe):
    """What is wrong with a page that is open."""
    for violation in axe.run(page).response["violations"]:
        if violation["impact"] in SERIOUS:
            targets = ", ".join(str(node["target"]) for node in violation["nodes"][:3])
            yield f"axe: {violation['impact']} {violation['id']}: {violation['help']}: {targets}"
    width, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    if width > window:
        yield f"the page is {width} pixels wide, the window {window}"
    if window < 640 and page.locator("#results").count():
        table, frame = page.evaluate("(r => [r.scrollWidth, r.parentElement.clientWidth])(document.getElementById('results'))")
        if table > frame:
            yield f"the table of results is {table} pixels wide, its place {frame}: a column is cut off"
        page.locator("#standing").select_option("good")
        if page.locator("#results tbody tr:not([data-standing=good])").filter(visible=True).count():
            yield "the filter shows rows that it hides in wide windows"
        page.locator("#standing").select_option("")


def clicks_of(page):
    """The filter, the copy button, the keyboard: of one scheme, wide."""
    button = page.locator("[data-copy]").first
    if button.count():
        wanted = page.locator("#" + button.get_attribute("data-copy")).inner_text()
        button.click()
        page.wait_for_function("getSelection().toString().length > 0")
        if page.evaluate("getSelection().toString()") != wanted or button.inner_text() != "Copied":
            yield "the copy button does not choose the command and say so"
    rows = page.locator("#results tbody tr")
    if rows.count():
        page.locator("#standing").select_option("bad")
        shown = rows.filter(visible=True).count()
        bad = page.locator("#results tbody tr[data-standing=bad]").count()
        if shown != bad or page.locator("#shown").inner_text() != f"{bad} shown":
            yield f"the filter shows {shown} rows, {bad} failed"
        page.locator("#standing").select_option("")
    reachable = page.locator("a[href], button, select, input, summary, [tabindex='0']").filter(visible=True).count()
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    reached = set()
    for _ in range(min(reachable, 60)):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    if len(reached) < min(reachable, 60):
        yield f"the keyboard reaches {len(reached)} of {reachable} elements"


def check(browser, name, path, screenshots):
    axe = Axe()
    for scheme in ("light", "dark"):
        for width in (1280, 400, 360):
            context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
            with contextlib.closing(context):
                page = context.new_page()
                said, asked = [], []
                page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
                page.on("pageerror", lambda error: said.append(str(error)))
                page.on("request", lambda request: asked.append(request.url))
                page.goto(path.as_uri())
                label = f"{name}, {scheme}, {width} pixels"
                if screenshots:
                    page.screenshot(path=screenshots / f"{name}-{scheme}-{width}.png", full_page=False)
                    details = page.locator("article").first
                    if details.count():
                        details.scroll_into_view_if_needed()
                        page.screenshot(path=screenshots / f"{name}-{scheme}-{width}-details.png", full_page=False)
                yield from (f"{label}: {finding}" for finding in findings_of(page, axe))
                if (scheme, width) == ("light", 1280):
                    yield from (f"{label}: {finding}" for finding in clicks_of(page))
                # axe itself asks nothing; a page that is one file asks for itself alone.
                yield from (f"{label}: asks for {url}" for url in asked if url != path.as_uri())
                yield from (f"{label}: the console says {text}" for text in said)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("SKIPPED: no chromium on the path (tools/install_packages.sh --all)")
        return 77
    screenshots = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else None
    if screenshots:
        screenshots.mkdir(parents=True, exist_ok=True)
    findings, pages = [], 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        folder = pathlib.Path(folder)
        for name, path in [*made(pathlib.Path(sys.argv[1]).resolve(), folder), *audited(folder)]:
            found = list(check(browser, name, path, screenshots))
            findings += found
            pages += 1
            print(f"{name}: {path.stat().st_size} bytes, {len(found)} findings", flush=True)
        browser.close()
    print(*findings, sep="\n")
    print(f"{pages} reports, light and dark, wide and narrow: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
