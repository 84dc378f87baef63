"""Checks of the bytecode room that any CPython runs, with or without torch: ``python bytecode_standalone.py COMMAND …``.

``round-trip STEP`` disassembles and assembles every STEP-th file of the standard library; ``execute MODULE…`` runs test modules
of CPython's own suite from code that was taken apart and put together with a NOP before every instruction.
"""
import glob
import importlib
import importlib.util
import os
import sys
import types
import unittest
import warnings

ROOT = os.path.join(os.path.dirname(__file__), *[os.pardir] * 2)


def load_bytecode():
    """The room alone: the packages it lies in stand empty, since ``import minipt2`` would import torch."""
    for name in ("minipt2", "minipt2.dynamo"):
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [os.path.join(ROOT, *name.split("."))]
    return importlib.import_module("minipt2.dynamo.bytecode")


bytecode = load_bytecode()
TABLES = ("co_code", "co_linetable", "co_exceptiontable", "co_names", "co_varnames", "co_nlocals", "co_freevars", "co_cellvars")


def all_codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from all_codes(constant)


def standard_library(step):
    folder = os.path.dirname(os.__file__)
    files = sorted(glob.glob(folder + "/**/*.py", recursive=True))
    for path in [f for f in files if "site-packages" not in f][::step]:
        with open(path, "rb") as file:
            text = file.read()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = compile(text, path, "exec")
        except (SyntaxError, ValueError):
            continue  # files that are wrong on purpose
        yield from ((path, c) for c in all_codes(code))


def round_trip(step):
    """Prints how many codes were compared; raises on the first difference. Stacks may become smaller (dead code) but not larger."""
    count = smaller = 0
    for path, code in standard_library(step):
        again = bytecode.assemble(bytecode.decode(code), code)
        where = f"{path}:{code.co_firstlineno} {code.co_name}"
        for table in TABLES:
            assert getattr(again, table) == getattr(code, table), f"{table} differs: {where}"
        assert all(a is b for a, b in zip(again.co_consts, code.co_consts, strict=True)), where
        assert again == code and again.co_stacksize <= code.co_stacksize, where
        count += 1
        smaller += again.co_stacksize < code.co_stacksize
    assert count and smaller < count / 100
    print(count, "codes")


ADJACENT = ("SEND", "YIELD_VALUE", "RESUME", "END_FOR", "END_SEND", "JUMP_NO_INTERRUPT")
"""CPython looks at what surrounds a suspended ``YIELD_VALUE`` and where a loop ends."""


def stretched(code):
    """The same program from fresh instructions, a NOP before each, with the constants' codes treated alike."""
    instructions, _ = bytecode.clone(bytecode.decode(code))
    out = []
    for instr in instructions:
        if instr.op not in ADJACENT and not (out and out[-1].op == "JUMP_NO_INTERRUPT"):
            out += bytecode.ops.nop()
            out[-1].handler = instr.handler
        out.append(instr)
    constants = tuple(stretched(c) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    for instr in out:
        if instr.op == "LOAD_CONST" and isinstance(instr.arg, types.CodeType):
            instr.arg = constants[instr.index]
    return bytecode.assemble(out, code, co_consts=constants)


def execute(names):
    """CPython's own tests, from stretched code, must pass as they do from the code as compiled."""
    for name in names:
        path = importlib.util.find_spec(f"test.{name}").origin
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec")
        outcomes = []
        for variant in (code, stretched(code)):
            module = types.ModuleType(f"test.{name}")
            module.__file__, module.__package__ = path, "test"
            sys.modules[module.__name__] = module
            exec(variant, module.__dict__)
            result = unittest.TestResult()
            unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
            failed = {str(test) for test, _ in result.failures + result.errors if "TestTracing" not in str(test)}  # counts line events
            outcomes.append((result.testsRun, failed))
        (ran, before), (ran_again, after) = outcomes
        assert ran == ran_again > 0, (name, ran, ran_again)
        assert after <= before, (name, sorted(after - before)[:5])
        print(name, ran, "tests,", len(before), "fail as compiled")


def listings():
    """Canonical listings of functions that every CPython compiles to the same steps."""
    def test(a, b):
        if not a < b:
            a += b
        return a

    def call(f, xs):
        f.go(xs, key=xs[1:2])
        xs[1:2] = f"{len(xs)!r}"
        return len(xs)

    def closure(a, b=2):
        for x in a:
            return lambda y=b: x + y

    for function in (test, call, closure):
        print(bytecode.listing(i for i in bytecode.decode(function.__code__)))


if __name__ == "__main__":
    command, *args = sys.argv[1:]
    if command == "round-trip":
        round_trip(int(args[0]))
    elif command == "execute":
        execute(args)
    else:
        listings()
