"""CPython 3.12: intrinsics, ``RETURN_CONST``, slices without a slice object, methods by ``LOAD_ATTR``, ``END_FOR``."""
from .dialect import Dialect

INTRINSICS = {
    ("CALL_INTRINSIC_1", 4): ("ASYNC_GEN_WRAP", None),
    ("CALL_INTRINSIC_1", 5): ("UNARY_POSITIVE", None),
    ("CALL_INTRINSIC_1", 6): ("LIST_TO_TUPLE", None),
    ("CALL_INTRINSIC_2", 1): ("PREP_RERAISE_STAR", None),
}
"""Intrinsics that were opcodes of their own in 3.11."""

PAIRS = {
    "RETURN_CONST": ("LOAD_CONST", "RETURN_VALUE"),
    "BINARY_SLICE": ("BUILD_SLICE", "BINARY_SUBSCR"),
    "STORE_SLICE": ("BUILD_SLICE", "STORE_SUBSCR"),
}

NAME_BITS = {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}

DIALECT = Dialect(
    version=(3, 12),
    name_bits=NAME_BITS,
    compare_shift=4,
    renames=INTRINSICS,
    pairs=PAIRS,
)
