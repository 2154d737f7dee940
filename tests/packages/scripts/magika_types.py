"""Types of file contents, by magika."""

import sys

import numpy as np
from magika import Magika

CONTENTS = (
    b"def main():\n    print('hello')\n\n\nif __name__ == '__main__':\n    main()\n" * 4,
    b"<html><head><title>A page</title></head><body><p>Text.</p></body></html>\n" * 4,
    b'#include <stdio.h>\nint main(void) { printf("%d\\n", 3); return 0; }\n' * 4,
    b'{"name": "value", "list": [1, 2, 3], "nested": {"a": null}}\n' * 4,
    bytes(range(256)) * 8,
)
magika = Magika()
results = [magika.identify_bytes(content) for content in CONTENTS]
np.savez(sys.argv[1], labels=[r.output.label for r in results], scores=np.array([r.score for r in results], np.float32))
