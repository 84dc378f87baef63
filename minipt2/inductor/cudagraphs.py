"""CUDA graphs: what a compiled graph launches is recorded once, and replayed with one call (mode ``reduce-overhead``).

In: the function of a compiled graph. Out: one that behaves the same. Called by ``load``. A recording works on fixed addresses: inputs that stay
where they are (parameters, and what other recordings made) are read in place, the others are copied to its own buffers; results lie where the
recording writes them. One whose earlier results somebody still holds is not replayed: another one is made, up to ``MOST_RECORDINGS``. (What a
training step's forward shows the user is copied instead: a loss that is still held in the next step would double the memory for activations.)

Recordings of a stream share a pool of memory (``recorder``). Intermediates overlap; what a forward saves is overwritten by its backward's once
that has read it, so that a training step needs no more than without recordings. Before a replay it is looked whether anybody holds what lies where
it writes (the user's program may run recordings in another order than the first time); if so, a recording in a pool of its own takes over.
The reason for every call that is not replayed is told as a ``cudagraphs`` artifact. Upstream: ``torch._inductor.cudagraph_trees``.
"""
from __future__ import annotations

import bisect
import sys
import threading
import weakref
from collections import Counter, OrderedDict
from typing import Any, Callable, Hashable, Sequence

import torch

from .. import trace
from ..exercise import exercise
from .recorder import Compiled, NotRecorded, Refused, Recorder, Span, Take, flat, recorder_of, stream
from .runtime import Look, look

MOST_RECORDINGS = 4
"""Recordings of one graph for the same sizes: calls whose results live at the same time, or that read parameters at other addresses."""
MOST_SIZES = 16
"""Tuples of sizes of one graph that are recorded at a time."""
FEW_REPLAYS, MOST_PATIENCE, MOST_MET = 8, 256, 1024
"""Replays by which a recording has not yet paid for itself; the most often that sizes must be met before they are recorded; tuples counted."""

_results: dict[int, int] = {}
"""Address of a storage that a recording's results lie in -> how many recordings say so."""
_recordings: "weakref.WeakSet[Recording]" = weakref.WeakSet()
_leaving: "list[Recording]" = []
"""Those that nobody will replay, while somebody holds what they saved in memory that the pool counts as free."""
_in_turn = threading.RLock()
"""Held while a recording is chosen, made or replayed: what one copies to its buffers and from its results another may write over."""


