"""The memory plan: what is alive at the same time never overlaps, and dead storage is used again."""
import random
from dataclasses import replace

import torch

from minipt2 import prims as P
from minipt2.inductor.ir import Extern
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import CPU, plan_memory, schedule
from minipt2.inductor.arena import ALIGN
from tests.inductor.execute import check
from tests.inductor.programs import graph_of


def random_program(seed: int):
    def fn(x, w):
        rng, values = random.Random(seed), [x]
        for _ in range(rng.randint(3, 14)):
            a, b = rng.choice(values), rng.choice(values)
            values.append(rng.choice([lambda: P.mm(a, w), lambda: P.add(a, b), lambda: P.exp(P.permute(a, [1, 0])), lambda: P.flip(a, [0]),
                                      lambda: P.mul(a, P.broadcast_in_dim(P.sum(b, [1]), a.shape, [0]))])())
        return tuple(rng.sample(values[1:], k=min(2, len(values) - 1)))
    return fn


def lives(s):
    first, last = {}, {}
    for k, step in enumerate(s.steps):
        for name in step.reads() | step.writes():
            first.setdefault(name, k)
            last[name] = k
    return first, last


def test_lives_that_overlap_have_storage_that_does_not():
    for seed in range(40):
        s = schedule(lower(graph_of(random_program(seed), torch.zeros(16, 16), torch.zeros(16, 16))))
        first, last = lives(s)
        for a, (at, n) in s.plan.items():
            assert at % ALIGN == 0 and at + n <= s.arena_bytes
            for b, (bt, m) in s.plan.items():
                apart = at + n <= bt or bt + m <= at
                together = first[a] <= last[b] and first[b] <= last[a]
                assert a == b or apart or not together or a in (s.inplace.get(b), ) or b in (s.inplace.get(a), )


def test_random_programs_compute_the_same():
    for seed in range(6):
        rng = torch.Generator().manual_seed(seed)
        check(random_program(seed), torch.rand(16, 16, generator=rng) / 16, torch.rand(16, 16, generator=rng) / 16, rtol=1e-4)


def test_outputs_and_inputs_stay_out_of_the_arena():
    s = schedule(lower(graph_of(random_program(3), torch.zeros(16, 16), torch.zeros(16, 16))))
    outside = {o.ref.buffer for o in s.program.outputs} | {i.name for i in s.program.inputs}
    assert not outside & s.plan.keys()


def test_a_long_chain_needs_two_slots():
    def fn(x, w):
        for _ in range(9):
            x = P.mm(P.exp(x), w)
        return x
    s = schedule(lower(graph_of(fn, torch.zeros(32, 32), torch.zeros(32, 32))))
    assert s.arena_bytes <= 2 * 32 * 32 * 4


def test_storage_lives_until_the_last_read_not_the_last_write():
    def fn(x, w):
        h = P.exp(P.permute(x, [1, 0]))
        late = P.mm(h, w)
        for _ in range(3):
            late = P.mm(late, w)
        return P.add(late, P.flip(h, [1]))
    s = schedule(lower(graph_of(fn, torch.zeros(16, 16), torch.zeros(16, 16))))
    first, last = lives(s)
    h = next(n for n in s.plan if first[n] == 0)
    others = [n for n in s.plan if n != h and first[n] < last[h]]
    assert others and all(s.plan[n].offset >= sum(s.plan[h]) or sum(s.plan[n]) <= s.plan[h].offset for n in others)


def test_what_a_view_returning_call_may_share_is_left_alone():
    """An extern call that may return its operand: the operand's storage is not reused while the result lives."""
    s = schedule(lower(graph_of(lambda x: P.exp(P.permute(x, [1, 0])), torch.zeros(16, 16))))
    call = Extern("view", s.layouts[s.program.outputs[0].ref.buffer], torch.ops.aten.view.default, args=())
    from minipt2.inductor.scheduler.memory import _may_alias
    assert _may_alias(call)
    call.target = torch.ops.aten.mm.default
    assert not _may_alias(call)


def test_frees_name_everything_once_and_never_an_output():
    for seed in range(10):
        s = schedule(lower(graph_of(random_program(seed), torch.zeros(16, 16), torch.zeros(16, 16))))
        dead = [n for names in s.frees for n in names]
        outputs = {o.ref.buffer for o in s.program.outputs}
        touched = {n for step in s.steps for n in step.reads() | step.writes()}
        assert len(dead) == len(set(dead)) and set(dead) == touched - outputs
    assert plan_memory(s) == s.plan


def test_large_intermediates_are_tensors_of_their_own_where_the_policy_says_so():
    graph = graph_of(lambda x, w: P.mm(P.mm(P.exp(P.mm(x, w)), w), w), torch.zeros(16, 16), torch.zeros(16, 16))
    planned, alone = (schedule(lower(graph), replace(CPU, alone_from=bound)) for bound in (16 * 16 * 4 + 1, 16 * 16 * 4))
    assert planned.plan and not alone.plan and alone.arena_bytes == 0
