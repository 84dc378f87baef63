"""CPython 3.11: directed jumps, ``PRECALL``, ``KW_NAMES``; no fused pairs."""
from .dialect import Dialect

DIALECT = Dialect(
    version=(3, 11),
    name_bits={"LOAD_GLOBAL": 1},
    compare_shift=0,
    directed=frozenset({"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"}),
    precall=True,
    end_for=(),
    merged_locations=False,
)
