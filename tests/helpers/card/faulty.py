"""Operations that a card refuses or waits for, done on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from helpers.card.simulation import Card

DEVICE = "cuda"


def visit(card: Card) -> Iterator[dict[str, Any]]:
    """Yield what was noticed, by what was done."""
    rows, mask = torch.arange(6.0, device=DEVICE).view(3, 2), torch.tensor([True, False, True], device=DEVICE)
    pinned = torch.arange(3.0).pin_memory()

    def refused(work: Callable[[], Any]) -> str:
        try:
            work()
        except Exception as error:
            return type(error).__name__
        return "nothing"

    def cost(work: Callable[[], Any]) -> dict[str, int]:
        card.reset()
        work()
        return {name: count for name, count in card.costs().items() if name in ("waits", "pageable", "back")}

    yield {
        "index_on_the_cpu": refused(lambda: rows.index_add(0, torch.tensor([0, 1, 1]), rows)),
        "product_of_two_devices": refused(lambda: rows @ torch.ones(2, 2)),
        "item": cost(lambda: rows.sum().item()),
        "tensor_of_a_list": cost(lambda: rows.new_tensor([1.0, 2.0])),
        "mask_as_index": cost(lambda: rows[mask]),
        "pinned_copy": cost(lambda: pinned.to(DEVICE, non_blocking=True)),
    }
