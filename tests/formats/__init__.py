"""Files of other formats beside the engines that wrote them: `make test-formats`."""
