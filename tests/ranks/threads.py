"""Ranks that are threads of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def in_threads(ranks: tuple[Any, ...], work: Callable[[Any], Any]) -> list[Any]:
    """What `work` gives each rank, or the exception that it raises there."""
    results: list[Any] = [None] * len(ranks)

    def run(comm: Any) -> None:
        try:
            results[comm.rank] = work(comm)
        except Exception as error:
            results[comm.rank] = error

    threads = [threading.Thread(target=run, args=(comm,)) for comm in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def results_in_threads(ranks: tuple[Any, ...], work: Callable[[Any], Any]) -> list[Any]:
    """What `work` gives each rank; an exception of the first that fails is raised."""
    results = in_threads(ranks, work)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results
