"""kvcheck convert: what torch.save wrote, as safetensors; nothing of a file runs."""
import os
import pathlib
import pickle
import subprocess
import sys

import pytest

try:
    import safetensors.torch as safetensors
    import torch
except ImportError as error:
    pytestmark = pytest.mark.skip(reason=f"{error.name} is not installed")

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "tools" / "python" / "kvcheck"
try:
    from kvcheck import _convert
except ImportError:  # the package is not installed: the module stands by itself
    import importlib.util

    spec = importlib.util.spec_from_file_location("_convert", PACKAGE / "_convert.py")
    _convert = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(_convert)


def run(*arguments):
    code = f"import sys; sys.path.insert(0, {str(PACKAGE)!r}); import _convert; sys.exit(_convert.main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)


def test_nested_tensors_keep_their_types_and_values(tmp_path):
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    stored = {"q": base.to(torch.bfloat16), "codes": base.to(torch.float8_e4m3fn), "turned": base.T,
              "layers": [{"k": base[1:], "seen": 3}, (base > 4, 0.1)], "words": "text", "none": None}
    torch.save(stored, tmp_path / "in.pt")
    ended = run(tmp_path / "in.pt", tmp_path / "out.safetensors")
    assert ended.returncode == 0, ended.stderr
    assert "no tensors, and left out: words (str), none (NoneType)" in ended.stdout
    got = safetensors.load_file(tmp_path / "out.safetensors")
    assert sorted(got) == ["codes", "layers.0.k", "layers.0.seen", "layers.1.0", "layers.1.1", "q", "turned"]
    assert got["q"].dtype == torch.bfloat16 and got["codes"].dtype == torch.float8_e4m3fn
    assert torch.equal(got["turned"], base.T) and torch.equal(got["layers.0.k"], base[1:])
    assert got["layers.1.1"].dtype == torch.float64 and got["layers.1.1"].item() == 0.1


def test_a_tensor_has_the_name_of_its_file_and_old_files_are_read(tmp_path):
    torch.save(torch.ones(2), tmp_path / "k.pt", _use_new_zipfile_serialization=False)
    assert run(tmp_path / "k.pt", tmp_path / "k.safetensors").returncode == 0
    assert list(safetensors.load_file(tmp_path / "k.safetensors")) == ["k"]


class Runs:
    def __reduce__(self):
        return os.system, (f"touch {os.environ['KVCHECK_MARK']}",)


@pytest.mark.parametrize("write", [lambda x, path: torch.save(x, path), lambda x, path: path.write_bytes(pickle.dumps(x, protocol=2))])
def test_no_code_of_a_file_runs(tmp_path, monkeypatch, write):
    mark = tmp_path / "ran"
    monkeypatch.setenv("KVCHECK_MARK", str(mark))
    write({"q": Runs()}, tmp_path / "in.pt")
    ended = run(tmp_path / "in.pt", tmp_path / "out.safetensors")
    assert ended.returncode == 2 and "weights_only=True" in ended.stderr
    assert not mark.exists() and not (tmp_path / "out.safetensors").exists()


def test_what_is_no_file_of_tensors_is_refused(tmp_path):
    torch.save({"words": "text"}, tmp_path / "texts.pt")
    torch.save({"a": torch.zeros(2, 2).to_sparse()}, tmp_path / "sparse.pt")
    torch.save({"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}, tmp_path / "twice.pt")
    (tmp_path / "damaged.pt").write_bytes(b"PK\x03\x04 and nothing more")
    (tmp_path / "there.safetensors").write_bytes(b"")
    for source, target, reason in [("texts.pt", "o", "it holds no tensors; it holds words (str)"),
                                   ("sparse.pt", "o", "to_dense()"), ("twice.pt", "o", "two tensors have the name 'a.b'"),
                                   ("damaged.pt", "o", "does not read it"), ("none.pt", "o", "there is no such file"),
                                   ("texts.pt", "there.safetensors", "is not written over")]:
        ended = run(tmp_path / source, tmp_path / target)
        assert ended.returncode == 2 and reason in ended.stderr, ended.stderr
        assert "Traceback" not in ended.stderr and not (tmp_path / "o").exists()
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]
