"""A command in several processes on this machine, started by torchrun's own launcher."""

import logging
import os
import sys
import tempfile
import uuid
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from nmt.errors import ResourceError

OURS = range(2, 8)  # exit codes with which a rank has told its error already (docs/contract.md, rule 1)


def launch(devices: int, arguments: Sequence[str]) -> int:
    """Run `nmt ARGUMENTS` in as many processes; returns the exit code.

    Nothing listens outside the loopback address: the launcher meets in a file, and its own store, which would, is not made.
    Raises ResourceError naming the rank when one is lost.
    """
    logging.disable(logging.ERROR)  # what torchrun says is said below, in one line
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with tempfile.NamedTemporaryFile(prefix="nmt-ranks-") as meeting:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=devices,
            run_id=str(uuid.uuid4()),
            rdzv_backend="c10d",
            rdzv_endpoint=meeting.name,
            rdzv_configs={"store_type": "file"},
            max_restarts=0,
            local_addr="127.0.0.1",
        )
        try:
            elastic_launch(config, sys.executable)("-m", "nmt", *arguments)
            return 0
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            if failure.exitcode in OURS or failure.exitcode > 128:
                return int(failure.exitcode)
            how = f"by signal {-failure.exitcode}" if failure.exitcode < 0 else f"with code {failure.exitcode}"
            raise ResourceError(
                f"rank {rank} (process {failure.pid}) ended {how}, and all ranks with it (the same command goes on from the "
                "newest checkpoint)"
            ) from None
        except SignalException as signal:
            return 128 + int(signal.sigval)
