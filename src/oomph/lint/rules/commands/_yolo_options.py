"""Options of YOLOv5's scripts and arguments of Ultralytics, by their names."""

from __future__ import annotations

_SCRIPTS = {
    "train.py": """
        weights cfg data hyp epochs batch-size imgsz img img-size rect resume nosave noval
        noautoanchor noplots evolve evolve_population resume_evolve bucket cache image-weights
        device multi-scale single-cls optimizer sync-bn workers project name exist-ok quad cos-lr
        label-smoothing patience freeze save-period seed local_rank entity upload_dataset
        bbox_interval""",
    "val.py": """
        data weights batch-size imgsz img img-size conf-thres iou-thres max-det task device workers
        single-cls augment verbose save-txt save-hybrid save-conf save-json project name exist-ok
        half dnn""",
    "detect.py": """
        weights source data imgsz img img-size conf-thres iou-thres max-det device view-img save-txt
        save-format save-csv save-conf save-crop nosave classes agnostic-nms augment update project
        name exist-ok line-thickness hide-labels hide-conf half dnn vid-stride""",
    "export.py": """
        data weights imgsz img img-size batch-size device half inplace keras optimize int8
        per-tensor dynamic cache simplify mlmodel opset verbose workspace nms agnostic-nms
        topk-per-class topk-all iou-thres conf-thres include""",
    "segment/train.py": """
        weights cfg data hyp epochs batch-size imgsz img img-size rect resume nosave noval
        noautoanchor noplots evolve bucket cache image-weights device multi-scale single-cls
        optimizer sync-bn workers project name exist-ok quad cos-lr label-smoothing patience freeze
        save-period seed local_rank mask-ratio no-overlap""",
    "segment/val.py": """
        data weights batch-size imgsz img img-size conf-thres iou-thres max-det task device workers
        single-cls augment verbose save-txt save-hybrid save-conf save-json project name exist-ok
        half dnn""",
    "segment/predict.py": """
        weights source data imgsz img img-size conf-thres iou-thres max-det device view-img save-txt
        save-conf save-crop nosave classes agnostic-nms augment update project name exist-ok
        line-thickness hide-labels hide-conf half dnn vid-stride retina-masks""",
    "classify/train.py": """
        model data epochs batch-size imgsz img img-size nosave cache device workers project name
        exist-ok pretrained optimizer lr0 decay label-smoothing cutoff dropout verbose seed
        local_rank""",
    "classify/val.py": """
        data weights batch-size imgsz img img-size device workers verbose project name exist-ok half
        dnn""",
    "classify/predict.py": """
        weights source data imgsz img img-size device view-img save-txt nosave update project name
        exist-ok half dnn vid-stride""",
    "benchmarks.py": """
        weights imgsz img img-size batch-size data device half test pt-only hard-fail""",
}
# Options of train.py, val.py (formerly test.py) and detect.py in releases before 6.2, and what replaced them.
REMOVED_OPTIONS = {
    "--adam": "--optimizer Adam",
    "--cache-images": "--cache",
    "--notest": "--noval",
    "--linear-lr": "",
    "--artifact_alias": "",
    "--log-imgs": "",
    "--log-artifacts": "",
    "--nodecay": "",
    "--tfl-detect": "",
    "--train": "",
    "--coreml": "--include coreml",
}
SCRIPT_OPTIONS = {
    name: frozenset(f"--{option}" for option in options.split()) | {"--help"} for name, options in _SCRIPTS.items()
}
# Scripts of older releases with the options of their successors.
SCRIPT_OPTIONS["test.py"] = SCRIPT_OPTIONS["val.py"]