class Recording:
    """One recorded run. ``fixed``: (position, address) of inputs read in place; ``buffers``: (position, place) of the others."""

    def __init__(self, fn: Compiled, args: list, static: frozenset[int], written: frozenset[int], shown: int, recorder: Recorder,
                 looks: Sequence[Look] = (), apart: bool = False):
        self.stream, self.shown, self.recorder, self.apart = stream(), shown, recorder, apart
        self.handed_over = False
        """Whether what it saves lies in memory that the pool counts as free."""
        self.copied = shown > 0
        """Whether the caller gets copies of results (of the first ones, where others are saved)."""
        tensors = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        in_place = [i for i in tensors if i in static or args[i].untyped_storage().data_ptr() in _results]
        moving = [i for i in tensors if i not in in_place]
        if more := written.difference(in_place):
            raise NotRecorded(f"it writes into input {min(more)}, which lies elsewhere at each call")
        self.fixed = [(i, args[i].data_ptr()) for i in in_place]
        inputs: list[Any] = [None] * len(args)
        self.lenders = {} if apart or not recorder.shares else _take_over(args, inputs, recorder)
        for i, x in enumerate(inputs):
            if x is None:
                inputs[i] = args[i]
        x = None
        self.replay, self.results, self.buffers, self.touched = recorder.record(fn, inputs, moving, None if shown or self.lenders else looks, apart)
        self._let_go()
        self.fresh = [k for k, (r, i) in enumerate(self.results) if i is None and isinstance(r, torch.Tensor) and (k < shown or not shown)]
        self._keep()
        self.watched: list[weakref.ref[Recording]] = []
        _leaving[:] = [r for r in _leaving if not r.free()]
        for other in list(_recordings):
            self.watch(other)
            other.watch(self)
        _recordings.add(self)
        for start, _ in self.spans:
            _results[start] = _results.get(start, 0) + 1
        weakref.finalize(self, _forget, [start for start, _ in self.spans]).atexit = False

    def _let_go(self) -> None:
        """What is copied for the caller right after each replay needs no memory of its own until the next."""
        saved = {r.untyped_storage()._cdata for r, _ in self.results[self.shown:] if isinstance(r, torch.Tensor)}
        for k, (r, _) in enumerate(self.results[:self.shown]):
            if isinstance(r, torch.Tensor) and r.untyped_storage()._cdata not in saved:
                self.results[k] = self.recorder.alias(r), None

    def move_out(self) -> None:
        """Results that somebody holds go to other memory, and with them all tensors over them; from now on the caller gets copies. For gradients:
        in memory that a backward took over they cost nothing, unless they are held while the next forward runs."""
        held = {cdata for cdata, before in zip(self.kept, self.held) if _holders(cdata) != before}
        storages = {r.untyped_storage()._cdata: r.untyped_storage() for r, _ in self.results if isinstance(r, torch.Tensor)}
        self.results = [(self.recorder.alias(r), None) if isinstance(r, torch.Tensor) else (r, i) for r, i in self.results]
        for cdata in held:
            if storages[cdata].nbytes():
                self.recorder.move(storages[cdata])
        self.copied = True
        self._keep()

    def _keep(self) -> None:
        """Note what is lent, and how many hold it now, when nobody does."""
        lent = {r.untyped_storage()._cdata: r.untyped_storage()
                for r, _ in ([] if self.copied and not self.shown else self.results[self.shown:]) if isinstance(r, torch.Tensor)}
        self.kept = list(lent)
        self.spans = [(s.data_ptr(), s.data_ptr() + s.nbytes()) for s in lent.values()]
        del lent
        self.held = self._holders()

    def _holders(self) -> list[int]:
        """How many hold each storage that is lent, and each saved tensor (a hook on saved tensors may hold just the object)."""
        saved = [r for r, _ in self.results[self.shown:] if isinstance(r, torch.Tensor)] if self.shown else []
        return [_holders(c) for c in self.kept] + [r._use_count() for r in saved] + [sys.getrefcount(r) for r in saved]

    @exercise("7.4")
    def fits(self, args: Sequence[Any]) -> bool:
        """Whether the inputs that are read in place lie where they lay when it was recorded."""
        # >>> 7.4
        return all([args[i].data_ptr() == address for i, address in self.fixed])
        # <<< 7.4

    def free(self) -> bool:
        """Whether nobody holds results of the last run, or only such as can be moved."""
        if self._holders() != self.held:
            if self.shown or not self.lenders or self.stream != stream():
                return False
            self.move_out()
        return True

    def watch(self, other: "Recording") -> None:
        """Take note if some of ``other``'s results lie where a replay of this recording writes."""
        if any(_meets(span, self.touched) for span in other.spans):
            self.watched = [ref for ref in self.watched if ref() is not None] + [weakref.ref(other)]

    def safe(self) -> bool:
        """Whether a replay writes over nothing that somebody holds: other recordings' results. (The call itself holds those that it takes over.)
        Results that are not saved for a backward are moved out of its way."""
        for other in [other for ref in self.watched if (other := ref()) is not None]:
            if other._holders() != self.lenders.get(other, other.held):
                if other.shown:
                    return False
                other.move_out()
        return True

    @exercise("7.4")
    def run(self, args: list) -> list:
        """Replay with the inputs ``args``, which are let go. What the caller sees are new tensors: copies of the results that are ``shown``
        where others are saved, else over the recording's memory. What is saved is lent as it is."""
        # >>> 7.4
        if self.buffers:
            _copy_all([buffer for _, buffer in self.buffers], [args[i] for i, _ in self.buffers])
        self.replay()
        results = [r if i is None else args[i] for r, i in self.results]
        if self.copied:
            shown = [results[k] for k in self.fresh]
            copies = [torch.empty_strided(r.shape, r.stride(), dtype=r.dtype, device=r.device) for r in shown]
            _copy_all(copies, shown)
        else:
            copies = [results[k].detach() for k in self.fresh]
        for k, copy in zip(self.fresh, copies):
            results[k] = copy
        args.clear()
        return results
        # <<< 7.4


