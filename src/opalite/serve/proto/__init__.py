"""Protocol buffers of the serving protocol: our .proto texts, message classes made of them, and config.pbtxt.

`schema` reads a .proto text, `messages` makes the classes, `config_text` reads and writes a model's configuration.
"""
