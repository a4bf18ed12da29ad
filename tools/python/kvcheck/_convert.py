"""kvcheck convert: tensors of a file of torch.save as safetensors, which the program reads.

torch.load is called with weights_only=True: its unpickler makes tensors and containers and calls nothing else. What needs
more is refused by the name of its class.
"""
import argparse
import os
import sys
import tempfile

EXIT_NOT_PUT = 2


class Refusal(Exception):
    pass


def _libraries():
    try:
        import safetensors.torch
        import torch
    except ImportError as error:
        raise Refusal(f"{error.name} is needed to read files of torch.save: pip install torch safetensors") from error
    return torch, safetensors.torch


def flattened(value, torch, name="", tensors=None, left_out=None):
    """Tensors of nested dicts, lists and tuples under names "layers.0.k"; names of what is no tensor in `left_out`."""
    tensors = {} if tensors is None else tensors
    left_out = [] if left_out is None else left_out
    items = None
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    if items is not None:
        for key, inner in items:
            path = f"{name}.{key}" if name else str(key)
            flattened(inner, torch, path, tensors, left_out)
    elif isinstance(value, torch.Tensor):
        if name in tensors:
            raise Refusal(f"two tensors have the name {name!r}")
        tensors[name] = value
    elif isinstance(value, (bool, int, float)) and not (isinstance(value, int) and abs(value) >= 2**63):
        tensors[name] = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    else:
        left_out.append(f"{name} ({type(value).__name__})")
    return tensors, left_out


def _dense(name, tensor):
    if tensor.layout != _dense.torch.strided or tensor.is_quantized:
        raise Refusal(f"{name!r} is a {'quantized' if tensor.is_quantized else tensor.layout} tensor: save "
                      f"{'int_repr() and its scales' if tensor.is_quantized else 'to_dense() of it'}")
    # Views of one memory would share it in the file, which safetensors refuses.
    return tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous().clone()


def convert(source, target):
    """Writes the tensors of `source` to `target`. Returns (how many, what was left out). Errors: Refusal."""
    torch, files = _libraries()
    _dense.torch = torch
    if not os.path.isfile(source):
        raise Refusal(f"{source}: there is no such file")
    if os.path.exists(target):
        raise Refusal(f"{target}: it is there already, and is not written over")
    try:
        loaded = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001: of whatever class; damaged files raise many
        raise Refusal(f"{source}: torch.load(weights_only=True) does not read it: {str(error).strip().splitlines()[0]}. "
                      "Save tensors only, as torch.save({'q': q, 'k': k, 'v': v, 'out': out}, path)") from error
    name = os.path.splitext(os.path.basename(source))[0]
    if isinstance(loaded, torch.Tensor):
        loaded = {name: loaded}
    tensors, left_out = flattened(loaded, torch)
    if not tensors:
        raise Refusal(f"{source}: it holds no tensors" + (f"; it holds {', '.join(left_out[:6])}" if left_out else ""))
    tensors = {key: _dense(key, tensor) for key, tensor in tensors.items()}
    folder = os.path.dirname(os.path.abspath(target))
    handle, part = tempfile.mkstemp(suffix=".part", dir=folder)
    os.close(handle)
    try:
        files.save_file(tensors, part)
        os.replace(part, target)
    except BaseException as error:
        os.unlink(part)
        if isinstance(error, (OSError, ValueError, KeyError, RuntimeError)):
            raise Refusal(f"{target}: it cannot be written: {error}") from error
        raise
    return len(tensors), left_out


def main(arguments):
    parser = argparse.ArgumentParser(prog="kvcheck convert", description=__doc__.splitlines()[0])
    parser.add_argument("source", metavar="IN.pt", help="a file of torch.save")
    parser.add_argument("target", metavar="OUT.safetensors", help="the file to write; it must not be there")
    try:
        words = parser.parse_args(arguments)
    except SystemExit as end:
        return EXIT_NOT_PUT if end.code else 0
    try:
        count, left_out = convert(words.source, words.target)
    except Refusal as refusal:
        print(f"kvcheck: error: {refusal}", file=sys.stderr)
        return EXIT_NOT_PUT
    print(f"{words.target}: {count} tensor{'' if count == 1 else 's'}")
    if left_out:
        more = f", {len(left_out) - 6} more" if len(left_out) > 6 else ""
        print(f"no tensors, and left out: {', '.join(left_out[:6])}{more}")
    return 0
