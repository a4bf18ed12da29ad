"""The tables of peers.py, and what the attention of this project must reach beside its peers, line by line. Every number is
the median over the rounds, of what was divided within a round, with its quartiles."""
import statistics

QUERY_HEADS, DIM = 32, 128
DISTURBED = 0.15  # cores that other programs used
SHORT, LONG = 1024, 16384  # tokens: what is asked at exactly one of them, at both or more


def quartiles(values):
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def text(values, factor=1.0, digits=1):
    low, middle, high = (factor * value for value in quartiles(values))
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def title(case):
    name = f"{case['case']}, {case['tokens']} tokens"
    if case["case"] == "prefill":
        name += ", causal" if case["causal"] else ", all visible"
    return name


def cold_text(case):
    return f", layers of {case['cold'] / 2**20:.0f} MiB together" if "cold" in case else ""


def flops(case):
    """Of one sequence; an FMA counts two, pairs that a causal mask hides none."""
    tokens, queries = case["tokens"], case["queries"]
    return 4 * QUERY_HEADS * DIM * queries * (tokens - (queries - 1) / 2 if case["causal"] else tokens)


# ------------------------------------------------------- what was measured, round by round


def shares(case, label):
    """Of the best read of as many bytes."""
    entry = case["entries"][label]
    return [read / second for read, second in zip(case["reads"][str(entry["bytes"])], entry["seconds"])]


def rate_shares(case, label):
    """Of the rate at which the bytes of f16 are read."""
    entry = case["entries"][label]
    reads = case["reads"][str(case["f16_bytes"])]
    return [entry["bytes"] / second / (case["f16_bytes"] / read) for read, second in zip(reads, entry["seconds"])]


def fma_shares(case, label):
    return [flops(case) / second / 1e9 / peak for second, peak in zip(case["entries"][label]["seconds"], case["gflops"])]


def ratios(case, label, base):
    """How many times as long as `base` takes `label`."""
    entries = case["entries"]
    return [a / b for a, b in zip(entries[label]["seconds"], entries[base]["seconds"])]


# --------------------------------------------------------------------------------- tables


def print_case(case):
    print(f"\n### {title(case)}\n")
    reads = [case["f16_bytes"] / read / 1e9 for read in case["reads"][str(case["f16_bytes"])]]
    print(f"{case['rounds']} rounds, {case['threads']} threads{cold_text(case)}. Read of the bytes of f16: {text(reads)} GB/s; "
          f"FMA peak: {text(case['gflops'], 1, 0)} GFLOP/s. Other programs used {case['others_cores']:.2f} cores meanwhile.\n")
    if case["case"] == "prefill":
        print("| what | ms | GFLOP/s | % of FMA peak |\n|---|---|---|---|")
    else:
        print("| what | ms | GB/s | % of a read of as many bytes | % of the rate of reading f16 |\n|---|---|---|---|---|")
    for label, entry in case["entries"].items():
        middle = statistics.median(entry["seconds"])
        milliseconds = text(entry["seconds"], 1e3, 3)
        if case["case"] == "prefill":
            print(f"| {label} | {milliseconds} | {flops(case) / middle / 1e9:.1f} | {text(fma_shares(case, label), 100)} |")
        else:
            print(f"| {label} | {milliseconds} | {entry['bytes'] / middle / 1e9:.2f} | {text(shares(case, label), 100)} | "
                  f"{text(rate_shares(case, label), 100)} |")


# --------------------------------------------------------------------- what must be reached


def at_least(values, must, aim=None):
    return values, must, aim, lambda value, limit: value >= limit, "at least"


def at_most(values, must, aim=None):
    return values, must, aim, lambda value, limit: value <= limit, "at most"


