"""A process that compiles Triton kernels for its parent: requests come pickled on stdin, answers go to stdout.

Run as a script, so that neither torch nor the rest of minipt2 is imported: it is ready in half a second. Upstream:
``torch._inductor.compile_worker``.
"""
from __future__ import annotations

import linecache
import os
import pickle
import sys
from typing import Any

HEADER = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"


def compile_kernel(text: str, name: str, signature: tuple[str, ...], aligned: tuple[int, ...], warps: int, stages: int,
                   capability: int) -> tuple[bytes, dict[str, Any]]:
    """Machine code of kernel ``name`` in ``text`` for GPUs of ``capability``, and what its launch needs to know."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    file = f"<minipt2 {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace: dict[str, Any] = {"__name__": "minipt2_kernels"}
    exec(compile(text, file, "exec"), namespace)
    function = namespace[name]
    source = ASTSource(function, dict(zip(function.arg_names, signature)), {}, {(k,): [["tt.divisibility", 16]] for k in aligned})
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32),
                          options=dict(num_warps=warps, num_stages=stages, enable_fp_fusion=True))
    return made.asm["cubin"], dict(name=made.metadata.name, threads=32 * warps, shared=made.metadata.shared)


def main() -> None:
    """Answer requests until the parent closes the pipe."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the compiler says is not an answer
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = compile_kernel(*request)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
