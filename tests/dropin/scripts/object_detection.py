"""Detect objects: letterbox, a detector with boxes and scores, filtering by score, boxes in the picture's pixels."""

import sys

import numpy as np
import onnxruntime
from PIL import Image


class Detector:
    def __init__(self, path, confidence=0.3):
        self.confidence = confidence
        self.session = onnxruntime.InferenceSession(path, providers=onnxruntime.get_available_providers())
        model_inputs = self.session.get_inputs()
        self.input_names = [i.name for i in model_inputs]
        self.height, self.width = model_inputs[0].shape[2:]
        self.output_names = [o.name for o in self.session.get_outputs()]

    def __call__(self, image):
        tensor = self.prepare(image)
        outputs = self.session.run(self.output_names, {self.input_names[0]: tensor})
        return self.process(*outputs)

    def prepare(self, image):
        self.scale = min(self.width / image.width, self.height / image.height)
        size = round(image.width * self.scale), round(image.height * self.scale)
        canvas = np.full((self.height, self.width, 3), 114, np.uint8)
        canvas[: size[1], : size[0]] = np.asarray(image.resize(size))
        return (canvas.transpose(2, 0, 1)[np.newaxis] / 255.0).astype(np.float32)

    def process(self, boxes, scores):
        boxes, scores = np.squeeze(boxes), np.squeeze(scores)
        keep = np.max(scores, axis=1) > self.confidence
        boxes, scores = boxes[keep], scores[keep]
        return boxes / self.scale, np.max(scores, axis=1), np.argmax(scores, axis=1)


def main(model_path, image_path):
    detector = Detector(model_path)
    boxes, scores, classes = detector(Image.open(image_path).convert("RGB"))
    print(len(boxes), "objects")
    for box, score, number in sorted(zip(boxes, scores, classes, strict=True), key=lambda d: -d[1])[:3]:
        print(f"class {number} at {np.round(box, 1).tolist()}: {score:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
