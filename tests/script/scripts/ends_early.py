"""A script that ends before it trains, in the way that its flag names."""

import os
import sys
from pathlib import Path

how = sys.argv[1]
if how == "raise":
    raise ValueError("the configuration is wrong")
if how == "exit":
    print("nothing to do")
    sys.exit(0)
if how == "return":
    sys.exit()
if how == "file":
    Path("data/missing.csv").read_text()
if how == "module":
    import a_module_that_is_missing  # noqa: F401
if how == "rank":
    print(os.environ["LOCAL_RANK"])
if how == "input":
    input("continue? ")
if how == "syntax":
    compile("def f(:", "settings.py", "exec")
if how == "die":
    print("no license", flush=True)
    os._exit(3)
