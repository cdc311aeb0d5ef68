# SPDX-License-Identifier: Apache-2.0
"""Files of SplitFS volumes without copying: the calls of splitfs.h, with memoryviews."""

from ._buffers import Buffer, Pool
from ._files import peek, peekv, swap, write_atomic
from ._library import COPY, flags

__all__ = ["COPY", "Buffer", "Pool", "flags", "peek", "peekv", "swap", "write_atomic"]
