#!/bin/sh
nvidia-smi --query-gpu=index,gpu.utilization,vram.used --format=csv,noheader
