"""Texts of storage formats. A family of formats is a class in a file of its own, and an entry of FAMILIES."""
import functools

from .affine import Affine
from .channel import Channel
from .int4zp import Int4zp
from .iq4_nl import Iq4Nl
from .mx import Mx
from .nvfp4 import Nvfp4
from .plain import Plain
from .planes import Format
from .q4_0 import Q4_0
from .q4_1 import Q4_1
from .q5_0 import Q5_0
from .q5_1 import Q5_1
from .q8_0 import Q8_0
from .residual_affine import ResidualAffine
from .rotated import Rotated
from .scaled import Scaled
from .split_turboquant import SplitTurboquant
from .turboquant import Turboquant
from .turboquant_prod import TurboquantProd
from .uniform import Uniform


@functools.lru_cache(maxsize=1024)
def parse_format(text):
    for family in FAMILIES:
        fmt = family.parse(text)
        if fmt is not None:
            return fmt
    raise ValueError(f"no format: {text!r}")


FAMILIES = (Plain, Affine, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Iq4Nl, Mx, Nvfp4, SplitTurboquant, TurboquantProd, Turboquant, Scaled,
            Int4zp, Uniform, Channel, ResidualAffine, Rotated(parse_format))
