"""Traces as text (reference/README.md, 3.8): the setup and the operations of a case of kind cache, taken apart."""
import dataclasses

SLOTS = "ABCDE"
KINDS = ("new", "append", "prepare", "finalize", "trim", "filter", "extend", "merge", "extract", "to_quantized", "copy",
         "save", "load", "damage", "attend", "drop")


@dataclasses.dataclass
class Setup:
    layout: str
    k: str
    v: str
    x: str
    kv_heads: int
    query_heads: int
    k_dim: int
    v_dim: int
    seed: int


@dataclasses.dataclass
class Operation:
    text: str
    kind: str
    slot: str = ""  # the cache operated on
    target: str = ""  # where the result goes; of extend: the cache whose rows are taken
    operands: tuple = ()  # of merge
    key: str = ""  # of save, load, damage
    count: int = 0  # rows of new, columns of append, tokens of trim, row of extract
    numbers: tuple = ()  # padding of new, lengths of prepare, rows of filter
    options: dict = dataclasses.field(default_factory=dict)


def _numbers(text):
    return tuple(int(n) for n in text.split(",")) if text else ()


def _options(words):
    return dict(word.split("=", 1) if "=" in word else (word, True) for word in words)


def parse_operation(text):
    kind, *words = text.split(" ")
    if kind == "new":
        options = _options(words[1:])
        return Operation(text, kind, words[0], count=int(options.get("rows", 1)),
                         numbers=_numbers(options.get("pad", "")), options=options)
    if kind == "append":
        return Operation(text, kind, words[0], count=int(words[1]), options=_options(words[2:]))
    if kind in ("prepare", "filter"):
        return Operation(text, kind, words[0], numbers=_numbers(words[1] if len(words) > 1 else ""))
    if kind == "trim":
        return Operation(text, kind, words[0], count=int(words[1]))
    if kind == "extend":
        return Operation(text, kind, words[0], target=words[1])
    if kind == "merge":
        return Operation(text, kind, target=words[2], operands=tuple(words[0].split(",")))
    if kind == "extract":
        return Operation(text, kind, words[0], count=int(words[1]), target=words[3])
    if kind == "copy":
        return Operation(text, kind, words[0], target=words[2])
    if kind == "save":
        return Operation(text, kind, words[0], key=words[1])
    if kind == "load":
        return Operation(text, kind, key=words[0], target=words[2])
    if kind == "damage":
        return Operation(text, kind, key=words[0], options={"how": words[1], **_options(words[2:])})
    if kind in ("to_quantized", "attend"):
        return Operation(text, kind, words[0], options=_options(words[1:]))
    if kind in ("finalize", "drop"):
        return Operation(text, kind, words[0])
    raise ValueError(f"no operation: {text}")


def parse(text):
    """A case on one line, as (Setup, [Operation])."""
    head, *operations = text.split("; ")
    kind, *fields = head.split(" ")
    assert kind == "cache", text
    f = dict(field.split("=", 1) for field in fields)
    regime, seed = f["data"].split(":")
    assert regime == "tokens", text
    kv_heads = int(f.get("hkv", 1))
    setup = Setup(f.get("layout", "linear"), f["k"], f.get("v", f["k"]), f.get("x", "f32"), kv_heads,
                  int(f.get("hq", kv_heads)), int(f["dk"]), int(f.get("dv", f["dk"])), int(seed))
    return setup, [parse_operation(operation) for operation in operations]


def layout_of(text):
    """("ring", {"w": 4, "keep": 1})"""
    kind, *fields = text.split(":")
    return kind, {key: int(value) for key, value in (field.split("=") for field in fields)}
