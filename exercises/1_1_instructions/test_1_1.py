import dis
import types

import torch

import minipt2
from minipt2.course.checks import same
from minipt2.dynamo.bytecode import assemble, decode
from minipt2.dynamo.bytecode.decode import _units


def looping(xs, limit=10):
    total = 0
    for x in xs:
        if not isinstance(x, (dict, str)) and x > limit and x not in (3, 4):
            continue
        try:
            total += x["a"] if isinstance(x, dict) else x
        except (KeyError, TypeError) as error:
            total -= len(str(error))
        finally:
            total += 1
    return [total, *[y * 2 for y in range(total % 5)], f"{total!r:>4}"]


def long_function(n):
    body = "\n".join(f"        x = x * {k}.5 + {k}" for k in range(n))
    made = {}
    exec(f"def f(x, go):\n    for _ in range(2):\n{body}\n        if not go:\n            break\n    return x\n", made)
    return made["f"]


def twin(fn):
    """The function again, its code taken apart and put together."""
    return types.FunctionType(assemble(decode(fn.__code__), fn.__code__), fn.__globals__, fn.__name__, fn.__defaults__)


def test_units_are_what_dis_sees():
    """Offset, opcode and number of each instruction, caches and EXTENDED_ARG apart."""
    for fn in (looping, long_function(200)):
        ours = [(op, number) for _, _, op, number in _units(fn.__code__)]
        theirs = [(i.opcode, i.arg or 0) for i in dis.get_instructions(fn) if i.opname not in ("EXTENDED_ARG", "CACHE")]
        same(ours, theirs)


def test_there_and_back_again():
    """Assembled again it is equal code: it does the same."""
    again = twin(looping)
    for xs in ([1, 2, 30, 4], [{"a": 1}, {}], ["no"], []):
        same(again(xs), looping(xs))


def test_handlers_cover_their_range():
    """Exceptions of a try's first and last instruction are caught, those before and behind it are not."""
    def fn(first, last, behind):
        log = []
        try:
            log.append(first())
            log.append(last())
        except ZeroDivisionError:
            log.append("caught")
        behind()
        return log

    def fail():
        return 1 / 0
    covered = [i for i in decode(fn.__code__) if i.handler is not None]
    first = next(i for i in decode(fn.__code__) if i.op in ("NOP",) or i.op == "LOAD_FAST" and i.arg == "log")
    same(covered[0].line, first.line if first.op == "LOAD_FAST" else first.line + 1, where="line of the first covered instruction")
    tight = compile("try:\n    x\nexcept NameError:\n    y = 1\n", "<s>", "exec")
    names = [i.op for i in decode(tight) if i.handler is not None and i.arg == "x"]
    same(names, ["LOAD_NAME"])
    again = twin(fn)
    same(again(fail, int, int), ["caught"])
    same(again(int, fail, int), [0, "caught"])


def test_long_jumps_and_many_constants():
    """More than 255 constants, and a loop of more than 255 instructions."""
    fn = long_function(400)
    same(twin(fn)(1.0, False), fn(1.0, False))
    backward = [i for i in decode(fn.__code__) if i.target is not None and i.target.offset < i.offset]
    assert backward and all(i.target.op == "FOR_ITER" for i in backward if i.op == "JUMP"), [str(i) for i in backward]


def test_one_listing_on_every_cpython():
    """Canonical names, whichever CPython runs this."""
    def fn(x, y):
        if x and y is not None:
            return max(x, y)
    ops = [i.op for i in decode(fn.__code__) if i.op not in ("RESUME", "NOP")]
    same(ops[:5], ["LOAD_FAST", "POP_JUMP_IF_FALSE", "LOAD_FAST", "POP_JUMP_IF_NONE", "LOAD_GLOBAL"])
    same(sum(op == "CALL" for op in ops), 1)
    assert "PRECALL" not in ops and "TO_BOOL" not in ops and not any("LOAD_FAST_LOAD" in op for op in ops)


def test_captures_a_function():
    """The whole compiler on your decoder."""
    def fn(x, flag):
        for k in range(3):
            x = x + k if flag else x - k
        return [y * 2 for y in (x, x)]
    x = torch.randn(3)
    compiled = minipt2.compile(fn, backend="eager", fullgraph=True)
    for flag in (True, False):
        same(compiled(x, flag), fn(x, flag))
