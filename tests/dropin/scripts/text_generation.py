"""Generate text greedily: a recurrent model whose state goes in and out, tokens by int64, run options."""

import sys

import numpy as np
import onnxruntime as ort

ALPHABET = "abcdefghijklmnopqrstuvwxyz "


def main(model_path, prompt):
    ort.set_seed(0)
    with open(model_path, "rb") as f:
        session = ort.InferenceSession(f.read(), providers=[("CPUExecutionProvider", {"use_arena": True})])
    run_options = ort.RunOptions()
    run_options.log_severity_level = 3
    run_options.logid = "generate"

    outputs = [o.name for o in session.get_outputs()]
    hidden = session.get_inputs()[1].shape[-1]
    state = np.zeros((1, 1, hidden), dtype=np.float32)
    text = prompt
    logits = None
    for letter in prompt:
        token = np.array([[ALPHABET.index(letter)]], dtype=np.int64)
        logits, state = session.run(outputs, {"token": token, "state": state}, run_options)
    for _ in range(12):
        number = int(np.argmax(logits[0, -1]))
        text += ALPHABET[number]
        logits, state = session.run(outputs, {"token": [[number]], "state": state}, run_options)
    print(text)
    print(np.round(np.abs(state).mean(), 4))


if __name__ == "__main__":
    main(*sys.argv[1:])
