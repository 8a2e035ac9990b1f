git clone https://github.com/ultralytics/yolov5
# Scripts in the folder of another project are no scripts of YOLOv5, whatever options they share.
python detr/train.py --batch_size 2 --lr 1e-4 --img 640
python my_project/train.py --accumulate 8 --lr 0.001 --img 512 --mixed-precision
python ../ssd/train.py --img 512 --accumulate 8 --data voc.yaml --cfg ssd.yaml
cd ssd && python train.py --accumulate 8 --lr 0.001 --data x.yaml
cd ../efficientdet
python train.py --accumulate 8 --img 512 --data coco.yaml
python train.py --accumulate 8 --weights yolov5n.pt  # expect: unknown-yolo-flag
cd -
python train.py --img 512 --accumulate 8  # expect: unknown-yolo-flag
cd ../yolov5
python train.py --img 512 --accumulate 8  # expect: unknown-yolo-flag
python segment/train.py --img 512 --accumulate 8  # expect: unknown-yolo-flag
cd /content
python train.py --img 512 --accumulate 8  # expect: unknown-yolo-flag
python ./yolov5/train.py --accumulate 8  # expect: unknown-yolo-flag
python $ROOT/train.py --img 512 --accumulate 8  # expect: unknown-yolo-flag
