"""Runs several ways of the same work in rounds, and compares them by round."""

import math
import random


def compare(ways, rounds, unit):
    """Prints the mean of each way and its ratio to the first one, with its 95 % interval.

    `ways` maps names to functions that return a figure. The order is random in each round. The
    interval is that of the means of drawn rounds, as elsewhere in this project.
    """
    figures = {name: [] for name in ways}
    for _ in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            figures[name].append(ways[name]())
    base = next(iter(ways))
    for name, row in figures.items():
        logs = [math.log(one / other) for one, other in zip(row, figures[base])]
        low, high = interval(logs)
        print(f"{name:<28} {sum(row) / rounds:9.2f} {unit:<6} ratio to {base} "
              f"{math.exp(sum(logs) / rounds):.2f} [{low:.2f}-{high:.2f}]", flush=True)


def interval(logs):
    drawn = random.Random(1)
    means = sorted(sum(drawn.choices(logs, k=len(logs))) / len(logs) for _ in range(10_000))
    return math.exp(means[250]), math.exp(means[-251])
