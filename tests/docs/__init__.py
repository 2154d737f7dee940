"""The shell commands of README.md, CONTRIBUTING.md and the documents: collected, checked and run."""
