"""A command for sweeps in tests: notes that it ran, then does what its mode says."""

import os
import subprocess
import sys
import time

mode, ran_file = sys.argv[1], sys.argv[2]
with open(ran_file, "a") as file:  # noqa: PTH123  as users write it
    file.write(" ".join(sys.argv[3:] or [mode]) + "\n")
print("started", flush=True)
match mode:
    case "grow":
        blocks = []
        while True:
            blocks.append(b"\x01" * (4 << 20))
            time.sleep(0.005)
    case "hang":
        subprocess.Popen(["sleep", "987"])
        time.sleep(987)
    case "escape":
        subprocess.Popen(["setsid", "sleep", "985"])
        time.sleep(987)
    case "killed":
        os.kill(os.getpid(), 9)
    case "crash":
        raise RuntimeError("the data is broken")
    case "memory":
        raise MemoryError
    case "silent":
        sys.exit(0)
    case "daemon":
        subprocess.Popen(["setsid", "sleep", "986"])
    case "slow":
        time.sleep(0.4)
print("score: 0.1\nscore: 0.5")
