"""Two processes that train together over gloo."""
import os
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def on_two_ranks(work, *args):
    """What ``work(rank, *args)`` returns on rank 0. Both ranks are spawned, with a process group of their own; an error on either is raised here."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, (work, args, folder), nprocs=2)
        return torch.load(os.path.join(folder, "result"), weights_only=False)


def _rank(rank, work, args, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        result = work(rank, *args)
        if rank == 0:
            torch.save(result, os.path.join(folder, "result"))
        dist.barrier()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        dist.destroy_process_group()
