import os
import sys

status = os.system(f"!{sys.executable} -c 'print(0.125)'")
raise SystemExit(1 if status else 0)