_SETTINGS = """
    task mode model data epochs time patience batch imgsz save save_period cache device workers project
    name exist_ok pretrained cls_remap optimizer verbose seed deterministic single_cls rect cos_lr
    close_mosaic resume amp fraction profile freeze multi_scale compile channels_last overlap_mask
    mask_ratio dropout val split save_json conf iou max_det quantize dnn plots nms source vid_stride
    stream_buffer visualize augment agnostic_nms classes retina_masks embed show save_frames save_txt
    save_conf save_crop show_labels show_conf show_boxes line_width format optimize dynamic simplify opset
    workspace lr0 lrf momentum weight_decay warmup_epochs warmup_momentum warmup_bias_lr distill_model dis
    box cls cls_pw dfl pose kobj rle angle dlog dgrad dlam nbs hsv_h hsv_s hsv_v degrees translate scale
    shear perspective flipud fliplr bgr mosaic mixup cutmix copy_paste copy_paste_mode auto_augment
    erasing cfg tracker
"""
# Settings of earlier releases: still accepted with a warning, or by the releases that a text is about.
_EARLIER = """
    half int8 keras end2end boxes hide_labels hide_conf line_thickness label_smoothing save_hybrid crop_fraction
    v5loader min_memory image_weights save_dir augmentations mixup_prob fl_gamma obb rotate vid_stride
"""
ARGUMENTS = frozenset((_SETTINGS + _EARLIER).split())
# Arguments that only a method takes.
METHOD_ARGUMENTS = {
    "train": frozenset({"trainer"}),
    "val": frozenset({"validator"}),
    "predict": frozenset({"stream", "predictor", "prompts", "bboxes", "points", "labels", "masks", "texts"}),
    "track": frozenset({"stream", "persist"}),
    "export": frozenset({"name"}),
    "benchmark": frozenset({"eps"}),
    "tune": frozenset(
        {"use_ray", "iterations", "space", "grace_period", "gpu_per_trial", "max_samples", "search_alg", "mutation"}
    ),
}
MODES = frozenset({"train", "val", "predict", "export", "track", "benchmark"})
TASKS = frozenset({"detect", "segment", "semantic", "depth", "classify", "pose", "obb"})
# What people write for an argument, with the same meaning.
SAME_ARGUMENT = {
    "batch_size": "batch", "batchsize": "batch", "bs": "batch", "img_size": "imgsz", "image_size": "imgsz",
    "imgs": "imgsz", "img": "imgsz", "size": "imgsz", "img_sz": "imgsz", "learning_rate": "lr0", "lr": "lr0",
    "num_workers": "workers", "n_workers": "workers", "num_epochs": "epochs", "n_epochs": "epochs",
    "epoch": "epochs", "weights": "model", "conf_thres": "conf", "confidence": "conf", "conf_threshold": "conf",
    "iou_thres": "iou", "iou_threshold": "iou", "early_stopping": "patience", "mixed_precision": "amp",
    "use_amp": "amp", "gpu": "device", "gpus": "device", "max_detections": "max_det", "cos_scheduler": "cos_lr",
    "nominal_batch_size": "nbs",
}  # fmt: skip
SAME_OPTION = {
    "--batch_size": "--batch-size", "--bs": "--batch-size", "--batchsize": "--batch-size",
    "--image-size": "--img", "--image_size": "--img", "--img_size": "--img", "--img-sz": "--img",
    "--num-workers": "--workers", "--num_workers": "--workers", "--n-workers": "--workers",
    "--num-epochs": "--epochs", "--num_epochs": "--epochs", "--n-epochs": "--epochs", "--gpu": "--device",
    "--gpus": "--device", "--conf-threshold": "--conf-thres", "--conf_thres": "--conf-thres",
    "--confidence": "--conf-thres", "--iou-threshold": "--iou-thres", "--iou_thres": "--iou-thres",
    "--model": "--weights", "--format": "--include", "--input": "--source", "--cos_lr": "--cos-lr",
    "--exist_ok": "--exist-ok", "--multi_scale": "--multi-scale", "--single_cls": "--single-cls",
    "--save_txt": "--save-txt", "--max_det": "--max-det", "--max-detections": "--max-det",
    "--quantize": "--int8", "--fp16": "--half",
}  # fmt: skip
# Options that train.py lacks on purpose, and why.
TRAIN_HINTS = {
    "--accumulate": "it accumulates to a nominal batch of 64 by itself",
    "--accumulation": "it accumulates to a nominal batch of 64 by itself",
    "--gradient-accumulation": "it accumulates to a nominal batch of 64 by itself",
    "--half": "it trains in mixed precision by itself",
    "--fp16": "it trains in mixed precision by itself",
    "--amp": "it trains in mixed precision by itself",
    "--mixed-precision": "it trains in mixed precision by itself",
    "--lr": "set lr0 in the file of --hyp",
    "--lr0": "set lr0 in the file of --hyp",
    "--learning-rate": "set lr0 in the file of --hyp",
    "--learning_rate": "set lr0 in the file of --hyp",
    "--momentum": "set momentum in the file of --hyp",
    "--weight-decay": "set weight_decay in the file of --hyp",
    "--warmup-epochs": "set warmup_epochs in the file of --hyp",
    "--augment": "augmentation is set in the file of --hyp",
    "--mosaic": "set mosaic in the file of --hyp",
}
