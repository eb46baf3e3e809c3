"""What trains on a GPU of the stand-in: the tests' program, with a line before it takes memory.

python -m eval.nvidia.stand_in_program BYTES [OPTIONS of beamer.testing.trainer]

A program that is started ahead is frozen there, as a real one is when it opens the GPU's device, before it holds any memory.
"""

import sys

from tests.support.nvidia import cuda_program

if __name__ == "__main__":
    print("ready", flush=True)
    cuda_program.main(int(sys.argv[1]), sys.argv[2:])
