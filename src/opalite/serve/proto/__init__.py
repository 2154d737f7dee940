"""Protocol buffers of the serving protocol: .proto files, what protoc makes of them, and config.pbtxt.

`descriptors.binpb` is compiled by `make protos`; `messages` makes classes of it, `config_text` reads and writes a
model's configuration.
"""