def decode_lines(case):
    """(what, how its values, limits and their sense are found) of one context."""
    def share(name, must, aim):
        return lambda: at_least(shares(case, f"ours {name}"), must, aim)

    def times(peer, name, must, aim=None):
        return lambda: at_least(ratios(case, peer, f"ours {name}"), must, aim)

    if case["tokens"] == SHORT:
        yield "f16: time over torch bf16 folded", lambda: at_most(ratios(case, "ours f16", "torch bf16, folded"), 1, 0.5)
    if case["tokens"] < LONG:
        return
    for name in ("f32", "f16", "bf16"):
        yield f"{name}: share of reading", share(name, 0.65, 0.85)
    yield "bf16: times as fast as torch bf16 folded", times("torch bf16, folded", "bf16", 1.5)
    yield "f32: times as fast as torch f32 folded", times("torch f32, folded", "f32", 1.15)
    yield "f16: times as fast as torch f16 folded", times("torch f16, folded", "f16", None)
    yield "f16: times as fast as ggml f16", times("ggml f16", "f16", 3.5)
    for name, must, aim in (("8-bit", 0.42, 0.65), ("4-bit", 0.25, 0.4)):
        # As many bytes may fit a cache where those of f16 do not.
        yield f"{name}: share of reading", share(name, must, aim)
        yield f"{name}: share of the rate of reading f16", lambda name=name, must=must, aim=aim: at_least(
            rate_shares(case, f"ours {name}"), must, aim)
    yield "8-bit: times as fast as ggml q8_0", times("ggml q8_0", "8-bit", 7)
    yield "8-bit: times as fast as OpenVINO u8", times("OpenVINO u8", "8-bit", 4)
    yield "8-bit: time over f16", lambda: at_most(ratios(case, "ours 8-bit", "ours f16"), None, 0.65)
    yield "4-bit: times as fast as ggml q4_0", times("ggml q4_0", "4-bit", 14)
    for name, must in (("q8_0", 7), ("q4_0", 14)):
        yield f"{name} blocks: times as fast as ggml {name}", times(f"ggml {name}", f"{name} blocks", must)
    yield "4-bit: time over 8-bit", lambda: at_most(ratios(case, "ours 4-bit", "ours 8-bit"), 1)


def prefill_lines(case):
    ways = [label for label in case["entries"] if label.startswith("torch")]
    if ways:
        best = min(ways, key=lambda label: statistics.median(case["entries"][label]["seconds"]))
        yield f"f32: times as fast as {best}", lambda: at_least(ratios(case, best, "ours f32"), 1)
    else:
        yield "f32: times as fast as torch f32", lambda: at_least(ratios(case, "torch f32", "ours f32"), 1)
    yield "f32: share of the FMA peak", lambda: at_least(fma_shares(case, "ours f32"), None, 0.7)
    for name in ("8-bit", "4-bit"):
        yield f"{name}: rate over that of f32", lambda name=name: at_least(ratios(case, "ours f32", f"ours {name}"), 0.8, 0.95)


def layout_lines(case):
    for name in ("f16", "8-bit", "4-bit"):
        yield f"{name}: time token-major over head-major", lambda name=name: at_most(
            ratios(case, f"ours {name}, token-major", f"ours {name}, head-major"), 1.3, 1.1)


def batch_lines(case):
    for name in ("f32", "f16", "8-bit", "4-bit"):
        yield f"{name}: time of one call over four", lambda name=name: at_most(
            ratios(case, f"ours {name}, one call", f"ours {name}, four calls"), 1, 0.9)


LINES = {"decode": decode_lines, "layers": decode_lines, "layout": layout_lines, "prefill": prefill_lines, "batch": batch_lines}


def reached(values, limit, holds):
    """By the median; a limit between the quartiles is not decided by as many rounds."""
    if limit is None:
        return "-"
    low, middle, high = quartiles(values)
    near = ", within quartiles" if low <= limit <= high else ""
    return f"{limit:g} {'met' if holds(middle, limit) else 'missed'}{near}"


def print_lines(results):
    print("\n### What must be reached\n\n| part | what | measured | sense | must | aim |\n|---|---|---|---|---|---|")
    unmeasured = ["dequantizing and quantizing rows: not by this script"]
    for case in results:
        for what, find in LINES[case["case"]](case):
            try:
                values, must, aim, holds, sense = find()
            except KeyError as missing:
                unmeasured.append(f"{title(case)}: {what} ({missing.args[0]} was not measured)")
                continue
            print(f"| {title(case)} | {what} | {text(values, 1, 3)} | {sense} | {reached(values, must, holds)} | "
                  f"{reached(values, aim, holds)} |")
    for kind in LINES:
        if not any(case["case"] == kind for case in results):
            unmeasured.append(f"{kind}: no case of it")
    for kind in ("decode", "layers"):
        tokens = [case["tokens"] for case in results if case["case"] == kind]
        if tokens and max(tokens) < LONG:
            unmeasured.append(f"{kind} from {LONG} tokens on")
        if tokens and SHORT not in tokens:
            unmeasured.append(f"{kind} of {SHORT} tokens")
    print("\nNot measured:\n\n" + "\n".join(f"* {line}" for line in unmeasured))


def print_report(results):
    for machine in dict.fromkeys(case["machine"] for case in results):
        versions = {}
        for case in results:
            if case["machine"] == machine:
                versions |= case["versions"]
        print(f"{machine}; " + (", ".join(f"{name} {version}" for name, version in versions.items()) or "no peers"))
    disturbed = [title(case) for case in results if case["others_cores"] > DISTURBED]
    if disturbed:
        print(f"\n**Other programs ran: not to be relied on are {'; '.join(disturbed)}.**")
    for case in results:
        print_case(case)
    if results:
        print_lines(results)
