"""Softmax from Python without hlo or NumPy:

hlo-run compile ../softmax.hlo -o softmax.so
python softmax_ctypes.py ./softmax.so COUNT ARENA_BYTES     (SOFTMAX_INPUT_0_COUNT and
                                                             SOFTMAX_ARENA_BYTES of its header)
"""

import ctypes
import sys

ALIGNMENT = 64


def main(path: str, count: int, arena_bytes: int) -> None:
    """Run it once on numbers from 0 to 6."""
    softmax = ctypes.CDLL(path).softmax
    array = ctypes.c_float * count
    x, result = array(*(k % 7 for k in range(count))), array()
    memory = ctypes.create_string_buffer(arena_bytes + ALIGNMENT)
    place = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
    inputs = (ctypes.c_void_p * 1)(ctypes.addressof(x))
    outputs = (ctypes.c_void_p * 1)(ctypes.addressof(result))
    status = softmax(inputs, outputs, ctypes.c_void_p(place))
    if status:
        sys.exit(f"softmax: status {status}")
    sys.stdout.write(f"first {result[0]:.6f}, sum of all rows {sum(result):.3f}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