def _take_over(args: list, inputs: list, recorder: Recorder) -> "weakref.WeakKeyDictionary[Recording, list[int]]":
    """Move saved tensors that only this call holds to ``inputs``: their memory is free after their last use. Their own recording, and ``args``,
    have tensors over that memory from now on which do not own it. Returns, by recording, how many hold what it lends while the call has it."""
    lenders: weakref.WeakKeyDictionary[Recording, list[int]] = weakref.WeakKeyDictionary()
    for lender in [r for r in _recordings if r.recorder is recorder and r.shown and not r.apart and not r.handed_over]:
        saved = [(k, id(r), r.untyped_storage()._cdata) for k, (r, _) in enumerate(lender.results) if k >= lender.shown and isinstance(r, torch.Tensor)]
        now, places = lender._holders(), {r: i for i, r in enumerate(map(id, args))}
        by_call = [*[0] * (len(now) - len(saved)), *[int(r in places) for _, r, _ in saved]]
        uses = Counter(r.untyped_storage()._cdata for r, _ in lender.results if isinstance(r, torch.Tensor))
        moved = [(k, places[r]) for k, r, storage in saved if r in places and uses[storage] == 1]
        if not moved or now != [a + b for a, b in zip(lender.held, by_call)]:
            continue
        for k, i in moved:
            inputs[i], args[i] = args[i], None
            lender.results[k] = recorder.alias(inputs[i]), None
        lender.handed_over = True
        lender._keep()
        for k, i in moved:
            args[i] = lender.results[k][0]
        lenders[lender] = [a + b for a, b in zip(lender.held, by_call)]
    return lenders


def _exposed(recorder: Recorder) -> bool:
    """Whether somebody holds what lies in memory that the pool counts as free: nothing can be recorded there now."""
    return any(r.recorder is recorder and r.handed_over and not r.free() for r in [*_recordings])


def _meets(span: Span, spans: Sequence[Span]) -> bool:
    """Whether a stretch of memory has bytes in common with one of ``spans``, which are in order."""
    at = bisect.bisect(spans, (span[1], 0)) - 1
    return at >= 0 and spans[at][1] > span[0] and span[1] > span[0]


class Room:
    """Which tuples of sizes are recorded: at most ``MOST_SIZES`` at a time. Where there is no room, a new one waits until it was met ``patience``
    times; then the one that was used longest ago goes. If that one was hardly replayed (a cache that grows with each token comes by sizes
    once a text), patience doubles, so that recording never costs more than it brings; if it was, patience is short again.
    """

    def __init__(self) -> None:
        self.recordings: OrderedDict[Hashable, list[Recording]] = OrderedDict()
        self.replays: Counter[Hashable] = Counter()
        self.met: OrderedDict[Hashable, int] = OrderedDict()
        self.patience = 2

    def used(self, sizes: Hashable) -> None:
        self.recordings.move_to_end(sizes)
        self.replays[sizes] += 1

    def make(self, sizes: Hashable) -> None:
        """Room for recordings for ``sizes``. Raises NotRecorded."""
        if len(self.recordings) >= MOST_SIZES:
            self.met[sizes] = times = self.met.pop(sizes, 0) + 1
            if len(self.met) > MOST_MET:
                self.met.popitem(last=False)
            if times < self.patience:
                raise NotRecorded(f"{MOST_SIZES} other tuples of sizes are recorded, and {sizes} was met {times} of {self.patience} times")
            oldest, dropped = self.recordings.popitem(last=False)
            _leaving.extend(r for r in dropped if r.handed_over and not r.free())
            replays = self.replays.pop(oldest, 0)
            if dropped:
                self.patience = min(2 * self.patience, MOST_PATIENCE) if replays < FEW_REPLAYS else 2
            del self.met[sizes]
        self.recordings[sizes] = []


