"""Compares writes of 1 MiB to a file of an engine with those to a plain file.

Usage: writes.py DIRECTORY [ROUNDS]

Each round writes 512 MiB in both ways, in turns of who is first, and syncs once at the end. Prints
the means, and the geometric mean of the ratios with the smallest and the largest.
"""

import math
import os
import sys
import time

import forebay

PIECE = bytes(range(256)) * 4096
PIECES = 512


def plain(path):
    with open(path, "wb", buffering=0) as file:
        for _ in range(PIECES):
            file.write(PIECE)
        os.fsync(file.fileno())


def ours(path):
    with engine.open(path, "wb") as file:
        for _ in range(PIECES):
            file.write(PIECE)
        file.sync_all()


def rate(write):
    path = os.path.join(directory, "writes")
    start = time.perf_counter()
    write(path)
    seconds = time.perf_counter() - start
    os.remove(path)
    return PIECES / seconds


directory = sys.argv[1]
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
with forebay.Engine() as engine:
    rates = []
    for number in range(rounds):
        order = [plain, ours] if number % 2 == 0 else [ours, plain]
        done = {write: rate(write) for write in order}
        rates.append((done[plain], done[ours]))
ratios = [ours / plain for plain, ours in rates]
mean = math.exp(sum(map(math.log, ratios)) / rounds)
means = [sum(column) / rounds for column in zip(*rates)]
print(f"plain {means[0]:.0f} MiB/s, forebay {means[1]:.0f} MiB/s, "
      f"ratio {mean:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
