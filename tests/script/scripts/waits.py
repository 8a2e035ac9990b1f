"""A script that waits for something before it trains."""

import time

time.sleep(600)
