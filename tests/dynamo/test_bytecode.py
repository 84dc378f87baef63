"""The bytecode room: lossless round trips on three CPythons, new code from factories, stack sizes, liveness."""
import dis
import os
import pathlib
import subprocess
import sys
import traceback

import pytest

from minipt2.dynamo.bytecode import AssembleError, Instruction, Position, assemble, clone, decode, listing, liveness, ops

SCRIPT = pathlib.Path(__file__).with_name("bytecode_standalone.py")
PYENV = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
STEP = os.environ.get("MINIPT2_TEST_STDLIB_STEP", "250")
"""1 takes the whole standard library (a minute for each CPython)."""
SUITE = ["test_with", "test_patma", "test_coroutines", "test_generators", "test_contextlib", "test_listcomps", "test_fstring",
         "test_exceptions", "test_grammar", "test_scope", "test_super", "test_dictcomps", "test_unpack_ex"]  # fmt: skip


def interpreters():
    here = sys.version_info[:2]
    found = {f"{here[0]}.{here[1]}": sys.executable}
    for minor in (11, 12, 13):
        for path in sorted(PYENV.glob(f"3.{minor}.*/bin/python")):
            found.setdefault(f"3.{minor}", str(path))
    return found


def run(python, *args):
    done = subprocess.run([python, str(SCRIPT), *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


each_python = pytest.mark.parametrize("python", interpreters().values(), ids=interpreters().keys())


@each_python
def test_round_trip_of_the_standard_library(python):
    assert "codes" in run(python, "round-trip", STEP)


@each_python
def test_reassembled_code_passes_cpythons_own_tests(python):
    suite = SUITE if STEP == "1" else SUITE[:2]
    if subprocess.run([python, "-c", "import test.test_with"], capture_output=True).returncode:
        pytest.skip("this CPython comes without its tests")
    assert run(python, "execute", *suite).count("0 fail as compiled") == len(suite)


LISTING = """\
      RESUME                   0
      LOAD_FAST                'a'
      LOAD_FAST                'b'
      COMPARE_OP               '<'
      POP_JUMP_IF_TRUE         L1
      LOAD_FAST                'a'
      LOAD_FAST                'b'
      BINARY_OP                '+='
      STORE_FAST               'a'
L1:   LOAD_FAST                'a'
      RETURN_VALUE
      RESUME                   0
      LOAD_FAST                'f'
      LOAD_METHOD              'go'
      LOAD_FAST                'xs'
      LOAD_FAST                'xs'
      LOAD_CONST               1
      LOAD_CONST               2
      BUILD_SLICE              2
      BINARY_SUBSCR
      CALL_KW                  (2, ('key',))
"""


@each_python
def test_one_golden_listing_on_every_cpython(python):
    text = run(python, "listings")
    assert text.startswith(LISTING)
    assert text == run(sys.executable, "listings")


# ---- new code ----------------------------------------------------------------------------------------------------


def function(code, *names, template=None, **changes):
    """A function of ``names`` that runs ``code``."""
    template = template or (lambda: None).__code__
    assembled = assemble([*ops.prologue(), *code], template, co_varnames=names, co_argcount=len(names), **changes)
    return type(function)(assembled, {"__builtins__": __builtins__})


def test_calls():
    plain = [*ops.callable(ops.load_global("divmod")), *ops.load_fast("a"), *ops.load_fast("b"), *ops.call(2), *ops.return_value()]
    assert function(plain, "a", "b")(7, 2) == (3, 1)
    keyword = [*ops.load_global("sorted", push_null=True), *ops.load_fast("a"), *ops.load_const(True), *ops.call(2, ("reverse",))]
    assert function([*keyword, *ops.return_value()], "a")([1, 3, 2]) == [3, 2, 1]
    below = [*ops.load_global("dict"), *ops.load_fast("a"), *ops.load_fast("b"), *ops.call_function(2, ("x", "y")), *ops.return_value()]
    assert function(below, "a", "b")(1, 2) == {"x": 1, "y": 2}
    method = [*ops.load_fast("a"), *ops.load_method("split"), *ops.load_const(","), *ops.call(1), *ops.return_value()]
    assert function(method, "a")("1,2") == ["1", "2"]
    spread = [*ops.callable(ops.load_fast("f")), *ops.load_fast("a"), *ops.load_fast("k"), *ops.call_function_ex(True), *ops.return_value()]
    assert function(spread, "f", "a", "k")(dict, ([("x", 1)],), {"y": 2}) == {"x": 1, "y": 2}


@pytest.mark.parametrize("depth", range(1, 6))
def test_rotations(depth):
    names = [f"a{k}" for k in range(depth)]
    loads = [i for n in names for i in ops.load_fast(n)]
    rotated = function([*loads, *ops.rotate_down(depth), *ops.build_tuple(depth), *ops.return_value()], *names)
    assert rotated(*range(depth)) == (depth - 1, *range(depth - 1))
    back = function([*loads, *ops.rotate_up(depth), *ops.build_tuple(depth), *ops.return_value()], *names)
    assert back(*range(depth)) == (*range(1, depth), 0)


def test_format_and_slices():
    code = [*ops.load_fast("x"), *ops.load_const(">6"), *ops.format_value(2, with_spec=True), *ops.return_value()]
    assert function(code, "x")("ab") == "  'ab'"
    code = [*ops.load_fast("x"), *ops.load_const(1), *ops.load_const(3), *ops.build_slice(), *ops.binary_subscr(), *ops.return_value()]
    assert function(code, "x")([0, 1, 2, 3]) == [1, 2]


@pytest.mark.parametrize("symbol", ["<", "<=", "==", "!=", ">", ">="])
def test_comparisons_stay_right_when_specialised(symbol):
    compare = function([*ops.load_fast("a"), *ops.load_fast("b"), *ops.compare_op(symbol), *ops.return_value()], "a", "b")
    for a, b in [(1, 2), (2, 2), (3, 2), (1.5, 2.5), (2.5, 2.5), (3.5, 2.5), (float("nan"), 1.0)]:
        for _ in range(40):
            assert compare(a, b) is eval(f"a {symbol} b")


def test_loop_with_backward_conditional_jump():
    top = ops.label()
    code = [
        top, *ops.load_fast("n"), *ops.load_const(3), *ops.binary_op("-"), *ops.store_fast("n"),
        *ops.load_fast("n"), *ops.load_const(0), *ops.compare_op(">"), *ops.jump_if(top, True),
        *ops.load_fast("n"), *ops.return_value(),
    ]  # fmt: skip
    assert function(code, "n")(10) == -2


def test_truth_of_any_value_decides_a_jump():
    end = ops.label()
    code = [*ops.load_fast("x"), *ops.jump_if(end, False), *ops.load_const("yes"), *ops.return_value(), end, *ops.load_const("no"), *ops.return_value()]
    branch = function(code, "x")
    assert [branch(x) for x in ([], [0], 0, "a", None)] == ["no", "yes", "no", "yes", "no"]
    assert function([*ops.load_fast("x"), *ops.unary_not(), *ops.return_value()], "x")([]) is True


def test_for_loop():
    end = ops.end_for()
    (again,) = ops.for_iter(end)
    code = [
        *ops.load_const(0), *ops.store_fast("total"), *ops.load_fast("xs"), *ops.get_iter(), again,
        *ops.load_fast("total"), *ops.binary_op("+"), *ops.store_fast("total"), *ops.jump(again), end,
        *ops.load_fast("total"), *ops.return_value(),
    ]  # fmt: skip
    total = function(code, "xs")
    assert total([1, 2, 3]) == 6 and total(k for k in range(3)) == 3
    assert total.__code__.co_varnames == ("xs", "total")


def test_protected_code_reaches_its_handler():
    handler = ops.push_exc_info()
    body = ops.protect([*ops.load_fast("a"), *ops.load_fast("b"), *ops.binary_op("/"), *ops.return_value()], handler[0], depth=0)
    code = [*body, *handler, *ops.pop_top(), *ops.pop_except(), *ops.load_const("caught"), *ops.return_value()]
    divide = function(code, "a", "b")
    assert divide(6, 3) == 2 and divide(1, 0) == "caught"


def test_closures():
    def outer(x):
        def inner():
            return x
        return inner

    inner = outer(1).__code__
    code = [*ops.prologue(freevars=("x",)), *ops.load_deref("x"), *ops.load_const(1), *ops.binary_op("+"), *ops.return_value()]
    shifted = type(outer)(assemble(code, inner), {}, closure=outer(4).__closure__)
    assert shifted() == 5
    cell = [*ops.prologue(cellvars=("a",)), *ops.load_closure("a"), *ops.return_value()]
    made = type(outer)(assemble(cell, inner, co_varnames=("a",), co_argcount=1, co_cellvars=("a",), co_freevars=()), {})
    assert made(3).cell_contents == 3


def test_many_constants_and_far_jumps():
    end = ops.label()
    filler = [i for k in range(33000) for i in (*ops.load_const(k % 300), *ops.pop_top())]
    code = [*ops.load_fast("x"), *ops.jump_if(end, False), *filler, end, *ops.load_const("end"), *ops.return_value()]
    far = function(code, "x")
    assert far(0) == far(1) == "end"


def test_constants_are_told_apart():
    values = [1, 1.0, True, 0.0, -0.0, (1,), (1.0,), "1", b"1", 1 + 0j]
    code = [*(i for v in values for i in ops.load_const(v)), *ops.build_tuple(len(values)), *ops.return_value()]
    assert repr(function(code)()) == repr(tuple(values))


def test_tracebacks_show_the_position_given():
    code = ops.at([*ops.load_fast("a"), *ops.load_fast("b"), *ops.binary_op("/"), *ops.return_value()], Position(4321, 4321, 8, 13))
    divide = function(code, "a", "b", co_filename="user.py", co_firstlineno=4000)
    with pytest.raises(ZeroDivisionError) as caught:
        divide(1, 0)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno, last.colno) == ("user.py", 4321, 8)


def test_new_instructions_take_over_the_preceding_position():
    def template():
        return 1

    first, *rest = decode(template.__code__)
    code = assemble([first, *ops.load_const(2), *ops.return_value()], template.__code__)
    assert {line for _, _, line in code.co_lines()} == {first.line}


def test_mistakes_are_named():
    with pytest.raises(AssembleError, match="underflow"):
        function([*ops.pop_top(), *ops.load_const(1), *ops.return_value()])
    with pytest.raises(AssembleError, match="isn't in the list"):
        function(ops.jump(ops.label()))
    with pytest.raises(AssembleError, match="falls off"):
        function(ops.load_const(1))
    with pytest.raises(AssembleError, match="twice"):
        function([*(nop := ops.nop()), *nop, *ops.load_const(1), *ops.return_value()])
    top = ops.label()
    with pytest.raises(AssembleError, match="without end"):
        function([top, *ops.load_const(1), *ops.jump(top)])


def test_stack_size_is_what_cpython_computes():
    def deep(a, b):
        with a as f:
            for x in f:
                b[x, (a, b, [x, x, {x: a}])] = f"{x!r} {a:>{b}}"
        return [y for y in a if y]

    assert assemble(decode(deep.__code__), deep.__code__).co_stacksize == deep.__code__.co_stacksize


def test_clone_is_independent():
    def loop(xs):
        for x in xs:
            try:
                print(x)
            except ValueError:
                pass

    original = decode(loop.__code__)
    copies, new = clone(original)
    assert [new[i] for i in original] == copies and not set(original) & set(copies)
    assert all(c.target in copies for c in copies if c.target) and all(c.handler.target in copies for c in copies if c.handler)
    assert listing(copies) == listing(original)
    assert assemble(copies, loop.__code__) == loop.__code__


# ---- liveness ----------------------------------------------------------------------------------------------------


def live_before(function, op, arg):
    instructions = decode(function.__code__)
    at = next(k for k, i in enumerate(instructions) if i.op == op and i.arg == arg)
    return liveness(instructions)[at]


def test_liveness_of_straight_code_and_branches():
    def f(a, b, c):
        x = a + 1
        if b:
            y = x
        else:
            y = c
        marker = 0
        return y

    assert live_before(f, "LOAD_FAST", "a") == {"a", "b", "c"}
    assert live_before(f, "LOAD_FAST", "b") == {"b", "c", "x"}
    assert live_before(f, "STORE_FAST", "marker") == {"y"}


def test_liveness_of_loops_and_handlers():
    def f(xs, k, saved):
        total = 0
        for x in xs:
            try:
                total = total + g(x)
            except ValueError:
                saved.append(k)
        return total

    assert live_before(f, "LOAD_GLOBAL", "g") == {"k", "saved", "total", "x"}
    assert live_before(f, "LOAD_FAST", "xs") == {"k", "saved", "total", "xs"}


def test_liveness_of_cells():
    def f(a, b):
        def g():
            return a
        b = 1
        return g

    assert "a" in live_before(f, "LOAD_CLOSURE", "a")
    assert live_before(f, "STORE_FAST", "b") == {"g"}


def test_every_opcode_has_a_meaning_of_its_number():
    from minipt2.dynamo.bytecode.decode import KINDS

    for name in ("LOAD_CONST", "LOAD_FAST", "LOAD_GLOBAL", "FOR_ITER", "LOAD_DEREF", "COMPARE_OP"):
        assert KINDS[dis.opmap[name]] != "int"
    assert Instruction("NOP") != Instruction("NOP")
