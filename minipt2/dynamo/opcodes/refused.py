"""Instructions that always break the graph, by the reason they break it for."""
from __future__ import annotations

from ..variables.base import unsupported
from .registry import op

REFUSED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_NAME", "STORE_NAME", "DELETE_NAME",
                     "LOAD_LOCALS", "SETUP_ANNOTATIONS", "PRINT_EXPR", "IMPORT_STAR"), ("MP404", "code of a class body or module")),
    "LOAD_BUILD_CLASS": ("MP404", "a class definition"),
    "CALL_INTRINSIC_2": ("MP404", "a type parameter"),
    **dict.fromkeys(("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "END_ASYNC_FOR", "BEFORE_ASYNC_WITH", "ASYNC_GEN_WRAP"),
                    ("MP402", "asynchronous code")),
    **dict.fromkeys(("CHECK_EG_MATCH", "PREP_RERAISE_STAR"), ("MP406", "an exception group (except*)")),
}


@op(*REFUSED)
def refuse(tx, instr) -> None:
    code, what = REFUSED[instr.op]
    unsupported(code, f"{what} ({instr.op})")
