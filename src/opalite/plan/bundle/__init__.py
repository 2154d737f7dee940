"""`.opal` bundles: file format, reader, writer, and re-emission of programs."""
