"""Mean average precision of the shipped network at IoU .5, through this package and through PyTorch.

python tools/evaluate_shapes.py [WEIGHTS]

1,000 held-out pictures from a seed of their own. Needs torch and pycocotools beside the package.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from rich.progress import track

import pydarknetbn as dn
from shapes import NAMES, SIZE, Scene, random_scene

CFG = Path(__file__).parent.parent / "cfg" / "shapes.cfg"
SEED, SCENES, THRESH, NMS = 7, 1000, 0.01, 0.45


def mean_average_precision(scenes: list[Scene], found: list[list[dict[str, object]]]) -> float:
    """COCO's mAP at IoU .5."""
    truth = COCO()
    truth.dataset = {
        "images": [{"id": number} for number in range(len(scenes))],
        "categories": [{"id": number, "name": name} for number, name in enumerate(NAMES)],
        "annotations": [
            {"image_id": number, "category_id": int(kind), "bbox": corner(box), "area": float(box[2] * box[3]), "iscrowd": 0}
            for number, scene in enumerate(scenes)
            for box, kind in zip(scene.boxes, scene.classes, strict=True)
        ],
    }
    for number, annotation in enumerate(truth.dataset["annotations"], start=1):
        annotation["id"] = number
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        results = truth.loadRes([row for rows in found for row in rows])
        evaluation = COCOeval(truth, results, "bbox")
        evaluation.params.iouThrs = np.array([0.5])
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][0, :, :, 0, -1]
    return float(precision[precision > -1].mean())


def corner(box: np.ndarray) -> list[float]:
    """Left, top, width, height of a box given by its centre."""
    x, y, w, h = (float(side) for side in box)
    return [x - w / 2, y - h / 2, w, h]


def rows_of(detections: dn.Detections, number: int) -> list[dict[str, object]]:
    """One row for each class over the threshold of each box, as COCO takes them."""
    return [
        {"image_id": number, "category_id": kind, "bbox": corner(row["box"]), "score": float(row["probs"][kind])}
        for row in detections
        for kind in np.flatnonzero(row["probs"])
    ]


def by_package(net: dn.Network, scenes: list[Scene]) -> list[list[dict[str, object]]]:
    """Detections of `Network.detect`."""
    found = []
    for number, scene in enumerate(track(scenes, description="this package")):
        found.append(rows_of(net.detect(scene.picture, thresh=THRESH, nms=NMS), number))
    return found


def by_torch(net: dn.Network, scenes: list[Scene]) -> list[list[dict[str, object]]]:
    """The same network run and decoded in PyTorch; only non-maximum suppression is shared."""
    import torch  # noqa: PLC0415 the other figure needs none

    from torch_network import TorchNetwork, head_of  # noqa: PLC0415

    model = TorchNetwork(net).eval()
    found = []
    for number, scene in enumerate(track(scenes, description="PyTorch")):
        pixels = torch.from_numpy(dn.resize(scene.picture, SIZE, SIZE))[None]
        with torch.no_grad():
            heads = [head_of(raw, layer, SIZE) for layer, raw in model(pixels)]
        boxes = torch.cat([head.boxes.reshape(-1, 4) for head in heads]) * (scene.picture.width / SIZE)
        objectness = torch.cat([head.objectness.reshape(-1) for head in heads]).sigmoid()
        classes = torch.cat([head.classes.reshape(-1, len(NAMES)) for head in heads]).sigmoid()
        kept = objectness > THRESH
        detections = np.zeros(int(kept.sum()), dn.boxes.detections_dtype(len(NAMES))).view(dn.Detections)
        probs = objectness[kept, None] * classes[kept]
        detections["box"], detections["objectness"] = boxes[kept].numpy(), objectness[kept].numpy()
        detections["probs"] = torch.where(probs > THRESH, probs, 0).numpy()
        found.append(rows_of(dn.nms(detections, kind="sort", thresh=NMS), number))
    return found


def main() -> None:
    """Prints both figures."""
    weights = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("pydarknetbn/data/shapes.weights")
    net = dn.load(CFG, weights)
    generator = np.random.default_rng(SEED)
    scenes = [random_scene(generator) for _ in range(SCENES)]
    ours, theirs = (mean_average_precision(scenes, run(net, scenes)) for run in (by_package, by_torch))
    print(f"mAP at IoU .5 over {SCENES} held-out pictures: {ours:.4f} through this package, {theirs:.4f} through PyTorch")


if __name__ == "__main__":
    main()
