"""The package mlx_lm without its __init__, which loads tokenizers and a client of a model hub: nothing of these is judged, and
they took most of each start. Imported before anything of mlx_lm."""
import importlib.util
import sys

if "mlx_lm" not in sys.modules:
    spec = importlib.util.find_spec("mlx_lm")
    sys.modules["mlx_lm"] = importlib.util.module_from_spec(spec)
