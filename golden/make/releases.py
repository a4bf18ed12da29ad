"""Releases of mlx-lm that are not installed, out of their wheels."""
import contextlib
import importlib
import sys
import types


@contextlib.contextmanager
def release(wheels, version, module="base"):
    """mlx_lm.models.MODULE of a wheel, without running the package's own initialisation."""
    wheel = wheels / f"mlx_lm-{version}-py3-none-any.whl"
    if not wheel.exists():
        sys.exit(f"{wheel} is missing: pip download --no-deps -d {wheels} mlx-lm=={version}")
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "mlx_lm"}
    for name in ("mlx_lm", "mlx_lm.models"):
        package = types.ModuleType(name)
        package.__path__ = [str(wheel / name.replace(".", "/"))]
        sys.modules[name] = package
    try:
        yield importlib.import_module(f"mlx_lm.models.{module}")
    finally:
        for name in list(sys.modules):
            if name.split(".")[0] == "mlx_lm":
                del sys.modules[name]
        sys.modules.update(kept)
