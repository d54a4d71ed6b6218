"""Trains cfg/shapes.cfg with PyTorch on drawn pictures and writes its weights with this package.

python tools/train_shapes.py [-o pydarknetbn/data/shapes.weights]

Fixed seed; under fifteen minutes on two cores. Needs torch beside the package.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.progress import track
from torch import Tensor
from torch.nn import functional

import pydarknetbn as dn
from shapes import SIZE, Scene, random_scene
from torch_network import TorchNetwork, head_of

CFG = Path(__file__).parent.parent / "cfg" / "shapes.cfg"
SEED, SCENES, STEPS, BATCH, RATE = 2026, 12288, 2400, 48, 4e-3
IGNORE_OVERLAP, SIMILAR = 0.7, 0.5


def tensor_of(scenes: list[Scene]) -> Tensor:
    """(batch, 3, SIZE, SIZE) in 0..1."""
    return torch.from_numpy(np.stack([dn.resize(scene.picture, SIZE, SIZE) for scene in scenes]))


def at_network_size(scene: Scene) -> Scene:
    """The same boxes in pixels of the network's input."""
    return Scene(scene.picture, scene.boxes * np.float32(SIZE / scene.picture.width), scene.classes)


def overlaps(wh: Tensor, anchors: Tensor) -> Tensor:
    """(n, k) intersection over union of sizes at a common centre."""
    common = torch.minimum(wh[:, None], anchors[None]).prod(2)
    return common / (wh.prod(1)[:, None] + anchors.prod(1)[None] - common)


def box_overlap(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of boxes x, y, w, h along the last axis, broadcast."""
    low = torch.maximum(a[..., :2] - a[..., 2:] / 2, b[..., :2] - b[..., 2:] / 2)
    high = torch.minimum(a[..., :2] + a[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2)
    common = (high - low).clamp(min=0).prod(-1)
    return common / (a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - common)


class Assigned(NamedTuple):
    """The objects of a batch that a head is to find: where (image, anchor, row, column), and what."""

    places: tuple[Tensor, Tensor, Tensor, Tensor]
    boxes: Tensor
    classes: Tensor


def assign(layer: dn.Layer, scenes: list[Scene]) -> Assigned:
    """Each object goes to every anchor of a similar size, and at least the most similar, in the cell of its centre.

    More than one, since a neighbour of the best anchor finds the object too and has to know its class.
    """
    image = torch.cat([torch.full((len(scene.classes),), b) for b, scene in enumerate(scenes)])
    boxes = torch.from_numpy(np.concatenate([scene.boxes for scene in scenes]))
    classes = torch.from_numpy(np.concatenate([scene.classes for scene in scenes]))
    similar = overlaps(boxes[:, 2:], torch.tensor(layer.head.anchors))
    taken = (similar > SIMILAR) | (similar == similar.amax(1, keepdim=True))
    chosen, position = taken[:, list(layer.head.mask)].nonzero(as_tuple=True)
    cells = (boxes[:, :2] * torch.tensor([layer.out_shape.w, layer.out_shape.h]) / SIZE).long()
    places = (image[chosen], position, cells[chosen, 1], cells[chosen, 0])
    return Assigned(places, boxes[chosen], classes[chosen])


def head_loss(raw: Tensor, layer: dn.Layer, scenes: list[Scene]) -> Tensor:
    """Overlap, place and size of the boxes, and cross entropy of objectness and classes, summed over a batch."""
    head, found = head_of(raw, layer, SIZE), assign(layer, scenes)
    boxes, truth = head.boxes[found.places], found.boxes
    loss = 3 * (1 - box_overlap(boxes, truth)).sum()
    loss = loss + 2 * ((boxes[:, :2] - truth[:, :2]) / truth[:, 2:]).square().sum()
    loss = loss + (boxes[:, 2:] / truth[:, 2:]).log().square().sum()
    target = functional.one_hot(found.classes, head.classes.shape[-1]).float()
    loss = loss + functional.binary_cross_entropy_with_logits(head.classes[found.places], target, reduction="sum")
    wanted, counted = torch.zeros_like(head.objectness), torch.ones_like(head.objectness)
    with torch.no_grad():
        for b, scene in enumerate(scenes):
            overlap = box_overlap(head.boxes[b][..., None, :], torch.from_numpy(scene.boxes))
            counted[b][overlap.amax(-1) > IGNORE_OVERLAP] = 0
    wanted[found.places] = counted[found.places] = 1
    errors = functional.binary_cross_entropy_with_logits(head.objectness, wanted, reduction="none")
    return loss + (errors * counted).sum()


def train(model: TorchNetwork, scenes: list[Scene]) -> None:
    """Adam with one cycle of the learning rate."""
    pixels = tensor_of(scenes)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS, pct_start=0.15)
    generator = np.random.default_rng(SEED)
    model.train()
    mean = 0.0
    for step in track(range(STEPS), description="training"):
        chosen = generator.integers(0, len(scenes), BATCH)
        raws = model(pixels[chosen])
        batch = [at_network_size(scenes[index]) for index in chosen]
        loss = sum((head_loss(raw, layer, batch) for layer, raw in raws), torch.zeros(())) / BATCH
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        mean = 0.98 * mean + 0.02 * loss.item()
        if step % 200 == 199:
            print(f"step {step + 1}: loss {mean:.3f}", flush=True)


def main() -> None:
    """Draws, trains, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("pydarknetbn/data/shapes.weights"))
    output = parser.parse_args().output
    began = time.perf_counter()
    torch.manual_seed(SEED)
    generator = np.random.default_rng(SEED)
    scenes = [random_scene(generator) for _ in track(range(SCENES), description="drawing")]
    net = dn.load(CFG, dialect="alexeyab", seed=SEED)
    model = TorchNetwork(net)
    train(model, scenes)
    model.give_back(net)
    output.parent.mkdir(parents=True, exist_ok=True)
    net.save(output, header=(0, 2, 5, STEPS * BATCH))
    print(f"{output}: {output.stat().st_size:,} bytes after {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
