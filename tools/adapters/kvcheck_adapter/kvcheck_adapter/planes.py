"""Storage formats as planes: the arrays of which stored vectors consist (reference/README.md, section 3.3)."""
from typing import NamedTuple


class Plane(NamedTuple):
    name: str
    kind: str  # type of its elements, as in storage.STORED
    elements: int  # of a vector; of a parameter, of all vectors together
    per_vector: bool = True


class Format(NamedTuple):
    text: str
    bits: int | None  # of a code; None: the elements themselves
    group: int | None  # channels of one scale
    type: str  # of a decoded row; of plain elements, and of affine scales
    family: object = None  # an entry of formats.FAMILIES

    @property
    def is_plain(self):
        return self.bits is None

    @property
    def block(self):
        """Channels that share something: head_dim is a multiple of it."""
        return getattr(self.family, "BLOCK", None) or self.group or 1

    @property
    def kinds(self):
        """{name: type} of the planes."""
        return {plane.name: plane.kind for plane in self.planes(self.block)}

    @property
    def of_token(self):
        """How a cache shows one token: itself, but for formats that code groups of tokens."""
        of_token = getattr(self.family, "of_token", None)
        return of_token(self) if of_token else self

    @property
    def codes_later(self):
        """Whether a token that comes may change how those before it are stored."""
        return getattr(self.family, "CODES_LATER", False)

    def planes(self, head_dim):
        return self.family.planes(self, head_dim)

    def decode(self, arrays):
        """float32 values of stored vectors, (..., head_dim); arrays: one per plane."""
        return self.family.decode(self, arrays)

    def encode(self, values, **writer):
        """The planes of finite values (..., head_dim). writer: what the format leaves to it, by the family."""
        return self.family.encode(self, values, **writer)

    def level(self, arrays):
        """Values, (..., n), of which the smallest is at most that of any channel: enough to know vectors whose channels
        are all equal."""
        return self.family.level(self, arrays)

    def shapes(self, head_dim, leading):
        """Of the planes of vectors with these leading axes."""
        return [[*(leading if plane.per_vector else ()), plane.elements] for plane in self.planes(head_dim)]
