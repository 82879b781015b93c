"""Triton's kernels by its interpreter, where there is no GPU; to be imported before anything that imports Triton."""

import os
from pathlib import Path

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # which Triton reads when it is imported
