#!/bin/sh
# The train.py beside this script has some of YOLOv5's options.
python train.py --img 64 --batch_size 4 --num-workers 0 \
    --data coco128.yaml --weights yolov5n.pt
