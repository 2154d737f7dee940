"""DeviceInfo: a device as plain data, and the properties of device families."""
