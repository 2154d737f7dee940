"""Pictures, sound and films as inputs of a model, and its outputs as people look at them.

preprocess.py         conversion of pixels to numbers: presets, files       placement.py   sizes and their inverse
preprocess_choice.py  the conversion a model expects, from its metadata, files beside it, or
first_layer.py, answer_check.py                           its weights and its answers
picture_input.py      a picture as an input's array       recognition.py                     what outputs mean,
                      detections.py, grid_detections.py    boxes among them
results.py            the meanings                        drawing.py                        and how they look
sound.py              .wav files                          video.py                        films and cameras

from opalite.media.drawing import draw
from opalite.media.picture_reader import PictureReader

session = opalite.InferenceSession("detector.onnx")
reader = PictureReader.of(session, "detector.onnx")
given = reader.read("photo.jpg")
outputs = session.run(None, {given.name: given.array})
result = reader.recognize(outputs, given)               # Boxes, Classes, Mask ...; None if unknown
draw(result, given.picture, given.placement).save("found.png")
"""
