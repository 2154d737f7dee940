"""Boxes of a YOLO detector of random weights, by ultralytics from an .onnx file."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from ultralytics import YOLO

y, x = np.mgrid[0:160, 0:160]
picture = np.stack([x, y, (x + y) % 256], -1).astype(np.uint8)
with tempfile.TemporaryDirectory() as folder:
    torch.manual_seed(0)
    model = YOLO("yolov8n.yaml")
    model.save(str(Path(folder, "tiny.pt")))
    path = YOLO(str(Path(folder, "tiny.pt"))).export(format="onnx", imgsz=160, simplify=False)
    raw = YOLO(path, task="detect")
    result = raw.predict(picture, imgsz=160, conf=1e-6, iou=0.9, max_det=20, device="cpu", verbose=False)[0]
    np.savez(sys.argv[1], boxes=result.boxes.xyxy.cpu().numpy(), scores=result.boxes.conf.cpu().numpy())
