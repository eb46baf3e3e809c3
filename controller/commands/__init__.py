"""The command lines: `beamer-controller`, and the commands of `beamer` that look after what it keeps."""