class Replayed:
    """``fn(args: list) -> list``, recorded at the second call for each tuple of sizes (integers among ``args``; ``Room`` says how many of them)
    and replayed from then on.

    static: positions of parameters and buffers. written: of inputs that ``fn`` writes into. shown: how many results, the first ones, are
    copied for the caller. name: for the log. record: who records, or ``record(fn, inputs) -> (replay, results)``. check: called before each replay, raises
    what kernels of earlier calls found (a run that is not replayed checks by itself).
    """

    def __init__(self, fn: Compiled, static: Sequence[int], written: Sequence[int], shown: int, name: str, record: Take | Recorder | None = None,
                 check: Callable[[], None] = lambda: None):
        self.fn, self.static, self.written, self.shown = fn, frozenset(static), frozenset(written), shown
        self.recorder = record if record is None or isinstance(record, Recorder) else Recorder(record)
        self.name, self.check = name, check
        self.room = Room()
        self.recordings = self.room.recordings
        self.looks: dict[Hashable, list[Look]] = {}
        """What a first call, which is not recorded, returned."""
        self.refusals: dict[Hashable, tuple[str, int, int]] = {}
        """By sizes: why recording failed, calls until the next attempt, and how many they were."""
        self.numbers: list[int] | None = None
        self.lock = threading.Lock()

    def __call__(self, args: list) -> list:
        self.check()
        if not self.lock.acquire(blocking=False):
            return self.plainly(args, "another thread is in it")
        try:
            with _in_turn:
                if self.refusals:
                    self.remember(args)
                recording = self.choose(args)
                if recording is not None:
                    return recording.run(args)
                sizes = self.sizes(args)
        except Refused as reason:
            _, _, waited = self.refusals.get(self.sizes(args), ("", 0, 1))
            self.refusals[self.sizes(args)] = str(reason), 2 * waited, min(2 * waited, MOST_PATIENCE)
            return self.plainly(args, str(reason))
        except NotRecorded as reason:
            return self.plainly(args, str(reason))
        finally:
            self.lock.release()
        results = self.fn(args)
        for gone in [s for s in list(self.looks) if s not in self.recordings]:
            self.looks.pop(gone, None)
        self.looks[sizes] = [look(r) for r in results if isinstance(r, torch.Tensor) and r.layout is torch.strided]
        return results

    def sizes(self, args: Sequence[Any]) -> tuple:
        """The numbers among ``args``: in the same places at each call."""
        if self.numbers is None:
            self.numbers = [i for i, a in enumerate(args) if not isinstance(a, torch.Tensor)]
        return tuple([args[i] for i in self.numbers])

    def remember(self, args: Sequence[Any]) -> None:
        """Raises NotRecorded where recording failed, and it is not yet time to try again: what cannot be recorded should not cost an attempt at
        each call, but memory that lacked may have come back."""
        reason, calls, waited = self.refusals.get(self.sizes(args), ("", 0, 0))
        if calls > 1:
            self.refusals[self.sizes(args)] = reason, calls - 1, waited
            raise NotRecorded(reason)

    def plainly(self, args: list, reason: str) -> list:
        trace.count("cudagraph_skips")
        trace.artifact("cudagraphs", self.name, reason)
        return self.fn(args)

    @exercise("7.4")
    def choose(self, args: list) -> Recording | None:
        """A recording for these inputs; None at the first call, in which kernels are loaded and libraries make their workspaces."""
        # >>> 7.4
        sizes = self.sizes(args)
        family = self.recordings.get(sizes)
        if family is None:
            self.room.make(sizes)
            return None
        self.room.used(sizes)
        apart = False
        for recording in family:
            if recording.fits(args) and recording.free():
                if recording.stream != stream():
                    raise NotRecorded("it was recorded for another stream")
                if recording.safe():
                    return recording
                apart = True
        if len(family) >= MOST_RECORDINGS:
            raise NotRecorded(f"results of {MOST_RECORDINGS} earlier calls are still held, or parameters moved as often")
        recorder = self.recorder or recorder_of(args)
        try:
            family.append(Recording(self.fn, args, self.static, self.written, self.shown, recorder, self.looks.get(sizes, ()),
                                    apart or _exposed(recorder)))
        except RuntimeError as error:
            raise Refused(f"it cannot be recorded: {error}") from error
        trace.count("cudagraphs")
        return family[-1]
        # <<< 7.4


LARGE = 1 << 24
"""Bytes from which on a copy alone is faster than its share of one for many tensors (twice as fast, of 200 MB on an H200)."""


def _copy_all(into: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    """One kernel for all small tensors of a dtype: torch copies one by one where a list mixes them."""
    kinds: dict[tuple[torch.dtype, torch.dtype], list[int]] = {}
    for k, (a, b) in enumerate(zip(into, values)):
        if 0 in a.stride():
            flat(a).copy_(flat(b))
        elif a.nbytes >= LARGE:
            a.copy_(b)
        else:
            kinds.setdefault((a.dtype, b.dtype), []).append(k)
    for places in kinds.values():
        torch._foreach_copy_([into[k] for k in places], [values[k] for k in places])


def _holders(cdata: int) -> int:
    return torch._C._storage_Use_Count(cdata)


def _forget(addresses: list[int]) -> None:
    for address in addresses:
        _results[address] -= 1
        if not _results[address]:
            del _results[address]
