"""Run on bound memory: values, pointers, updates in place, DLPack, outputs kept from run to run."""

import sys

import numpy as np
import onnxruntime as ort


def create_session(model: str) -> ort.InferenceSession:
    providers = ["CPUExecutionProvider"]
    return ort.InferenceSession(model, providers=providers)


def run_with_data_on_the_device(session, x):
    io_binding = session.io_binding()
    x_value = ort.OrtValue.ortvalue_from_numpy(x)
    y_value = ort.OrtValue.ortvalue_from_shape_and_type([x.shape[0], 10], np.float32)
    io_binding.bind_input(
        name="x",
        device_type=x_value.device_name(),
        device_id=0,
        element_type=np.float32,
        shape=x_value.shape(),
        buffer_ptr=x_value.data_ptr(),
    )
    io_binding.bind_ortvalue_output("y", y_value)
    session.run_with_iobinding(io_binding)
    return y_value.numpy().copy()


def main(model_path):
    session = create_session(model_path)
    x = np.linspace(-1, 1, 2 * 3 * 8 * 8, dtype=np.float32).reshape(2, 3, 8, 8)
    print(np.round(run_with_data_on_the_device(session, x)[:, :3], 4).tolist())

    io_binding = session.io_binding()
    value = ort.OrtValue.ortvalue_from_numpy(x.copy())
    io_binding.bind_ortvalue_input("x", value)
    io_binding.bind_output("y", device_type="cpu")
    for step in range(3):
        value.update_inplace(x * (step + 1))
        io_binding.synchronize_inputs()
        session.run_with_iobinding(io_binding)
        io_binding.synchronize_outputs()
        (y,) = io_binding.copy_outputs_to_cpu()
        print(step, np.round(y.max(axis=1), 4).tolist())

    shared = ort.OrtValue.from_dlpack(value)
    (found,) = session.run_with_ort_values(["y"], {"x": shared})
    print(found.data_type(), found.shape(), found.device_name(), found.tensor_size_in_bytes())
    io_binding.clear_binding_inputs()
    io_binding.clear_binding_outputs()


if __name__ == "__main__":
    main(*sys.argv[1:])
