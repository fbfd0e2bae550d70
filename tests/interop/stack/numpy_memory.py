#!/usr/bin/env python3
"""numpy_memory.py DEVICE GID_INDEX SEED SECONDS: arrays of numpy, registered by pyverbs.

Arrays are made, filled, resized (realloc), replaced and dropped at random. Their regions are kept for a while after that,
as a registration cache does. One queue pair writes into and reads from arrays by way of another one. After each step all
arrays have the bytes that they should have, and new ones of zeros() are zero. Prints the number of steps.
"""

import random
import sys
import time

import numpy
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

ARRAYS, MOST, REGIONS = 16, 1 << 20, 24
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ


class Pair:
    """Two queue pairs of one process."""

    def __init__(self, device, index):
        self.context = Context(name=device)
        self.pd, self.cq = PD(self.context), CQ(self.context, 16)
        cap = QPCap(max_send_wr=4, max_recv_wr=4)
        self.qps = [QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap)) for _ in range(2)]
        route = GlobalRoute(dgid=self.context.query_gid(1, index), sgid_index=index)
        for qp, peer in zip(self.qps, reversed(self.qps)):
            attr = QPAttr(port_num=1)
            attr.qp_access_flags = ACCESS
            attr.dest_qp_num, attr.path_mtu = peer.qp_num, e.IBV_MTU_1024
            attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
            attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
            attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
            qp.to_rts(attr)
        self.regions = []

    def region(self, array):
        """A new one; the oldest ends. What it is of may move or go before that."""
        self.regions.append(MR(self.pd, array.nbytes, ACCESS, address=array.ctypes.data))
        if len(self.regions) > REGIONS:
            self.regions.pop(0).close()
        return self.regions[-1]

    def copy(self, opcode, local, remote, length):
        """Between the first bytes of two arrays."""
        request = SendWR(num_sge=1, sg=[SGE(local.ctypes.data, length, self.region(local).lkey)], opcode=opcode,
                         send_flags=e.IBV_SEND_SIGNALED)
        request.set_wr_rdma(self.region(remote).rkey, remote.ctypes.data)
        self.qps[0].post_send(request)
        done = 0
        while done == 0:
            done, completions = self.cq.poll(1)
        if completions[0].status != e.IBV_WC_SUCCESS:
            sys.exit(f"FAILED: a request ended with status {completions[0].status}")


def main():
    device, index, seed, seconds = sys.argv[1], *map(int, sys.argv[2:])
    chance, generator = random.Random(seed), numpy.random.default_rng(seed)
    pair = Pair(device, index)
    arrays, right, steps = [None] * ARRAYS, [None] * ARRAYS, 0

    def some(length):
        return generator.integers(1, 256, length, dtype=numpy.uint8)

    over = time.monotonic() + seconds
    while time.monotonic() < over:
        one, other = chance.randrange(ARRAYS), chance.randrange(ARRAYS)
        step = chance.randrange(6)
        length = chance.choice((chance.randrange(1, 5000), chance.randrange(1, MOST)))
        if arrays[one] is None:
            arrays[one] = numpy.zeros(length, numpy.uint8)
            if arrays[one].any():
                sys.exit(f"FAILED in step {steps}: numpy.zeros() is not zero")
            right[one] = bytes(length)
        elif step == 0:
            arrays[one] = right[one] = None
        elif step == 1:
            arrays[one].resize(length, refcheck=False)  # realloc; what is new is zero
            right[one] = right[one][:length].ljust(length, b"\0")
        elif step == 2:
            arrays[one][:] = some(len(arrays[one]))
            right[one] = arrays[one].tobytes()
        elif one != other and arrays[other] is not None:
            reads = step == 3
            source, target = (other, one) if reads else (one, other)
            length = min(len(right[one]), len(right[other]))
            pair.copy(e.IBV_WR_RDMA_READ if reads else e.IBV_WR_RDMA_WRITE, arrays[one], arrays[other], length)
            right[target] = right[source][:length] + right[target][length:]
        for i, array in enumerate(arrays):
            if array is not None and array.tobytes() != right[i]:
                sys.exit(f"FAILED in step {steps}: an array has other bytes than it should")
        steps += 1
    for region in pair.regions:
        region.close()
    print(f"{steps} steps")


if __name__ == "__main__":
    main()
