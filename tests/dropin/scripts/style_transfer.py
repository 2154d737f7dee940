"""Redraw a picture: a fully convolutional model of open sizes, fixed by an override, with profiling and errors."""

import json
import os
import sys

import numpy as np
import onnxruntime as rt
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from PIL import Image


def main(model_path, image_path, out_folder):
    options = rt.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 1)
    options.enable_profiling = True
    options.profile_file_prefix = os.path.join(out_folder, "style")
    sess = rt.InferenceSession(model_path, options, ["CPUExecutionProvider"])

    image = Image.open(image_path).convert("RGB")
    x = np.array(image).astype("float32")
    x = np.expand_dims(np.transpose(x, [2, 0, 1]), axis=0)
    input_name = sess.get_inputs()[0].name
    label_name = sess.get_outputs()[0].name
    print(sess.get_inputs()[0].shape, sess.get_inputs()[0].type)

    result = sess.run([label_name], {input_name: x})[0][0]
    picture = Image.fromarray(np.clip(result, 0, 255).transpose(1, 2, 0).astype("uint8"))
    print(picture.size, int(np.asarray(picture, dtype=np.int64).sum()) // 1000)

    try:
        sess.run([label_name], {input_name: np.concatenate([x, x])})
    except InvalidArgument:
        print("one picture at a time")
    try:
        sess.run([label_name], {"picture": x})
    except ValueError:
        print("an input is missing")

    profile = sess.end_profiling()
    with open(profile) as f:
        events = json.load(f)
    print(len([e for e in events if e["name"] == "model_run"]), "runs recorded")


if __name__ == "__main__":
    main(*sys.argv[1:])
