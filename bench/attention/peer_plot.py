"""Draws how much of the best read of as many bytes each library reaches, over the length of the context.

    peer_plot.py FILE|- OUT.png

FILE as peers.py --json writes it; - is the standard input. Needs matplotlib.
"""
import json
import pathlib
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, NullFormatter
except ImportError as error:
    sys.exit(f"no plot: {error} (tools/adapters/make_venv.sh bench/attention)")

import peer_report

# Colour and dashes by library, marker by format.
LIBRARIES = {"ours": ("black", "-"), "torch": ("tab:red", "--"), "OpenVINO": ("tab:blue", "-."), "ggml": ("tab:green", "--"),
             "MLX": ("tab:purple", ":")}
OWN_COLOURS = ["#08306b", "#1167b1", "#41a6d9", "#7a5195", "#e67e22", "#c0392b"]
MARKERS = "osD^vP"


PANELS = {"decode": "the same K and V in every call, from whatever cache holds them",
          "layers": "layers in turn, which no cache holds together"}


def series_of(results, kind):
    """(tokens, shares by quartile) of every label."""
    series = {}
    for case in results:
        if case["case"] == kind:
            for label in case["entries"]:
                series.setdefault(label, []).append((case["tokens"], peer_report.quartiles(peer_report.shares(case, label))))
    return {label: sorted(points) for label, points in series.items()}


def styles_of(labels):
    """How each label is drawn, in every panel."""
    styles, drawn = {}, {}
    for label in labels:
        library = label.split()[0]
        nth = drawn.setdefault(library, 0)
        drawn[library] += 1
        colour, dashes = LIBRARIES.get(library, ("gray", ":"))
        ours = library == "ours"
        styles[label] = {"color": OWN_COLOURS[nth % len(OWN_COLOURS)] if ours else colour, "linestyle": dashes,
                         "marker": MARKERS[nth % len(MARKERS)], "markersize": 5, "linewidth": 2.2 if ours else 1.2,
                         "alpha": 1 if ours else 0.85}
    return styles


def draw_panel(axes, series, styles):
    for label, points in series.items():
        tokens = [point[0] for point in points]
        low, middle, high = ([100 * point[1][i] for point in points] for i in range(3))
        axes.plot(tokens, middle, **styles[label])
        axes.fill_between(tokens, low, high, color=styles[label]["color"], alpha=0.12, linewidth=0)
    axes.axhline(100, color="gray", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    contexts = sorted({point[0] for points in series.values() for point in points})
    axes.set_xticks(contexts, [f"{n // 1024}K" if n % 1024 == 0 else str(n) for n in contexts])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else ""))
    axes.grid(which="both", alpha=0.25)
    axes.set_xlabel("tokens of context")


def draw(results, path):
    panels = {kind: series for kind in PANELS if (series := series_of(results, kind))}
    styles = styles_of(dict.fromkeys(label for series in panels.values() for label in series))
    figure, all_axes = plt.subplots(1, len(panels), figsize=(3 + 7 * len(panels), 6.5), sharey=True, squeeze=False)
    for axes, (kind, series) in zip(all_axes[0], panels.items()):
        draw_panel(axes, series, styles)
        axes.set_title(PANELS[kind], fontsize=10)
    all_axes[0][0].set_ylabel("% of the best read of as many bytes (median, quartiles)")
    threads = ", ".join(sorted({str(case["threads"]) for case in results if case["case"] in panels}))
    figure.suptitle(f"Decoding one token: 32 query heads, 8 key/value heads, 128 channels, {threads} threads")
    lines = [Line2D([], [], label=label, **style) for label, style in styles.items()]
    all_axes[0][-1].legend(handles=lines, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    figure.savefig(path, dpi=110, bbox_inches="tight")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    lines = sys.stdin if sys.argv[1] == "-" else pathlib.Path(sys.argv[1]).read_text().splitlines()
    results = [json.loads(line) for line in lines]
    if not any(case["case"] in PANELS for case in results):
        sys.exit("nothing to draw: no case of decode or layers was measured")
    draw(results, sys.argv[2])


if __name__ == "__main__":
    main()
