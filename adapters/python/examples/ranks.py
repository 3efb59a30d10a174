"""Compares checkpoints of ranks by torch's own writer, by `torch.save`, and by this package.

Usage: torchrun --standalone --nproc-per-node=2 ranks.py DIRECTORY [GIB [ROUNDS]]

The ranks share a state of GIB (4), in 200 tensors. Each save is durable when it ends, and replaces
the one before: `FileSystemWriter` and `torch.save` write anew over the files of the one before.
"""

import os
import random
import shutil
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from forebay.torch import Writer
from paired import compare

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
RANK, RANKS = dist.get_rank(), dist.get_world_size()
DIRECTORY = os.path.join(sys.argv[1], "ranks")
GIB = float(sys.argv[2]) if len(sys.argv) > 2 else 4
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
LENGTH = int(GIB * 2**30) // 200 // 4
state = {f"{RANK} {index}": torch.full((LENGTH,), index, dtype=torch.int32)
         for index in range(200 // RANKS)}


def torch_save():
    with open(os.path.join(DIRECTORY, f"{RANK}.pt"), "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def seconds(save):
    if RANK == 0:
        os.sync()
    dist.barrier()
    start = time.perf_counter()
    save()
    dist.barrier()
    return time.perf_counter() - start


WAYS = {
    "FileSystemWriter": lambda: dcp.save(state, storage_writer=dcp.FileSystemWriter(
        os.path.join(DIRECTORY, "theirs"))),
    "torch.save": torch_save,
    "forebay.torch.Writer": lambda: dcp.save(state, storage_writer=Writer(
        os.path.join(DIRECTORY, "ours"))),
}

random.seed(1)                      # all ranks take the same order
os.makedirs(DIRECTORY, exist_ok=True)
if RANK != 0:
    sys.stdout = open(os.devnull, "w")
try:
    compare({name: lambda save=save: seconds(save) for name, save in WAYS.items()}, ROUNDS, "s")
finally:
    dist.barrier()
    if RANK == 0:
        shutil.rmtree(DIRECTORY)
    dist.destroy_process_group()
