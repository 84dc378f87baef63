"""CPython 3.13: ``TO_BOOL``, pairs of local loads and stores, ``CALL_KW``, NULL above the callable, split formatting."""
from .dialect import Dialect
from .py312 import INTRINSICS, NAME_BITS, PAIRS

DIALECT = Dialect(
    version=(3, 13),
    name_bits=NAME_BITS,
    compare_shift=5,
    compare_bool=16,
    renames={
        **INTRINSICS,
        ("FORMAT_SIMPLE", None): ("FORMAT_VALUE", 0),
        ("FORMAT_WITH_SPEC", None): ("FORMAT_VALUE", 4),
    },
    pairs={
        **PAIRS,
        "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
        "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
        "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    },
    kw_names=False,
    null_first=False,
    to_bool=True,
    end_for=("END_FOR", "POP_TOP"),
    function_attributes=True,
    closure_by_load_fast=True,
    convert_value=True,
)
